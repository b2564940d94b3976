//! Our two ends against each other, and each against an independent implementation.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role as TheirRole, frame::coding::CloseCode},
    },
};

use super::*;
use crate::{
    channel::{Outgoing, ProtocolError},
    command::{CommandEvent, CommandReader, ERROR, STDIN, STDOUT},
    outcome::Outcome,
    protocol::Protocol,
    websocket::{Close, Role},
};

type Ends = (Sender<WriteHalf<DuplexStream>>, Receiver<ReadHalf<DuplexStream>, CommandReader>);

fn ends(io: DuplexStream, protocol: Protocol, role: Role) -> Ends {
    let (read, write) = split(io);
    let traffic = Traffic::default();
    let sender = Sender::new(write, protocol, role, traffic.clone());
    (sender, Receiver::new(read, CommandReader::new(protocol, role), &[], traffic))
}

async fn theirs(io: DuplexStream, role: TheirRole) -> WebSocketStream<DuplexStream> {
    WebSocketStream::from_raw_socket(io, role, None).await
}

/// A session's worth of every kind of message, from our server to their client and back.
#[tokio::test]
async fn their_client_understands_our_server() {
    let (ours, other) = duplex(1 << 20);
    let (sender, mut receiver) = ends(ours, Protocol::V5, Role::Server);
    let mut client = theirs(other, TheirRole::Client).await;

    sender.send_copy(STDOUT, b"").await.unwrap();
    let long = vec![b'x'; 70_000];
    sender.send_copy(STDOUT, &long).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::binary(vec![1]));
    let message = client.next().await.unwrap().unwrap().into_data();
    assert_eq!((message[0], message.len()), (1, 70_001));

    client.send(Message::binary(&b"\0hello"[..])).await.unwrap();
    client.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
    client.send(Message::binary(&b"\xff\0"[..])).await.unwrap();
    let CommandEvent::Stdin(payload) = receiver.next().await.unwrap() else { panic!("no stdin") };
    assert_eq!(&*payload, b"hello");
    let CommandEvent::Ping(ping) = receiver.next().await.unwrap() else { panic!("no ping") };
    sender.pong(ping);
    tokio::select! {
        error = sender.send_pongs() => panic!("{error}"),
        pong = client.next() => {
            assert_eq!(pong.unwrap().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
        }
    }
    assert_eq!(receiver.next().await.unwrap(), CommandEvent::StdinEnd);

    sender.close(&Close::normal()).await.unwrap();
    let close = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Close(Some(close)));
    // Their answer leaves with the next flush, which also says that nothing follows.
    let _ = client.flush().await;
    let CommandEvent::Close(Some(close)) = receiver.next().await.unwrap() else { panic!() };
    assert_eq!(close.code, Close::NORMAL);
    assert!(matches!(sender.send_copy(STDOUT, b"late").await, Err(SendError::Closed)));
}

#[tokio::test]
async fn our_client_understands_their_server() {
    let (ours, other) = duplex(1 << 20);
    let (sender, mut receiver) = ends(ours, Protocol::V4Base64, Role::Client);
    let mut server = theirs(other, TheirRole::Server).await;

    sender.send_copy(STDIN, b"in").await.unwrap();
    sender.ping().await.unwrap();
    assert_eq!(server.next().await.unwrap().unwrap(), Message::text("0aW4="));
    assert_eq!(server.next().await.unwrap().unwrap(), Message::Ping(Bytes::new()));
    server.flush().await.unwrap();

    server.send(Message::text("1b3V0")).await.unwrap();
    let status = Outcome::Exit(3).to_message(Protocol::V4Base64).unwrap();
    let mut sealed = Outgoing::copy_of(&status);
    let frame = sealed.seal((Protocol::V4Base64, Role::Server), ERROR, status.len());
    // A frame of ours without its header, as a message of theirs.
    let text = String::from_utf8(frame[4..].to_vec()).unwrap();
    server.send(Message::text(text)).await.unwrap();
    assert_eq!(receiver.next().await.unwrap(), CommandEvent::Pong);
    let CommandEvent::Stdout(payload) = receiver.next().await.unwrap() else { panic!() };
    assert_eq!(&*payload, b"out");
    assert_eq!(receiver.next().await.unwrap(), CommandEvent::Ended(Outcome::Exit(3)));
}

#[tokio::test]
async fn a_sender_waits_for_a_peer_that_does_not_read() {
    let (ours, mut other) = duplex(16);
    let (sender, _receiver) = ends(ours, Protocol::V4, Role::Server);
    let send = sender.send_copy(STDOUT, &[b'x'; 100]);
    let mut send = std::pin::pin!(send);
    assert!((&mut send).now_or_never().is_none());
    let mut frame = [0; 103];
    let (sent, read) = tokio::join!(send, other.read_exact(&mut frame));
    sent.unwrap();
    read.unwrap();
    assert_eq!(frame[..4], [0x82, 101, 1, b'x']);
}

#[tokio::test]
async fn a_frame_that_was_cut_short_is_followed_by_nothing() {
    let (ours, _other) = duplex(16);
    let (sender, _receiver) = ends(ours, Protocol::V4, Role::Server);
    assert!(sender.send_copy(STDOUT, &[0; 100]).now_or_never().is_none());
    assert!(matches!(sender.send_copy(STDOUT, b"x").await, Err(SendError::Torn)));
}

#[tokio::test]
async fn a_peer_that_vanishes_or_misbehaves_is_told_apart() {
    let (ours, other) = duplex(100);
    let (_sender, mut receiver) = ends(ours, Protocol::V4, Role::Server);
    drop(other);
    assert!(matches!(receiver.next().await, Err(ReceiveError::Vanished)));

    let (ours, mut other) = duplex(100);
    let (_sender, mut receiver) = ends(ours, Protocol::V4, Role::Server);
    other.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let Err(ReceiveError::Protocol(ProtocolError::Frame(_))) = receiver.next().await else {
        panic!("HTTP is no WebSocket");
    };
}

#[tokio::test]
async fn many_streams_share_a_connection_without_mixing_frames() {
    let (ours, other) = duplex(100);
    let (sender, _receiver) = ends(ours, Protocol::V4, Role::Server);
    let (_client, mut client) = ends(other, Protocol::V4, Role::Client);
    let sender = Arc::new(sender);
    let send = async |channel: u8| {
        for _ in 0..50 {
            sender.send_copy(channel, &vec![channel; 70 + usize::from(channel)]).await.unwrap();
        }
    };
    let receive = async {
        let (mut out, mut err) = (0, 0);
        while out + err < 50 * 71 + 50 * 72 {
            match client.next().await.unwrap() {
                CommandEvent::Stdout(bytes) => {
                    assert!(bytes.iter().all(|byte| *byte == 1));
                    out += bytes.len();
                }
                CommandEvent::Stderr(bytes) => {
                    assert!(bytes.iter().all(|byte| *byte == 2));
                    err += bytes.len();
                }
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::join!(send(1), send(2), receive);
}

#[tokio::test]
async fn silence_is_noticed() {
    let traffic = Traffic::default();
    traffic.add(1);
    timeout(Duration::from_secs(10), traffic.idle(Duration::from_millis(1))).await.unwrap();
    assert_eq!(traffic.total(), 1);
}
