//! Lets clients in that name the socket's path as `:authority`, as gRPC core does, and Go's with a dialer of its own.
//!
//! A path is no authority, and `h2` below us ends such a stream before anybody sees it (0.4.20; ADR 0050). So in
//! that header, and nowhere else, `/` and `%` become dots on their way in. A dot is as long as either of them, plain and
//! in Huffman's code, so all that HPACK counts stays as the client knows it. What is not understood passes as it is.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tokio_util::io::poll_read_buf;
use tonic::transport::server::{Connected, UdsConnectInfo};

/// What every HTTP/2 connection begins with: `PRI * HTTP/2.0` and so on.
const PREFACE_BYTES: usize = 24;
/// Before the content of each frame.
const HEAD_BYTES: usize = 9;
/// The largest frame that `h2` takes from a client that was told nothing else.
const FRAME_BYTES: usize = 16 << 10;
const HEADERS: u8 = 1;
/// Flags of a frame that has something else before its headers. Clients of gRPC set neither.
const PADDED_OR_PRIORITY: u8 = 0x28;
const AUTHORITY: &[u8] = b":authority";

/// How much is read at once.
const READ_BYTES: usize = 8 << 10;

/// A connection of a client.
pub(super) struct Caller {
    stream: UnixStream,
    incoming: Incoming,
}

/// What came and was not passed on yet.
struct Incoming {
    bytes: BytesMut,
    /// How many of them may be passed on.
    ready: usize,
    /// How many more hold no headers, or have been looked at.
    plain: usize,
}

impl Caller {
    pub(super) fn new(stream: UnixStream) -> Self {
        let incoming = Incoming { bytes: BytesMut::new(), ready: 0, plain: PREFACE_BYTES };
        Self { stream, incoming }
    }
}

impl Incoming {
    /// Looks at what came. Frames of headers go on when they are whole, all else at once.
    fn look(&mut self) {
        while let Some(rest) = self.bytes.get_mut(self.ready..).filter(|rest| !rest.is_empty()) {
            if self.plain > 0 {
                let passed = self.plain.min(rest.len());
                self.plain -= passed;
                self.ready += passed;
                continue;
            }
            let Some(&[a, b, c, kind, flags, ..]) = rest.first_chunk::<HEAD_BYTES>() else {
                return;
            };
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if kind == HEADERS && flags & PADDED_OR_PRIORITY == 0 && length <= FRAME_BYTES {
                let Some(headers) = rest.get_mut(HEAD_BYTES..HEAD_BYTES + length) else { return };
                mend(headers);
            }
            self.plain = HEAD_BYTES + length;
        }
    }
}

impl Connected for Caller {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, incoming } = self.get_mut();
        while incoming.ready == 0 {
            incoming.bytes.reserve(READ_BYTES);
            if ready!(poll_read_buf(Pin::new(stream), context, &mut incoming.bytes))? == 0 {
                // Half a frame is the client's last word.
                incoming.ready = incoming.bytes.len();
                break;
            }
            incoming.look();
        }
        let passed = incoming.ready.min(buffer.remaining());
        buffer.put_slice(incoming.bytes.get(..passed).unwrap_or_default());
        incoming.bytes.advance(passed);
        incoming.ready -= passed;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Mends the authority among `headers`, which are in HPACK (RFC 7541, 6), as far as they can be read.
fn mend(mut headers: &mut [u8]) {
    while let Some(&first) = headers.first() {
        let bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let Some((number, rest)) = take_number(headers, bits) else { return };
        headers = rest;
        // A whole header out of a table, or a change of the table's size.
        if matches!(bits, 7 | 5) {
            continue;
        }
        // 1 is `:authority` in the table that everybody has; after 0 the name is written out.
        let mut is_authority = number == 1;
        if number == 0 {
            let Some((name, rest)) = take_text(headers) else { return };
            is_authority = matches!(&name, Text::Plain(name) if *name == AUTHORITY);
            headers = rest;
        }
        let Some((value, rest)) = take_text(headers) else { return };
        if is_authority {
            value.mend();
        }
        headers = rest;
    }
}

