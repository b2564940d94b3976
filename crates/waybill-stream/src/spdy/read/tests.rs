//! Frames of a session, however they are cut, and frames that break the rules.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{super::write, *};

/// As a client opens a stream, without headers.
fn syn_stream(stream: StreamId, flags: u8, is_first: bool) -> Vec<u8> {
    let reply = write::reply(stream, is_first);
    // A reply has the same body, but for six bytes after the stream's name.
    let body = [&reply[8..12], &[0; 6], &reply[12..]].concat();
    frame(kind::SYN_STREAM, flags, &body)
}

fn frame(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let [high, low] = kind.to_be_bytes();
    [&[0x80, 3, high, low, flags], &length[1..], body].concat()
}

fn data(stream: StreamId, bytes: &[u8], last: bool) -> Vec<u8> {
    [&write::data_header(stream, bytes.len(), last), bytes].concat()
}

fn read(wire: &[u8], cut: usize) -> Result<Vec<SpdyEvent>, SpdyError> {
    let mut reader = SpdyReader::new();
    let (mut input, mut found) = (BytesMut::new(), Vec::new());
    for part in wire.chunks(cut) {
        input.extend_from_slice(part);
        while let Some(event) = reader.next(&mut input)? {
            // Parts of one frame are joined, for they depend on the cuts.
            if let (
                SpdyEvent::Data { stream, payload },
                Some(SpdyEvent::Data { stream: before, payload: joined }),
            ) = (&event, found.last_mut())
                && stream == before
            {
                *joined = Bytes::from([&joined[..], &payload[..]].concat()).into();
                continue;
            }
            found.push(event);
        }
    }
    Ok(found)
}

fn opened(stream: StreamId) -> SpdyEvent {
    SpdyEvent::Opened { stream, headers: HeaderMap::new() }
}

fn bytes(stream: StreamId, bytes: &'static [u8]) -> SpdyEvent {
    SpdyEvent::Data { stream, payload: Bytes::from_static(bytes).into() }
}

fn session() -> (Vec<u8>, Vec<SpdyEvent>) {
    let wire = [
        syn_stream(1, 0, true),
        syn_stream(3, FIN, false),
        data(1, b"hello", false),
        data(1, b"", false),
        // Settings and a window mean nothing to us.
        frame(4, 0, &[0, 0, 0, 0]),
        frame(9, 0, &[0; 8]),
        write::ping(7),
        data(1, b"bye", true),
        write::reset(3),
        write::go_away(3),
    ];
    let events = vec![
        opened(1),
        opened(3),
        SpdyEvent::Finished(3),
        bytes(1, b"hello"),
        SpdyEvent::Ping(7),
        bytes(1, b"bye"),
        SpdyEvent::Finished(1),
        SpdyEvent::Reset(3),
        SpdyEvent::GoAway,
    ];
    (wire.concat(), events)
}

#[test]
fn a_session_is_understood() {
    let (wire, events) = session();
    assert_eq!(read(&wire, wire.len()), Ok(events));
}

/// The headers of a stream as clients send them, compressed with zlib and the dictionary.
#[test]
fn headers_name_a_stream() {
    let block = [
        0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0xa6, 0x23, 0x46, 0x70, 0x3a, 0x2b, 0x29, 0x4a,
        0x4d, 0xcc, 0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0x06, 0x00, 0x00, 0x00, 0xff, 0xff,
    ];
    let body = [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0], &block[..]].concat();
    let Ok(found) = read(&frame(kind::SYN_STREAM, 0, &body), 1) else { panic!("good headers") };
    let name = HeaderName::from_static("streamtype");
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_static("error"))]);
    assert_eq!(found, [SpdyEvent::Opened { stream: 1, headers }]);
}

#[test]
fn the_rules_are_kept() {
    let check = |wire: &[u8], expected| assert_eq!(read(wire, wire.len()), Err(expected));
    check(&[0x80, 2, 0, 1, 0, 0, 0, 0], SpdyError::Version(2));
    check(&[0x80, 3, 0, 1, 0, 1, 0, 1], SpdyError::TooLong);
    check(&frame(kind::PING, 0, &[0; 3]), SpdyError::TooShort);
    check(&frame(kind::SYN_STREAM, 0, &[0; 9]), SpdyError::TooShort);
    check(&frame(kind::SYN_STREAM, 0, &[0; 20]), SpdyError::Headers);
    check(&syn_stream(2, 0, true), SpdyError::StreamId);
    let twice = [syn_stream(1, 0, true), syn_stream(1, 0, false)].concat();
    check(&twice, SpdyError::StreamId);
}

proptest! {
    #[test]
    fn cuts_do_not_matter(cut in 1_usize..60) {
        let (wire, events) = session();
        prop_assert_eq!(read(&wire, cut), Ok(events));
    }

    #[test]
    fn garbage_is_no_panic(wire in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&wire, 7);
    }
}
