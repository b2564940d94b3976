//! The examples of the standard, its rules, and frames however they are cut.

use proptest::prelude::*;

use super::{super::write, *};

fn read_all(role: Role, input: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let mut reader = FrameReader::new(role);
    let mut input = BytesMut::from(input);
    std::iter::from_fn(|| reader.next(&mut input).transpose()).collect()
}

/// For our end as client, so that frames need no mask.
#[track_caller]
fn check(input: &[u8], expected: Result<&[Frame], FrameError>) {
    assert_eq!(read_all(Role::Client, input), expected.map(<[Frame]>::to_vec));
}

fn piece(bytes: &'static [u8], first: bool, last: bool) -> Frame {
    Frame::Piece(Piece { bytes: Bytes::from_static(bytes), first, last })
}

/// RFC 6455, section 5.7.
#[test]
fn the_examples_of_the_standard() {
    check(b"\x81\x05Hello", Ok(&[piece(b"Hello", true, true)]));
    check(b"\x01\x03Hel\x80\x02lo", Ok(&[piece(b"Hel", true, false), piece(b"lo", false, true)]));
    check(b"\x89\x05Hello", Ok(&[Frame::Ping(Bytes::from_static(b"Hello"))]));
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(read_all(Role::Server, masked), Ok(vec![piece(b"Hello", true, true)]));
    let masked = b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(read_all(Role::Server, masked), Ok(vec![Frame::Pong]));
}

#[test]
fn control_frames_may_stand_inside_a_message() {
    check(
        b"\x02\x01a\x89\x00\x80\x01b",
        Ok(&[piece(b"a", true, false), Frame::Ping(Bytes::new()), piece(b"b", false, true)]),
    );
}

#[test]
fn empty_messages_and_frames_are_seen() {
    check(b"\x82\x00", Ok(&[piece(b"", true, true)]));
    check(b"\x02\x00\x80\x00", Ok(&[piece(b"", true, false), piece(b"", false, true)]));
}

#[test]
fn the_rules_are_kept() {
    check(b"\xc2\x00", Err(FrameError::ReservedBits));
    check(b"\x83\x00", Err(FrameError::Opcode(3)));
    check(b"\x8b\x00", Err(FrameError::Opcode(11)));
    check(b"\x82\x80\0\0\0\0", Err(FrameError::Mask));
    assert_eq!(read_all(Role::Server, b"\x82\x00"), Err(FrameError::Mask));
    check(b"\x82\x7e\x00\x7d", Err(FrameError::Length));
    check(b"\x82\x7f\0\0\0\0\0\0\xff\xff", Err(FrameError::Length));
    check(b"\x82\x7f\x80\0\0\0\0\0\0\0", Err(FrameError::Length));
    check(b"\x89\x7e\x00\xff", Err(FrameError::Control));
    check(b"\x09\x00", Err(FrameError::Control));
    check(b"\x80\x00", Err(FrameError::Order));
    check(b"\x02\x00\x02\x00", Err(FrameError::Order));
    check(b"\x88\x01x", Err(FrameError::Close));
    check(b"\x88\x02\x03\xed", Err(FrameError::Close));
    check(b"\x88\x03\x03\xe8\xff", Err(FrameError::Close));
}

#[test]
fn a_close_has_a_code_and_a_reason_or_nothing() {
    let close = Close { code: Close::NORMAL, reason: "done".to_owned() };
    let frame = write::control(Role::Client, Opcode::Close, &close.to_payload());
    assert_eq!(read_all(Role::Server, &frame), Ok(vec![Frame::Close(Some(close))]));
    check(b"\x88\x00", Ok(&[Frame::Close(None)]));
}

#[test]
fn a_frame_of_any_length_takes_no_memory_of_its_own() {
    let mut reader = FrameReader::new(Role::Client);
    let mut input = BytesMut::from(&b"\x82\x7f\x00\x00\x00\xff\xff\xff\xff\xffabc"[..]);
    assert_eq!(reader.next(&mut input), Ok(Some(piece(b"abc", true, false))));
    assert_eq!(reader.next(&mut input), Ok(None));
    assert!(!reader.is_between_messages());
}

proptest! {
    /// However the connection cuts the bytes, the messages are the same.
    #[test]
    fn what_is_written_is_read(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
        cuts in prop::collection::vec(1_usize..200, 1..20),
        is_client in any::<bool>(),
    ) {
        let (ours, theirs) = if is_client {
            (Role::Server, Role::Client)
        } else {
            (Role::Client, Role::Server)
        };
        let mut wire = Vec::new();
        for message in &messages {
            let mut mask = write::mask_for(theirs);
            let (header, start) = write::header(Opcode::Binary, message.len(), mask);
            wire.extend_from_slice(&header[start..]);
            let mut payload = message.clone();
            if let Some(mask) = &mut mask {
                mask.apply(&mut payload);
            }
            wire.extend_from_slice(&payload);
        }
        let mut reader = FrameReader::new(ours);
        let (mut found, mut current, mut input) = (Vec::new(), Vec::new(), BytesMut::new());
        let mut rest = &wire[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            input.extend_from_slice(now);
            while let Some(frame) = reader.next(&mut input).unwrap() {
                let Frame::Piece(piece) = frame else { panic!("only messages were sent") };
                prop_assert!(!piece.first || current.is_empty());
                current.extend_from_slice(&piece.bytes);
                if piece.last {
                    found.push(std::mem::take(&mut current));
                }
            }
            if later.is_empty() {
                break;
            }
            rest = later;
        }
        prop_assert_eq!(found, messages);
        prop_assert!(reader.is_between_messages());
    }
}