/// Takes a number whose first `bits` bits are in the first byte.
fn take_number(bytes: &mut [u8], bits: u32) -> Option<(usize, &mut [u8])> {
    let (first, mut rest) = bytes.split_first_mut()?;
    let largest = 0xff_u8 >> (8 - bits);
    let mut number = usize::from(*first & largest);
    if *first & largest < largest {
        return Some((number, rest));
    }
    // Three bytes are far more than a frame can hold of anything.
    for shift in [0, 7, 14] {
        let (next, after) = rest.split_first_mut()?;
        rest = after;
        number += usize::from(*next & 0x7f) << shift;
        if *next < 0x80 {
            return Some((number, rest));
        }
    }
    None
}

/// A name or a value.
enum Text<'a> {
    Plain(&'a mut [u8]),
    Huffman(&'a mut [u8]),
}

fn take_text(bytes: &mut [u8]) -> Option<(Text<'_>, &mut [u8])> {
    let is_coded = bytes.first()? & 0x80 != 0;
    let (length, rest) = take_number(bytes, 7)?;
    let (text, rest) = rest.split_at_mut_checked(length)?;
    Some((if is_coded { Text::Huffman(text) } else { Text::Plain(text) }, rest))
}

impl Text<'_> {
    fn mend(self) {
        match self {
            Self::Plain(text) => {
                text.iter_mut().filter(|byte| b"/%".contains(byte)).for_each(|byte| *byte = b'.');
            }
            Self::Huffman(code) => mend_huffman(code),
        }
    }
}

/// Replaces `/` and `%` by the dot, whose code has six bits like theirs (RFC 7541, appendix B).
fn mend_huffman(code: &mut [u8]) {
    const SLASH: u8 = 0b01_1000;
    const PERCENT: u8 = 0b01_0101;
    const DOT: u8 = 0b01_0111;
    let mut at = 0;
    while at < code.len() * 8 {
        let next = bits_at(code, at);
        // The codes are sorted, short ones first; longer ones are of characters that no path of a socket has.
        let length = match next {
            0..0x50 => 5,
            0x50..0xb8 => 6,
            0xb8..0xf8 => 7,
            0xf8..0xfe => 8,
            _ => return,
        };
        if length == 6 && [SLASH, PERCENT].contains(&(next >> 2)) {
            flip_bits_at(code, at, ((next >> 2) ^ DOT) << 2);
        }
        at += length;
    }
}

/// The eight bits from bit `at` on. What follows the end are ones, as in the padding of the code.
fn bits_at(code: &[u8], at: usize) -> u8 {
    let byte = |number| code.get(number).copied().unwrap_or(0xff);
    let both = u16::from_be_bytes([byte(at / 8), byte(at / 8 + 1)]);
    let [bits, _] = (both << (at % 8)).to_be_bytes();
    bits
}

