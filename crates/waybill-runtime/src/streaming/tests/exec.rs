//! Streams in the forms that clients ask for.

use super::{
    ALL, Server, V4, V5,
    client::{Client, exit},
    limits,
};
use waybill_stream::command::Streams;

#[tokio::test]
async fn v5_carries_all_streams_and_the_exit_code() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("cat; echo problem >&2; exit 3", V5).await;
    assert_eq!(client.protocol.as_deref(), Some(V5));
    client.send(&b"\0hello "[..]).await;
    client.send(&b"\0world"[..]).await;
    client.send(&b"\xff\0"[..]).await;
    let heard = client.hear().await;
    assert_eq!(heard.first, Some(vec![1]), "an empty message says that we are heard");
    assert_eq!((heard.out(), heard.err()), ("hello world", "problem\n"));
    assert!(heard.status().contains(&exit(3)), "{}", heard.status());
    assert!(heard.status().contains(r#""reason":"NonZeroExitCode""#));
}

#[tokio::test]
async fn v4_tells_success() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("read line; echo got $line", V4).await;
    client.send(&b"\0one\n"[..]).await;
    let heard = client.hear().await;
    assert_eq!(heard.out(), "got one\n");
    assert!(heard.status().contains(r#""status":"Success""#), "{}", heard.status());
}

#[tokio::test]
async fn base64_is_text_both_ways() {
    let server = Server::start(limits()).await;
    let mut client =
        server.exec("read line; echo got $line; exit 1", "v4.base64.channel.k8s.io").await;
    client.send_text("0b25lCg==").await;
    let heard = client.hear().await;
    assert_eq!(heard.first, Some(vec![b'1']));
    assert_eq!(heard.channels[1], b"Z290IG9uZQo=");
    assert!(!heard.status().is_empty());
}

#[tokio::test]
async fn older_clients_get_a_text_for_a_failure_and_silence_for_success() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdout: true, ..Streams::default() };
    for (protocols, named) in [(&["channel.k8s.io"][..], Some("channel.k8s.io")), (&[], None)] {
        let url = server.exec_url("echo out; exit 2", streams);
        let mut client = Client::connect(&url, protocols).await.unwrap();
        assert_eq!(client.protocol.as_deref(), named);
        let heard = client.hear().await;
        assert_eq!(heard.out(), "out\n");
        assert_eq!(heard.status(), "command terminated with non-zero exit code: 2");

        let url = server.exec_url("true", streams);
        let heard = Client::connect(&url, protocols).await.unwrap().hear().await;
        assert_eq!(heard.status(), "");
    }
}

#[tokio::test]
async fn a_terminal_has_a_size_and_one_output() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };
    let script = "test -t 0 && echo ready; read line; stty size; echo error >&2; exit 5";
    let mut client = Client::connect(&server.exec_url(script, streams), &[V5]).await.unwrap();
    client.hear_text(1, "ready").await;
    client.send(&b"\x04{\"Width\":100,\"Height\":40}"[..]).await;
    client.send(&b"\0\n"[..]).await;
    let heard = client.hear().await;
    assert!(heard.out().contains("40 100\r\nerror\r\n"), "{}", heard.out());
    assert!(heard.status().contains(&exit(5)), "{}", heard.status());
}

#[tokio::test]
async fn the_end_of_input_reaches_a_program_on_a_terminal() {
    let server = Server::start(limits()).await;
    let streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };
    let script = "echo ready; cat; echo over";
    let mut client = Client::connect(&server.exec_url(script, streams), &[V5]).await.unwrap();
    client.hear_text(1, "ready").await;
    client.send(&b"\xff\0"[..]).await;
    let heard = client.hear().await;
    assert!(heard.out().ends_with("over\r\n"), "{}", heard.out());
    assert!(heard.status().contains("Success"));
}

#[tokio::test]
async fn streams_that_were_not_asked_for_are_silent() {
    let server = Server::start(limits()).await;
    let streams = Streams { stderr: true, ..Streams::default() };
    let url = server.exec_url("echo out; echo err >&2", streams);
    let mut client = Client::connect(&url, &[V4]).await.unwrap();
    // As some clients do, whether or not they asked for it.
    client.send(&b"\0dropped"[..]).await;
    let heard = client.hear().await;
    assert_eq!(heard.first, Some(vec![2]));
    assert_eq!((heard.out(), heard.err()), ("", "err\n"));
}

#[tokio::test]
async fn attach_joins_the_streams() {
    let server = Server::start(limits()).await;
    let url = server.streaming.attach_url("c1", ALL, None).unwrap();
    assert!(url.contains("/attach/"), "{url}");
    let mut client = Client::connect(&url, &[V5]).await.unwrap();
    client.send(&b"\0echo"[..]).await;
    client.send(&b"\xff\0"[..]).await;
    let heard = client.hear().await;
    assert_eq!((heard.out(), heard.err()), ("attached\necho", "to stderr\n"));
    assert!(heard.status().contains("Success"));
}

#[tokio::test]
async fn a_process_that_cannot_be_started_is_told_as_a_status() {
    let server = Server::start(limits()).await;
    let mut request = super::request("", ALL);
    request.argv = vec![b"/no/such/program".to_vec()];
    let url = server.streaming.exec_url("c1", request).unwrap();
    let heard = Client::connect(&url, &[V5]).await.unwrap().hear().await;
    assert_eq!(heard.first, Some(vec![1]));
    assert!(heard.status().contains("No such file"), "{}", heard.status());
    assert!(heard.status().contains("InternalError"), "{}", heard.status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_sessions_at_once() {
    let server = Server::start(limits()).await;
    let sessions = (0..50).map(async |n| {
        let mut client = server.exec(&format!("cat; echo {n}; exit {n}"), V5).await;
        client.send(format!("\0input {n} ").into_bytes()).await;
        client.send(&b"\xff\0"[..]).await;
        (n, client.hear().await)
    });
    for (n, heard) in futures_util::future::join_all(sessions).await {
        assert_eq!(heard.out(), format!("input {n} {n}\n"));
        let expected = if n == 0 { "Success".to_owned() } else { exit(n) };
        assert!(heard.status().contains(&expected), "{}", heard.status());
    }
    assert_eq!(server.machine.started(), 50);
}
