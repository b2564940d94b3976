//! Exec over CRI: ExecSync, and the URL of Exec with a WebSocket client behind it.

use futures_util::StreamExt;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};
use tonic::Code;
use waybill_proto::{
    cri::{
        AttachRequest, ExecRequest, ExecSyncRequest, KeyValue, PortForwardRequest, StatusRequest,
    },
    runtime::ListSessionsRequest,
};

use crate::cri_lab::{CriLab, container, sleeper};

fn request(id: &str, command: &[&str]) -> ExecRequest {
    ExecRequest {
        container_id: id.into(),
        cmd: command.iter().map(|&word| word.to_owned()).collect(),
        stdout: true,
        ..ExecRequest::default()
    }
}

fn variable(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.into(), value: value.into() }
}

/// What a session prints.
async fn output(url: &str) -> String {
    let mut request = url.replace("http://", "ws://").into_client_request().unwrap();
    let protocol = "v5.channel.k8s.io".parse().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol);
    let address = request.uri().authority().unwrap().to_string();
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = client_async(request, stream).await.unwrap();
    let mut text = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message
            && bytes.first() == Some(&1)
        {
            text.extend_from_slice(&bytes[1..]);
        }
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_command_runs_to_its_end() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("sync", sleeper("c")).await;
    let response = lab.exec(&id, &["sh", "-c", "echo out; echo err >&2; exit 4"]).await;
    assert_eq!((&response.stdout[..], &response.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(response.exit_code, 4);
    assert_eq!(lab.exec(&id, &["/none"]).await.exit_code, 127);
    // A child that keeps the pipe does not keep the caller.
    let response = lab.exec(&id, &["sh", "-c", "sleep 1000 & echo done"]).await;
    assert_eq!(response.stdout, b"done\n");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("slow", sleeper("c")).await;
    let request = ExecSyncRequest {
        container_id: id.clone(),
        cmd: ["sh", "-c", "sleep 777 & sleep 777"].map(str::to_owned).into(),
        timeout: 1,
    };
    let refused = lab.runtime().await.exec_sync(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded);
    let left = lab.exec(&id, &["sh", "-c", "ps | grep '[s]leep 777'"]).await;
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn much_output_is_cut_and_the_command_goes_on() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("much", sleeper("c")).await;
    let response = lab.exec(&id, &["sh", "-c", "yes | head -c 20000000; exit 5"]).await;
    assert_eq!((response.stdout.len(), response.exit_code), (16 << 20, 5));
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// EXEC-02, EXEC-03, EXEC-04, EXEC-06, EXEC-07, EXEC-08, EXEC-10, EXEC-12
#[tokio::test]
async fn a_session_has_its_own_variables_exec_02() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("envs", sleeper("c")).await;
    let mut runtime = lab.runtime().await;
    let status = runtime.status(StatusRequest::default()).await.unwrap().into_inner();
    assert!(status.features.unwrap().exec_envs);

    let envs = vec![
        variable("A", "first"),
        variable("SECRET", "hunter2"),
        variable("FROM", "session"),
        variable("LITERAL", "$FROM ${FROM} %FROM% $(FROM)"),
        variable("EMPTY", ""),
        variable("A", "last"),
        variable("KUBERNETES_EXEC_AUDIT_ID", "audit-1"),
    ];
    let exec = ExecRequest { envs, ..request(&id, &["env"]) };
    let url = runtime.exec(exec).await.unwrap().into_inner().url;
    assert!(url.starts_with("http://127.0.0.1:") && !url.contains("hunter2"), "{url}");
    let text = output(&url).await;
    let lines: Vec<_> = text.lines().collect();
    for expected in [
        "A=last",
        "SECRET=hunter2",
        "FROM=session",
        "LITERAL=$FROM ${FROM} %FROM% $(FROM)",
        "EMPTY=",
        "PATH=/bin",
    ] {
        assert_eq!(lines.iter().filter(|line| **line == expected).count(), 1, "{text}");
    }
    assert_eq!(lines.iter().filter(|line| line.starts_with("A=")).count(), 1);

    // The next session is as plain as ever.
    let url = runtime.exec(request(&id, &["env"])).await.unwrap().into_inner().url;
    let plain = output(&url).await;
    assert!(plain.contains("FROM=image") && !plain.contains("SECRET"), "{plain}");

    let list = ListSessionsRequest { container_id: id.clone(), ..ListSessionsRequest::default() };
    let sessions = lab.sessions().await.list_sessions(list).await.unwrap().into_inner().sessions;
    let session = sessions.iter().find(|session| !session.env_names.is_empty()).unwrap();
    assert!(session.env_names.contains(&"SECRET".to_owned()));
    assert_eq!((session.audit_id.as_str(), session.exit_code), ("audit-1", 0));
    assert!(!format!("{sessions:?}").contains("hunter2"));
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// EXEC-05: with a runtime that is configured to inject a variable.
#[tokio::test]
async fn the_runtimes_own_variables_win_exec_05() {
    let Some(mut lab) = CriLab::open().await else { return };
    lab.stop().await;
    lab.exec_env = vec![("SITE".into(), b"runtime".to_vec())];
    lab.start().await;
    let (sandbox, id) = lab.run("own", sleeper("c")).await;
    let exec = ExecRequest { envs: vec![variable("SITE", "caller")], ..request(&id, &["env"]) };
    let url = lab.runtime().await.exec(exec).await.unwrap().into_inner().url;
    assert!(output(&url).await.contains("SITE=runtime\n"));
    assert_eq!(lab.sh(&id, "echo $SITE").await, "runtime");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn impossible_streams_are_refused() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("bad", sleeper("c")).await;
    let mut runtime = lab.runtime().await;
    for (exec, code) in [
        (
            ExecRequest { container_id: String::new(), ..request(&id, &["env"]) },
            Code::InvalidArgument,
        ),
        (ExecRequest { stdout: false, ..request(&id, &["env"]) }, Code::InvalidArgument),
        (ExecRequest { tty: true, stderr: true, ..request(&id, &["env"]) }, Code::InvalidArgument),
        (request(&id, &[]), Code::InvalidArgument),
        (request("none", &["env"]), Code::NotFound),
        (
            ExecRequest { envs: vec![variable("A=B", "x")], ..request(&id, &["env"]) },
            Code::InvalidArgument,
        ),
        (
            ExecRequest { envs: vec![variable("A", "hunter2\0")], ..request(&id, &["env"]) },
            Code::InvalidArgument,
        ),
    ] {
        let refused = runtime.exec(exec).await.unwrap_err();
        assert_eq!(refused.code(), code, "{}", refused.message());
        assert!(!refused.message().contains("hunter2"));
    }
    let attach =
        AttachRequest { container_id: id.clone(), stdout: true, tty: true, ..Default::default() };
    assert_eq!(runtime.attach(attach).await.unwrap_err().code(), Code::InvalidArgument);
    let forward = PortForwardRequest { pod_sandbox_id: sandbox.clone(), port: vec![70_000] };
    assert_eq!(runtime.port_forward(forward).await.unwrap_err().code(), Code::InvalidArgument);
    let forward = PortForwardRequest { pod_sandbox_id: sandbox.clone(), port: vec![80] };
    let url = runtime.port_forward(forward).await.unwrap().into_inner().url;
    assert!(url.contains("/portforward/"), "{url}");
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// A command that meets a container which is just ending has its own code, dies with the container, or is
/// refused; it never seems to have failed by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_for_a_container_that_is_ending_is_refused_as_such() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("ends")).await;
    for round in 0..8 {
        let id = lab.create(&sandbox, container(&format!("c{round}"), &["sleep", "0.05"])).await;
        lab.start_container(&id).await;
        let mut runtime = lab.runtime().await;
        let refused = loop {
            let request =
                ExecSyncRequest { container_id: id.clone(), cmd: vec!["true".into()], timeout: 0 };
            match runtime.exec_sync(request).await {
                Ok(response) => {
                    let code = response.into_inner().exit_code;
                    assert!(matches!(code, 0 | 137), "{code}");
                }
                Err(status) => break status,
            }
        };
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// Nobody knows how the command would have ended, so there is no code.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn a_command_whose_monitor_dies_has_no_exit_code() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("loses", sleeper("c")).await;
    let mut runtime = lab.runtime().await;
    let cmd = ["sh", "-c", "touch /tmp/here; sleep 1000"].map(str::to_owned).to_vec();
    let request = ExecSyncRequest { container_id: id.clone(), cmd, timeout: 0 };
    let running = tokio::spawn(async move { runtime.exec_sync(request).await });
    lab.sh(&id, "while ! test -e /tmp/here; do sleep 0.01; done").await;
    lab.kill_monitor(&id);
    let status = running.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    assert!(status.message().contains("monitor"), "{status:?}");
    assert_eq!(lab.ended(&id).await.reason, "MonitorLost");
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// The time that a machine takes to start the command is part of it.
#[tokio::test]
async fn the_timeout_of_exec_sync_counts_from_the_call() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("slow", sleeper("c")).await;
    lab.signal_monitor(&id, rustix::process::Signal::STOP);
    let request = ExecSyncRequest {
        container_id: id.clone(),
        cmd: ["touch", "/ran"].map(str::to_owned).into(),
        timeout: 1,
    };
    let late = lab.runtime().await.exec_sync(request).await.unwrap_err();
    assert!(late.message().contains("did not end within 1 s"), "{late}");
    lab.signal_monitor(&id, rustix::process::Signal::CONT);
    // What was given up may begin now, and is killed then.
    assert_eq!(lab.sh(&id, "echo alive").await, "alive");
    lab.remove(&sandbox).await;
    lab.close().await;
}
