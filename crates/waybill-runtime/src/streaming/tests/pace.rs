//! Large streams, and peers that are slow.

use std::fs;

use bytes::Bytes;
use tokio_tungstenite::tungstenite::Message;
use waybill_stream::command::Streams;

use super::{Server, V4, V5, client::Client, limits};

const OUT: Streams = Streams { stdin: false, stdout: true, stderr: false, tty: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_megabytes_arrive() {
    let server = Server::start(limits()).await;
    let url = server.exec_url("head -c 200000000 /dev/zero", OUT);
    let mut client = Client::connect(&url, &[V4]).await.unwrap();
    let (mut count, mut status) = (0, Bytes::new());
    while let Some(message) = client.next().await {
        if let Message::Binary(bytes) = message {
            match bytes[0] {
                1 => count += bytes.len() - 1,
                _ => status = bytes,
            }
        }
    }
    assert_eq!(count, 200_000_000);
    assert!(str::from_utf8(&status[1..]).unwrap().contains("Success"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_input_arrives_whole() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("sha256sum", V5).await;
    let chunk: Vec<u8> = (0..100_000_u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
    let mut message = vec![0];
    message.extend_from_slice(&chunk);
    let message = Bytes::from(message);
    for _ in 0..200 {
        client.send(message.clone()).await;
    }
    client.send(&b"\xff\0"[..]).await;
    let heard = client.hear().await;
    let expected = sha256_of(&chunk, 200);
    assert_eq!(heard.out().split(' ').next(), Some(expected.as_str()));
}

/// By the tool that the process is, on the same bytes from a file.
fn sha256_of(chunk: &[u8], times: usize) -> String {
    let path = std::env::temp_dir().join(format!("waybill-stream-{}", std::process::id()));
    fs::write(&path, chunk.repeat(times)).unwrap();
    let output = std::process::Command::new("sha256sum").arg(&path).output().unwrap();
    fs::remove_file(&path).unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// 300 MB are on their way, and neither they nor the socket's buffers are ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_stops_the_process() {
    let server = Server::start(limits()).await;
    let url = server.exec_url("echo $$; exec head -c 300000000 /dev/zero", OUT);
    let mut client = Client::connect(&url, &[V4]).await.unwrap();
    let first = client.hear_text(1, "\n").await;
    let (pid, zeros) = first.split_once('\n').unwrap();
    wait_until_it_stands_still(pid).await;
    let peak = peak_memory();
    assert!(peak < 60_000, "{peak} kB");

    let mut count = zeros.len();
    while let Some(message) = client.next().await {
        if let Message::Binary(bytes) = message
            && bytes[0] == 1
        {
            count += bytes.len() - 1;
        }
    }
    assert_eq!(count, 300_000_000);
}

/// Until it has neither read nor written for a while.
async fn wait_until_it_stands_still(pid: &str) {
    let mut same = 0;
    let mut before = String::new();
    while same < 20 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        let now = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
}

/// In kB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_ping_is_answered_with_its_content() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("cat", V5).await;
    let ping = Bytes::from_static(b"there?");
    futures_util::SinkExt::send(&mut client.socket, Message::Ping(ping.clone())).await.unwrap();
    while let Some(message) = client.next().await {
        if message == Message::Pong(ping.clone()) {
            client.send(&b"\xff\0"[..]).await;
            client.hear().await;
            return;
        }
    }
    panic!("no answer");
}

/// Its own pings stand behind the input that nobody reads.
#[tokio::test]
async fn a_client_whose_input_is_not_read_gets_signs_of_life() {
    let server = Server::start(limits()).await;
    let mut client = server.exec("echo ready; exec sleep 300", V5).await;
    drop(client.hear_text(1, "ready").await);
    let mut message = vec![0; 1 + 200_000];
    message[1] = b'x';
    client.send(message).await;
    while let Some(message) = client.next().await {
        if let Message::Pong(_) = message {
            return;
        }
    }
    panic!("the server ended the session");
}
