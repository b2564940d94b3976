//! A connection inside the messages of a WebSocket.

use std::{io, pin::pin, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::Mutex,
    time::timeout,
};
use waybill_stream::websocket::{
    Close, Opcode, Role,
    read::{Frame, FrameReader},
    write::{HEADER_BYTES, control, header},
};

use super::{super::session::Socket, CHUNK};

/// How long a client may take to close a connection after the session in it has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// The connection inside `socket`, and what carries it for as long as it is polled.
pub(super) fn open(socket: Socket) -> (impl Future<Output = ()> + Send, DuplexStream) {
    let (outside, inside) = duplex(CHUNK);
    (carry(socket, outside), inside)
}

async fn carry(socket: Socket, inside: DuplexStream) {
    let (read, write) = socket.stream.into_split();
    let (from_inside, mut to_inside) = split(inside);
    let write = Mutex::new(write);
    let mut unwrapping = pin!(async {
        let _ = unwrap((read, BytesMut::from(&*socket.read)), &mut to_inside, &write).await;
        let _ = to_inside.shutdown().await;
    });
    let mut wrapping = pin!(wrap(from_inside, &write));
    tokio::select! {
        // The session hears that the client is gone, and ends too.
        () = &mut unwrapping => drop(wrapping.await),
        _ = &mut wrapping => drop(timeout(FAREWELL, unwrapping).await),
    }
}

async fn unwrap(
    (mut read, mut input): (OwnedReadHalf, BytesMut),
    inside: &mut WriteHalf<DuplexStream>,
    write: &Mutex<OwnedWriteHalf>,
) -> io::Result<()> {
    let mut frames = FrameReader::new(Role::Server);
    loop {
        match frames.next(&mut input) {
            Ok(Some(Frame::Piece(piece))) => inside.write_all(&piece.bytes).await?,
            Ok(Some(Frame::Ping(payload))) => {
                let pong = control(Role::Server, Opcode::Pong, &payload);
                write.lock().await.write_all(&pong).await?;
            }
            Ok(Some(Frame::Pong)) => {}
            Ok(Some(Frame::Close(_))) | Err(_) => return Ok(()),
            Ok(None) => {
                input.reserve(CHUNK);
                if read.read_buf(&mut input).await? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

async fn wrap(mut inside: ReadHalf<DuplexStream>, write: &Mutex<OwnedWriteHalf>) -> io::Result<()> {
    let mut buffer = vec![0; HEADER_BYTES + CHUNK];
    loop {
        let space = buffer.get_mut(HEADER_BYTES..).unwrap_or_default();
        let length = inside.read(space).await?;
        if length == 0 {
            break;
        }
        let (header, start) = header(Opcode::Binary, length, None);
        if let Some(place) = buffer.get_mut(..HEADER_BYTES) {
            place.copy_from_slice(&header);
        }
        let frame = buffer.get(start..HEADER_BYTES + length).unwrap_or_default();
        write.lock().await.write_all(frame).await?;
    }
    let close = control(Role::Server, Opcode::Close, &Close::normal().to_payload());
    let mut write = write.lock().await;
    write.write_all(&close).await?;
    write.shutdown().await
}
