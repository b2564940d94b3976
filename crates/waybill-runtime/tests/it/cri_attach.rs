//! Attach over CRI: recorded from the moment in which a client has the streams, and not without.

use std::{fs, time::Duration};

use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest},
};
use tonic::{Code, Request};
use waybill_proto::{
    cri::{AttachRequest, ContainerConfig},
    runtime::{ListSessionsRequest, Session, SessionKind},
};

use crate::cri_lab::{CriLab, container};

/// A container that does what is typed.
fn shell(name: &str) -> ContainerConfig {
    ContainerConfig { stdin: true, ..container(name, &["sh"]) }
}

async fn url(lab: &CriLab, id: &str, stdin: bool, audit_id: Option<&str>) -> String {
    let attach = AttachRequest {
        container_id: id.to_owned(),
        stdin,
        stdout: true,
        ..AttachRequest::default()
    };
    let mut request = Request::new(attach);
    if let Some(audit_id) = audit_id {
        request.metadata_mut().insert("waybill-audit-id", audit_id.parse().unwrap());
    }
    lab.runtime().await.attach(request).await.unwrap().into_inner().url
}

async fn connect(url: &str) -> WebSocketStream<TcpStream> {
    let mut request = url.replace("http://", "ws://").into_client_request().unwrap();
    let protocol = "v5.channel.k8s.io".parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    let address = request.uri().authority().unwrap().to_string();
    let stream = TcpStream::connect(address).await.unwrap();
    client_async(request, stream).await.unwrap().0
}

/// Reads until the container has printed this, or the server has said it on the error channel.
async fn hear(socket: &mut WebSocketStream<TcpStream>, channel: u8, part: &str) {
    let mut text = String::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message
            && bytes.first() == Some(&channel)
        {
            text.push_str(&String::from_utf8_lossy(&bytes[1..]));
        }
        if text.contains(part) {
            return;
        }
    }
    panic!("{part:?} is not in {text:?}");
}

async fn attached(lab: &CriLab) -> Vec<Session> {
    let list = ListSessionsRequest::default();
    let listed = lab.sessions().await.list_sessions(list).await.unwrap().into_inner().sessions;
    listed.into_iter().filter(|session| session.kind() == SessionKind::Attach).collect()
}

#[tokio::test]
async fn who_attaches_is_recorded_from_the_first_stream_to_the_last() {
    let Some(mut lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("attach", shell("c")).await;
    let typing = url(&lab, &id, true, Some("audit-1")).await;
    let reading = url(&lab, &id, false, None).await;
    assert!(attached(&lab).await.is_empty(), "nobody has any streams yet");

    let mut typing = connect(&typing).await;
    typing.send(Message::Binary(b"\0echo typed\n".to_vec().into())).await.unwrap();
    hear(&mut typing, 1, "typed").await;
    let sessions = attached(&lab).await;
    assert_eq!(sessions.len(), 1, "{sessions:#?}");
    let session = &sessions[0];
    assert_eq!((session.audit_id.as_str(), session.container_id.as_str()), ("audit-1", &*id));
    assert!(session.stdin && session.started_at > 0 && session.finished_at == 0, "{session:#?}");

    let mut reading = connect(&reading).await;
    typing.send(Message::Binary(b"\0echo again\n".to_vec().into())).await.unwrap();
    hear(&mut reading, 1, "again").await;
    let second = attached(&lab).await.remove(1);
    assert!(!second.stdin && second.audit_id.is_empty(), "{second:#?}");

    drop(typing);
    let over = async {
        while attached(&lab).await[0].finished_at == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), over).await.expect("the first session ends");
    assert_eq!(attached(&lab).await[1].finished_at, 0);

    // The streams end with the runtime, their records do not.
    lab.stop().await;
    lab.start().await;
    let sessions = attached(&lab).await;
    let ids: Vec<_> = sessions.iter().map(|session| session.audit_id.as_str()).collect();
    assert_eq!(ids, ["audit-1", ""]);
    assert!(sessions.iter().all(|session| session.finished_at != 0), "{sessions:#?}");
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// D14: what cannot be recorded does not happen.
#[tokio::test]
async fn nobody_attaches_without_a_record() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("unrecorded", shell("c")).await;
    let records = lab.path("run").join("attach-sessions");
    fs::remove_dir_all(&records).unwrap();
    let mut refused = connect(&url(&lab, &id, true, Some("audit-1")).await).await;
    hear(&mut refused, 3, "cannot record an attach session").await;
    assert!(attached(&lab).await.is_empty());
    // And it heals.
    fs::create_dir(&records).unwrap();
    let mut served = connect(&url(&lab, &id, true, Some("audit-2")).await).await;
    served.send(Message::Binary(b"\0echo typed\n".to_vec().into())).await.unwrap();
    hear(&mut served, 1, "typed").await;
    assert_eq!(attached(&lab).await.len(), 1);
    drop(served);
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// `kubectl run --stdin --leave-stdin-open`, after which `kubectl attach --stdin` types on.
#[tokio::test]
async fn whoever_has_no_more_input_is_let_go_and_the_container_reads_on() {
    const NO_MORE_INPUT: &[u8] = &[255, 0];
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("left-open", shell("c")).await;
    for word in ["one", "two"] {
        let mut socket = connect(&url(&lab, &id, true, None).await).await;
        let typed = format!("\0echo {word}\n").into_bytes();
        socket.send(Message::Binary(typed.into())).await.unwrap();
        hear(&mut socket, 1, word).await;
        socket.send(Message::Binary(NO_MORE_INPUT.into())).await.unwrap();
        hear(&mut socket, 3, "Success").await;
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// Input that is for one client ends with it, and its session with the container.
#[tokio::test]
async fn whoever_has_no_more_input_hears_the_container_out_when_it_was_theirs_alone() {
    let Some(lab) = CriLab::open().await else { return };
    let config = ContainerConfig {
        stdin: true,
        stdin_once: true,
        ..container("c", &["sh", "-c", "cat; echo all read"])
    };
    let (sandbox, id) = lab.run("once", config).await;
    let mut socket = connect(&url(&lab, &id, true, None).await).await;
    socket.send(Message::Binary(b"\0typed\n".to_vec().into())).await.unwrap();
    socket.send(Message::Binary([255, 0].to_vec().into())).await.unwrap();
    hear(&mut socket, 1, "all read").await;
    hear(&mut socket, 3, "Success").await;
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn an_audit_id_that_is_none_is_refused() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("bad-id", shell("c")).await;
    let attach = AttachRequest { container_id: id, stdout: true, ..AttachRequest::default() };
    let mut request = Request::new(attach);
    request.metadata_mut().insert("waybill-audit-id", "a b".parse().unwrap());
    let refused = lab.runtime().await.attach(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    lab.remove(&sandbox).await;
    lab.close().await;
}
