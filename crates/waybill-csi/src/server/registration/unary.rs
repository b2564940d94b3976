//! As much of HTTP/2 as unary calls of gRPC need, without a look at their headers.
//!
//! Kubelets dial the sockets by which plugins register with the path as `:authority`, in which grpc writes `%2F` for each
//! slash. The HTTP libraries of this house refuse such a request before anybody sees it (`http::uri::Authority` takes no
//! percent sign), so those sockets are served by hand. Frames are those of RFC 9113.

use std::{collections::HashMap, io};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// Flags; the first two share a bit.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// What everybody may send who has not been allowed more.
const FRAME_BYTES: usize = 16 << 10;

/// A message is a reason of a kubelet at most.
const BODY_BYTES: usize = 32 << 10;

/// Calls that have begun and not ended.
const CALLS: usize = 16;

/// `:status: 200` by its number, `content-type` by its number and in full.
const BEGIN: &[u8] = b"\x88\x0f\x10\x10application/grpc";

/// `grpc-status: 0`.
const END: &[u8] = b"\x00\x0bgrpc-status\x010";

/// A frame that came.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Answers every call on a connection with what `answer` makes of its message, until the other side ends it.
pub(super) async fn answer_calls<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut S,
    answer: impl Fn(&[u8]) -> Vec<u8>,
) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    connection.read_exact(&mut preface).await?;
    if preface != *PREFACE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    connection.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    while let Some(Frame { kind, flags, stream, payload }) = read_frame(connection).await? {
        match kind {
            DATA | HEADERS => {
                let body = bodies.entry(stream).or_default();
                if kind == DATA {
                    body.extend_from_slice(unpadded(flags, &payload)?);
                }
                if body.len() > BODY_BYTES || bodies.len() > CALLS {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if flags & END_STREAM != 0 {
                    let body = bodies.remove(&stream).unwrap_or_default();
                    connection.write_all(&response(stream, &answer(message(&body)))).await?;
                }
            }
            RST_STREAM => drop(bodies.remove(&stream)),
            SETTINGS if flags & ACK == 0 => {
                connection.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
            }
            PING if flags & ACK == 0 => {
                connection.write_all(&frame(PING, ACK, 0, &payload)).await?;
            }
            GOAWAY => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

/// The next frame; nothing at the end of the connection.
async fn read_frame<S: AsyncRead + Unpin>(connection: &mut S) -> io::Result<Option<Frame>> {
    let mut head = [0; 9];
    match connection.read_exact(&mut head).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
    let length = u32::from_be_bytes([0, l0, l1, l2]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > FRAME_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; length];
    connection.read_exact(&mut payload).await?;
    // The first bit is reserved.
    let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
    Ok(Some(Frame { kind, flags, stream, payload }))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let [_, length @ ..] = length;
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Headers, one message, and trailers that say that all went well.
fn response(stream: u32, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let message = [&[0], &length[..], message].concat();
    let begin = frame(HEADERS, END_HEADERS, stream, BEGIN);
    let end = frame(HEADERS, END_HEADERS | END_STREAM, stream, END);
    [begin, frame(DATA, 0, stream, &message), end].concat()
}

fn unpadded(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let (padding, rest) = payload.split_first().ok_or_else(invalid)?;
    let length = rest.len().checked_sub(usize::from(*padding)).ok_or_else(invalid)?;
    rest.get(..length).ok_or_else(invalid)
}

/// The message in a body: five bytes stand before it. Nobody compresses here.
fn message(body: &[u8]) -> &[u8] {
    body.get(5..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn converse(sent: &[u8]) -> Vec<u8> {
        let (mut client, mut server) = tokio::io::duplex(64 << 10);
        client.write_all(sent).await.unwrap();
        client.shutdown().await.unwrap();
        let answered = answer_calls(&mut server, |message| [b"heard ", message].concat()).await;
        answered.unwrap();
        drop(server);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        told
    }

    #[tokio::test]
    async fn a_call_is_answered_whatever_its_headers_say() {
        let call = [
            &PREFACE[..],
            &frame(SETTINGS, 0, 0, &[]),
            // No compression of headers that anybody could understand.
            &frame(HEADERS, END_HEADERS, 1, b"\xff\xff%2Frun"),
            &frame(PING, 0, 0, b"12345678"),
            &frame(DATA, PADDED, 1, b"\x02\0\0\0\0\x02h..".as_slice()),
            &frame(DATA, END_STREAM, 1, b"i"),
            &frame(GOAWAY, 0, 0, &[0; 8]),
        ];
        let expected = [
            frame(SETTINGS, 0, 0, &[]),
            frame(SETTINGS, ACK, 0, &[]),
            frame(PING, ACK, 0, b"12345678"),
            response(1, b"heard hi"),
        ];
        assert_eq!(converse(&call.concat()).await, expected.concat());
    }

    #[tokio::test]
    async fn what_is_no_http_2_or_too_much_ends_the_connection() {
        let large = frame(DATA, 0, 1, &vec![0; FRAME_BYTES + 1]);
        let many: Vec<u8> =
            (0..=17).flat_map(|call| frame(HEADERS, 0, call * 2 + 1, &[])).collect();
        let padded = frame(DATA, PADDED, 1, b"\x09a");
        for sent in [large, many, padded, vec![frame(DATA, 0, 1, &[0; FRAME_BYTES]); 3].concat()] {
            let sent = [&PREFACE[..], &sent].concat();
            let mut connection = tokio_test_stream(&sent);
            assert!(answer_calls(&mut connection, <[u8]>::to_vec).await.is_err());
        }
        assert!(
            answer_calls(
                &mut tokio_test_stream(b"GET / HTTP/1.1\r\n\r\nmore of it"),
                <[u8]>::to_vec
            )
            .await
            .is_err()
        );
    }

    /// A connection on which all of this has come.
    fn tokio_test_stream(sent: &[u8]) -> impl AsyncRead + AsyncWrite + Unpin {
        tokio::io::join(io::Cursor::new(sent.to_vec()), tokio::io::sink())
    }
}
