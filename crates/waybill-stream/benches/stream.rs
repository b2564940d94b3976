//! The codec against a copy of the same bytes, and whole sessions against plain TCP.
//!
//! Each group holds its own baseline, so that only the ratio inside one run counts;
//! `docs/performance.md` records it.

use std::{
    hint::black_box,
    io,
    process::{Child, Command, Stdio},
};

use bytes::BytesMut;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream, unix::pipe},
    runtime::Runtime,
};
use waybill_stream::{
    channel::Outgoing,
    command::{CommandEvent, CommandReader, STDIN, STDOUT},
    connection::{Receiver, Sender, Traffic},
    protocol::Protocol,
    websocket::{Close, Role},
};

const CHUNK: usize = 64 * 1024;

/// What a process writes in a session.
const OUTPUT: u64 = 256 * 1024 * 1024;

fn codec(criterion: &mut Criterion) {
    let payload = vec![b'x'; CHUNK];
    let mut group = criterion.benchmark_group("a message of 64 KiB");
    group.throughput(Throughput::Bytes(CHUNK as u64));
    group.bench_function("baseline: copy", |bencher| {
        let mut copy = vec![0; CHUNK];
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&payload)));
    });
    for (name, protocol, role) in [
        ("server seals v5", Protocol::V5, Role::Server),
        ("client seals v5", Protocol::V5, Role::Client),
        ("server seals base64", Protocol::V4Base64, Role::Server),
    ] {
        let mut outgoing = Outgoing::copy_of(&payload);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| outgoing.seal((protocol, role), STDOUT, CHUNK).len());
        });
    }
    for (name, protocol, role) in [
        ("server reads v5", Protocol::V5, Role::Server),
        ("client reads v5", Protocol::V5, Role::Client),
    ] {
        let (theirs, channel) = match role {
            Role::Server => (Role::Client, STDIN),
            Role::Client => (Role::Server, STDOUT),
        };
        let mut outgoing = Outgoing::copy_of(&payload);
        let frame = outgoing.seal((protocol, theirs), channel, CHUNK).to_vec();
        let mut reader = CommandReader::new(protocol, role);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_batched_ref(
                || BytesMut::from(frame.as_slice()),
                |input| reader.next(input).is_ok(),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn session(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("tokio starts");
    let mut group = criterion.benchmark_group("256 MiB from a process, over TCP");
    group.throughput(Throughput::Bytes(OUTPUT));
    group.sample_size(10);
    group.bench_function("baseline: plain copy", |bencher| {
        bencher.iter(|| runtime.block_on(plain()).expect("it arrives"));
    });
    for (name, protocol) in [("v5", Protocol::V5), ("base64", Protocol::V4Base64)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| runtime.block_on(channels(protocol)).expect("it arrives"));
        });
    }
    group.finish();
}

fn process() -> io::Result<(Child, pipe::Receiver)> {
    let mut child = Command::new("head")
        .args(["-c", &OUTPUT.to_string(), "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().expect("it is piped");
    Ok((child, pipe::Receiver::from_owned_fd(stdout.into())?))
}

async fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the benchmark")]
async fn plain() -> io::Result<()> {
    let (mut client, mut server) = connected().await?;
    let (mut child, stdout) = process()?;
    let mut stdout = tokio::io::BufReader::with_capacity(CHUNK, stdout);
    let send =
        tokio::task::spawn(
            async move { tokio::io::copy_buf(&mut stdout, &mut server).await.map(drop) },
        );
    let mut buffer = vec![0; CHUNK];
    let mut total = 0;
    loop {
        match client.read(&mut buffer).await? {
            0 => break,
            count => total += count as u64,
        }
    }
    assert_eq!(total, OUTPUT);
    send.await??;
    child.wait().map(drop)
}

#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the benchmark")]
async fn channels(protocol: Protocol) -> io::Result<()> {
    let (client, server) = connected().await?;
    let (mut child, mut stdout) = process()?;
    let send = tokio::task::spawn(async move {
        let sender = Sender::new(server, protocol, Role::Server, Traffic::default());
        let mut outgoing = Outgoing::with_capacity(CHUNK);
        loop {
            let length = stdout.read(outgoing.space()).await?;
            if length == 0 {
                break sender.close(&Close::normal()).await.map_err(io::Error::other);
            }
            sender.send(STDOUT, &mut outgoing, length).await.map_err(io::Error::other)?;
        }
    });
    let reader = CommandReader::new(protocol, Role::Client);
    let mut receiver = Receiver::new(client, reader, &[], Traffic::default());
    let mut total = 0;
    loop {
        match receiver.next().await.map_err(io::Error::other)? {
            CommandEvent::Stdout(payload) => total += payload.len() as u64,
            CommandEvent::Close(_) => break,
            _ => {}
        }
    }
    assert_eq!(total, OUTPUT);
    send.await??;
    child.wait().map(drop)
}

criterion_group!(benches, codec, session);
criterion_main!(benches);