/// Changes the bits from bit `at` on that are set in `bits`.
fn flip_bits_at(code: &mut [u8], at: usize, bits: u8) {
    let both = (u16::from(bits) << 8) >> (at % 8);
    for (byte, bits) in code.iter_mut().skip(at / 8).zip(both.to_be_bytes()) {
        *byte ^= bits;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    /// `/run/cri.sock` in Huffman's code, and `.run.cri.sock`.
    const SLASHES: [u8; 10] = [0x62, 0xcb, 0x6a, 0x60, 0x96, 0x19, 0x74, 0x1c, 0x9d, 0x7f];
    const DOTS: [u8; 10] = [0x5e, 0xcb, 0x6a, 0x5c, 0x96, 0x19, 0x74, 0x1c, 0x9d, 0x7f];

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    }

    /// `:method POST`, `:scheme http`, `:path /v%2F`, the authority, and a header with a name of its own.
    fn block(authority: &str) -> Vec<u8> {
        let path = [&[0x44][..], &text("/v%2F")].concat();
        let own = [&[0x40][..], &text("te/%"), &text("a/b%2F")].concat();
        [&[0x83, 0x86][..], &path, &[0x41], &text(authority), &own].concat()
    }

    fn headers(block: &[u8]) -> Vec<u8> {
        frame(HEADERS, 4, block)
    }

    fn passed(sent: &[u8], piece: usize) -> Vec<u8> {
        let mut incoming = Incoming { bytes: BytesMut::new(), ready: 0, plain: PREFACE_BYTES };
        let mut passed = Vec::new();
        for piece in sent.chunks(piece) {
            incoming.bytes.extend_from_slice(piece);
            incoming.look();
            passed.extend_from_slice(&incoming.bytes.split_to(incoming.ready));
            incoming.ready = 0;
        }
        passed.extend_from_slice(&incoming.bytes);
        passed
    }

    #[track_caller]
    fn check(sent: &[Vec<u8>], expected: &[Vec<u8>]) {
        let connection = |frames: &[Vec<u8>]| [PREFACE, &frames.concat()].concat();
        let (sent, expected) = (connection(sent), connection(expected));
        for piece in [1, 2, 3, 7, sent.len()] {
            assert_eq!(passed(&sent, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_path_becomes_an_authority_and_nothing_else_changes() {
        let data = frame(0, 1, b"\x41\x05a/b%c");
        let settings = frame(4, 0, b"\x41\x05a/b%c");
        let with = |one: &str, other: &str| {
            let (one, other) = (headers(&block(one)), headers(&block(other)));
            [settings.clone(), one, data.clone(), other]
        };
        check(
            &with("%2Frun%2Fcri.sock", "/run/cri.sock"),
            &with(".2Frun.2Fcri.sock", ".run.cri.sock"),
        );
        check(&with("[::1]:80", "localhost"), &with("[::1]:80", "localhost"));
    }

    /// As gRPC core sends it.
    #[test]
    fn a_name_that_is_written_out_counts_too() {
        let named = |name: &str, value: &str| {
            headers(&[&[0x40][..], &text(name), &text(value), &[0x83]].concat())
        };
        check(&[named(":authority", "tmp%2Fx")], &[named(":authority", "tmp.2Fx")]);
        for other in [":authorit", ":authorityx", ":path", "x:authority", ""] {
            check(&[named(other, "tmp%2Fx")], &[named(other, "tmp%2Fx")]);
        }
    }

    /// As Go sends it.
    #[test]
    fn a_path_in_huffmans_code_counts_too() {
        let coded = |first: u8, code: &[u8]| {
            let length = 0x80 | u8::try_from(code.len()).unwrap();
            headers(&[&[0x83, first, length], code, b"\x44\x01/"].concat())
        };
        check(&[coded(0x41, &SLASHES)], &[coded(0x41, &DOTS)]);
        check(&[coded(0x44, &SLASHES)], &[coded(0x44, &SLASHES)]);
        // `www.example.com`, from appendix C.4.1 of RFC 7541.
        let good = coded(0x41, b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        check(std::slice::from_ref(&good), std::slice::from_ref(&good));
    }

    #[test]
    fn a_long_path_is_mended_to_its_end() {
        let long = |slash: &str| {
            let path = format!("{slash}{}{slash}", "x".repeat(298));
            headers(&[&[0x41, 0x7f, 0xad, 0x01][..], path.as_bytes(), b"\x44\x01/"].concat())
        };
        check(&[long("/")], &[long(".")]);
    }

    #[test]
    fn what_no_client_of_grpc_sends_passes_as_it_is() {
        let padded = frame(HEADERS, 0x2c, &[&[0; 6][..], &block("/run")].concat());
        let large = headers(&[block("/run"), vec![0; FRAME_BYTES]].concat());
        let endless = headers(&[0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0x01, b'/']);
        let frames = [padded, large, endless];
        check(&frames, &frames);
        let other = b"GET / HTTP/1.1\r\n\r\n\x41\x03///".repeat(3);
        assert_eq!(passed(&other, 5), other);
    }

    proptest! {
        #[test]
        fn whatever_comes_only_characters_become_dots(
            blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..9),
            rest in prop::collection::vec(any::<u8>(), 0..60),
            piece in 1_usize..50,
        ) {
            let frames: Vec<_> = blocks.iter().map(|block| headers(block)).collect();
            let sent = [PREFACE, &frames.concat(), &rest].concat();
            let found = passed(&sent, piece);
            prop_assert_eq!(found.len(), sent.len());
            prop_assert_eq!(&found, &passed(&sent, sent.len()));
        }
    }
}
