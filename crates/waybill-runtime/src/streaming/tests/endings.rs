//! How sessions end: by the process, by the client, by us.

use std::time::Duration;

use futures_util::SinkExt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use waybill_stream::command::Streams;

use super::{
    Limits, Server, V4, V5,
    client::{Client, exit},
    limits,
};

#[tokio::test]
async fn a_child_that_holds_the_output_does_not_hold_the_session() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("echo out; sleep 300 & echo $!; exit 4", V5).await;
    let heard = client.hear().await;
    let mut lines = heard.out().lines();
    assert_eq!(lines.next(), Some("out"));
    let sleeper = lines.next().unwrap();
    assert!(heard.status().contains(&exit(4)), "{}", heard.status());
    let killed = std::process::Command::new("kill").arg(sleeper).status().unwrap();
    assert!(killed.success(), "it was still there");
}

/// Even one that floods the pipe.
#[tokio::test]
async fn what_the_process_wrote_is_delivered_and_what_its_children_write_only_for_a_while() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("yes & echo $! >&2; exit 6", V5).await;
    let heard = client.hear().await;
    assert!(heard.status().contains(&exit(6)), "{}", heard.status());
    // The pipe is closed by now, so the child ends too.
    assert!(!heard.err().is_empty());
}

#[tokio::test]
async fn a_killed_process_has_a_code_above_128() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("kill -9 $$", V5).await;
    assert!(client.hear().await.status().contains(&exit(137)));
}

#[tokio::test]
async fn a_process_that_closes_its_output_early_is_waited_for() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("exec >&- 2>&-; read line; exit 9", V5).await;
    client.send(&b"\0\n"[..]).await;
    assert!(client.hear().await.status().contains(&exit(9)));
}

#[tokio::test]
async fn input_for_a_process_that_closed_it_is_dropped() {
    let server = Server::start(limits()).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = format!(
        "exec <&-; echo closed; until [ -s {} ]; do sleep 0.01; done",
        file.path().display()
    );
    let mut client = server.exec(&script, V5).await;
    client.hear_text(1, "closed").await;
    drop(server.machine.last_stdin());
    // More than any buffer on the way holds.
    for _ in 0..200 {
        client.send(vec![0; 100_000]).await;
    }
    std::fs::write(file.path(), "go").unwrap();
    assert!(client.hear().await.status().contains("Success"));
}

/// `cat` ends because its input does: its pipe was closed, and nobody killed it.
#[tokio::test]
async fn a_client_that_vanishes_closes_the_streams() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("echo ready; cat >/dev/null; exit 21", V5).await;
    client.hear_text(1, "ready").await;
    drop(client);
    assert_eq!(server.machine.ended().await, 21);
}

#[tokio::test]
async fn a_client_that_vanishes_while_it_reads_nothing_is_noticed() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdout: true, ..Streams::default() };
    let url = server.exec_url("exec yes", streams);
    let mut client = Client::connect(&url, &[V4]).await.unwrap();
    client.next().await.unwrap();
    drop(client);
    assert_eq!(server.machine.ended().await, 128 + 13, "SIGPIPE");
}

/// The connection holds input that is never read, so only the signs of life find out.
#[tokio::test]
async fn a_client_that_vanishes_behind_unread_input_is_noticed() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdin: true, stdout: true, ..Streams::default() };
    let url = server.exec_url("echo ready; exec sleep 300", streams);
    let mut client = Client::connect(&url, &[V5]).await.unwrap();
    client.hear_text(1, "ready").await;
    client.send(vec![0; 300_000]).await;
    drop(client);
    let stdin = server.machine.last_stdin();
    // Hung up: the last one who could write has closed.
    while !is_hung_up(&stdin) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_hung_up(fd: &std::os::fd::OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::HUP)];
    poll(&mut fds, Some(&Timespec::default())).unwrap();
    fds[0].revents().contains(PollFlags::HUP)
}

#[tokio::test]
async fn a_client_that_says_goodbye_is_answered() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("cat >/dev/null; exit 22", V5).await;
    let close = CloseFrame { code: CloseCode::Normal, reason: "bye".into() };
    client.socket.send(Message::Close(Some(close.clone()))).await.unwrap();
    assert_eq!(client.hear().await.close, Some(close));
    assert_eq!(server.machine.ended().await, 22);
}

#[tokio::test]
async fn a_client_that_breaks_the_rules_is_told_which() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("cat", V5).await;
    client.send(&b"\x09?"[..]).await;
    let close = client.hear().await.close.unwrap();
    assert_eq!(close.code, CloseCode::Invalid);
    assert!(close.reason.contains("channel 9"), "{}", close.reason);

    let mut client = server.exec("cat", V5).await;
    client.send(&b"\x04wide"[..]).await;
    let close = client.hear().await.close.unwrap();
    assert!(close.reason.contains("resize"), "{}", close.reason);
}

#[tokio::test]
async fn a_client_that_speaks_no_websocket_is_told_so() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("cat", V5).await;
    client.socket.get_mut().write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(client.hear().await.close.unwrap().code, CloseCode::Protocol);
}

#[tokio::test]
async fn silence_ends_a_session() {
    let idle = Duration::from_millis(50);
    let server = Server::start(Limits { idle, ..limits() }).await;
    let mut client = server.exec("cat; exit 23", V5).await;
    let close = client.hear().await.close.unwrap();
    assert_eq!(close.code, CloseCode::Away);
    assert!(close.reason.contains("silent"), "{}", close.reason);
    assert_eq!(server.machine.ended().await, 23);
}

#[tokio::test]
async fn a_server_that_stops_takes_its_leave() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("echo ready; cat; exit 24", V5).await;
    client.hear_text(1, "ready").await;
    server.stop.cancel();
    let close = client.hear().await.close.unwrap();
    assert_eq!(close.code, CloseCode::Away);
    assert_eq!(server.machine.ended().await, 24);
    server.tasks.close();
    server.tasks.wait().await;
}
