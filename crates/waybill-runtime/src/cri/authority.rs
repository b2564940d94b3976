//! Lets clients in that name the socket's path as `:authority`, as gRPC core does.
//!
//! A path is no authority, and HTTP/2 below us ends such a stream before anybody sees it. So what a client
//! sends is looked through on its way in, and in the value of `:authority` every character that may not be
//! there becomes a dot. Nothing changes its length: whatever else reads the bytes finds them as they were.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tonic::transport::server::{Connected, UdsConnectInfo};

/// What every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

const AUTHORITY: &[u8] = b":authority";

/// Of that in the static table of HPACK.
const AUTHORITY_NUMBER: u64 = 1;

/// A connection of a client.
pub(super) struct Caller {
    stream: UnixStream,
    mender: Mender,
}

impl Caller {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, mender: Mender::default() }
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
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if let Some(new) = buffer.filled_mut().get_mut(before..) {
            self.mender.mend(new);
        }
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

/// Follows the bytes of a connection, which come in pieces of any size.
#[derive(Debug, Default)]
struct Mender {
    place: Place,
    /// A block of headers may go on in the next frame.
    field: Field,
}

/// Where in a frame the next byte is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// So many bytes of it have come.
    Preface(usize),
    Head {
        bytes: [u8; 9],
        filled: usize,
    },
    /// The byte that says how much padding there is.
    Padding {
        priority: bool,
        left: usize,
    },
    /// Nothing to look at, `skip` bytes of it, and then headers.
    Skip {
        skip: usize,
        block: usize,
        padding: usize,
    },
    Block {
        left: usize,
        padding: usize,
    },
    /// This is not HTTP/2.
    Strange,
}

impl Default for Place {
    fn default() -> Self {
        Self::Preface(0)
    }
}

/// Where in a header the next byte is.
#[derive(Clone, Copy, Debug, Default)]
enum Field {
    #[default]
    Start,
    /// A number that goes on; what it counts comes after it.
    Number {
        value: u64,
        shift: u32,
        then: Then,
    },
    /// The first byte of a string's length.
    Length(Text),
    Text {
        left: u64,
        text: Text,
    },
}

/// What a number was.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// A whole header out of the table, or a change of the table.
    Nothing,
    /// The name of a header whose value follows.
    Name,
    Length(Text),
}

/// A string in a header.
#[derive(Clone, Copy, Debug)]
enum Text {
    /// So many of its bytes are those of `:authority`; `None` if it is another name.
    Name(Option<usize>),
    Authority,
    OtherValue,
}

impl Mender {
    /// Looks through the bytes that came next.
    fn mend(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = self.step(bytes);
            bytes = bytes.get_mut(taken..).unwrap_or_default();
        }
    }

    /// Takes at least one byte, and returns how many.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        let first = bytes.first().copied().unwrap_or_default();
        match self.place {
            Place::Strange => bytes.len(),
            Place::Preface(at) => {
                self.place = match PREFACE.get(at) {
                    Some(expected) if *expected != first => Place::Strange,
                    _ if at + 1 == PREFACE.len() => Place::frame(),
                    _ => Place::Preface(at + 1),
                };
                1
            }
            Place::Head { bytes: mut head, filled } => {
                if let Some(byte) = head.get_mut(filled) {
                    *byte = first;
                }
                self.place = match filled + 1 {
                    9 => Place::after(head),
                    filled => Place::Head { bytes: head, filled },
                };
                1
            }
            Place::Padding { priority, left } => {
                let padding = usize::from(first);
                self.place = Place::headers(priority, left.saturating_sub(1), padding);
                1
            }
            Place::Skip { skip, block, padding } => {
                let taken = skip.min(bytes.len());
                self.place = match skip - taken {
                    0 => Place::block(block, padding),
                    skip => Place::Skip { skip, block, padding },
                };
                taken
            }
            Place::Block { left, padding } => {
                let taken = left.min(bytes.len());
                for byte in bytes.iter_mut().take(taken) {
                    self.field = self.field.next(byte);
                }
                self.place = Place::block(left - taken, padding);
                taken
            }
        }
    }
}

impl Place {
    const fn frame() -> Self {
        Self::Head { bytes: [0; 9], filled: 0 }
    }

    /// What follows the head of a frame.
    fn after(head: [u8; 9]) -> Self {
        let [a, b, c, kind, flags, ..] = head;
        let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or_default();
        match kind {
            HEADERS if flags & PADDED != 0 && length > 0 => {
                Self::Padding { priority: flags & PRIORITY != 0, left: length }
            }
            HEADERS => Self::headers(flags & PRIORITY != 0, length, 0),
            CONTINUATION => Self::block(length, 0),
            _ => Self::skip(length, 0, 0),
        }
    }

    fn headers(priority: bool, left: usize, padding: usize) -> Self {
        let skip = if priority { PRIORITY_BYTES.min(left) } else { 0 };
        let padding = padding.min(left - skip);
        Self::skip(skip, left - skip - padding, padding)
    }

    fn skip(skip: usize, block: usize, padding: usize) -> Self {
        if skip == 0 { Self::block(block, padding) } else { Self::Skip { skip, block, padding } }
    }

    fn block(left: usize, padding: usize) -> Self {
        match (left, padding) {
            (0, 0) => Self::frame(),
            (0, padding) => Self::Skip { skip: padding, block: 0, padding: 0 },
            (left, padding) => Self::Block { left, padding },
        }
    }
}

impl Field {
    /// What the byte after this one is; the byte itself is mended.
    fn next(self, byte: &mut u8) -> Self {
        match self {
            Self::Start => match *byte {
                first if first & 0x80 != 0 => number(first, 7, Then::Nothing),
                first if first & 0x40 != 0 => number(first, 6, Then::Name),
                first if first & 0x20 != 0 => number(first, 5, Then::Nothing),
                first => number(first, 4, Then::Name),
            },
            Self::Number { value, shift, then } => {
                let more = u64::from(*byte & 0x7f).checked_shl(shift).unwrap_or(u64::MAX);
                let value = value.saturating_add(more);
                if *byte & 0x80 != 0 {
                    return Self::Number { value, shift: shift.saturating_add(7), then };
                }
                after_number(value, then)
            }
            Self::Length(text) => {
                // Text that is compressed is not read, and so not changed.
                let compressed = *byte & 0x80 != 0;
                let text = match text {
                    Text::Name(_) if compressed => Text::Name(None),
                    Text::Authority if compressed => Text::OtherValue,
                    text => text,
                };
                number(*byte, 7, Then::Length(text))
            }
            Self::Text { left, text } => {
                let text = match text {
                    Text::Name(Some(at)) if AUTHORITY.get(at) == Some(byte) => {
                        Text::Name(Some(at + 1))
                    }
                    Text::Name(_) => Text::Name(None),
                    Text::Authority | Text::OtherValue => text,
                };
                if matches!(text, Text::Authority) && !may_stand(*byte) {
                    *byte = b'.';
                }
                text.with(left - 1)
            }
        }
    }
}

impl Text {
    fn value(is_authority: bool) -> Self {
        if is_authority { Self::Authority } else { Self::OtherValue }
    }

    /// When `left` bytes of it are to come.
    fn with(self, left: u64) -> Field {
        match (left, self) {
            (0, Self::Name(at)) => Field::Length(Self::value(at == Some(AUTHORITY.len()))),
            (0, Self::Authority | Self::OtherValue) => Field::Start,
            (left, text) => Field::Text { left, text },
        }
    }
}

/// A number whose first `bits` bits are in `first`.
fn number(first: u8, bits: u32, then: Then) -> Field {
    let largest = 0xff_u8 >> (8 - bits);
    let value = u64::from(first & largest);
    if first & largest == largest {
        return Field::Number { value, shift: 0, then };
    }
    after_number(value, then)
}

fn after_number(value: u64, then: Then) -> Field {
    match then {
        Then::Nothing => Field::Start,
        // A name that is in no table comes before the value.
        Then::Name if value == 0 => Field::Length(Text::Name(Some(0))),
        Then::Name => Field::Length(Text::value(value == AUTHORITY_NUMBER)),
        Then::Length(text) => text.with(value),
    }
}

/// In a host name or address, with a port.
fn may_stand(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[a, b, c, kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn literal(first: u8, value: &str) -> Vec<u8> {
        [&[first, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
    }

    /// `:method POST`, `:scheme http`, `:path /v`, the authority, and a header with a name of its own.
    fn block(authority: &str) -> Vec<u8> {
        let own = [&[0x40, 4][..], b"te/%", &[6], b"a/b%2F"].concat();
        [&[0x83, 0x86][..], &literal(0x44, "/v%2F"), &literal(0x41, authority), &own].concat()
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE, &frames.concat()].concat()
    }

    fn mended(bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut bytes, mut mender) = (bytes.to_vec(), Mender::default());
        bytes.chunks_mut(piece).for_each(|piece| mender.mend(piece));
        bytes
    }

    #[track_caller]
    fn check(sent: &[Vec<u8>], expected: &[Vec<u8>]) {
        let (sent, expected) = (connection(sent), connection(expected));
        for piece in [1, 2, 3, 7, sent.len()] {
            assert_eq!(mended(&sent, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_path_becomes_an_authority_and_nothing_else_changes() {
        let data = frame(0, 1, b"\x41\x05a/b%c");
        let settings = frame(4, 0, b"\x41\x05a/b%c");
        check(
            &[
                settings.clone(),
                frame(HEADERS, 4, &block("%2Frun%2Fcri.sock")),
                data.clone(),
                frame(HEADERS, 4, &block("/run/cri.sock")),
            ],
            &[
                settings,
                frame(HEADERS, 4, &block(".2Frun.2Fcri.sock")),
                data,
                frame(HEADERS, 4, &block(".run.cri.sock")),
            ],
        );
        let good = frame(HEADERS, 4, &block("[::1]:80"));
        check(std::slice::from_ref(&good), std::slice::from_ref(&good));
    }

    /// As gRPC core sends it.
    #[test]
    fn a_name_that_is_written_out_counts_too() {
        let named = |name: &str, value: &str| {
            let text =
                |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            frame(HEADERS, 4, &[&[0x40][..], &text(name), &text(value), &[0x83]].concat())
        };
        check(&[named(":authority", "tmp%2Fx")], &[named(":authority", "tmp.2Fx")]);
        for other in [":authorit", ":authorityx", ":path", "x:authority", ""] {
            check(&[named(other, "tmp%2Fx")], &[named(other, "tmp%2Fx")]);
        }
    }

    #[test]
    fn headers_may_be_padded_have_a_priority_and_go_on() {
        let parts = |authority: &str| {
            let whole = block(authority);
            let (one, other) = whole.split_at(12);
            let head = [&[3][..], &[0; 5], one, b"/%/"].concat();
            [frame(HEADERS, PADDED | PRIORITY, &head), frame(CONTINUATION, 4, other)]
        };
        check(&parts("/run/cri.sock"), &parts(".run.cri.sock"));
    }

    #[test]
    fn a_long_path_is_mended_to_its_end() {
        let long = |slash: &str| {
            let path = format!("{slash}{}", "x".repeat(299));
            let length = [0x7f, 0xad, 0x01];
            frame(
                HEADERS,
                4,
                &[&[0x41][..], &length, path.as_bytes(), &literal(0x44, "/")].concat(),
            )
        };
        check(&[long("/")], &[long(".")]);
    }

    /// Huffman's code is not ours to change; 0x85 says that five bytes of it follow.
    #[test]
    fn what_is_compressed_is_left_alone() {
        let compressed = frame(HEADERS, 4, b"\x41\x85/////\x44\x01/");
        check(std::slice::from_ref(&compressed), std::slice::from_ref(&compressed));
    }

    #[test]
    fn what_is_not_http_2_passes() {
        let bytes = b"GET / HTTP/1.1\r\n\r\n\x41\x03///".repeat(3);
        assert_eq!(mended(&bytes, 5), bytes);
    }

    proptest! {
        #[test]
        fn whatever_comes_only_characters_become_dots(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            with_preface in any::<bool>(),
            piece in 1_usize..50,
        ) {
            let sent = if with_preface { [PREFACE, &bytes].concat() } else { bytes };
            let found = mended(&sent, piece);
            prop_assert_eq!(found.len(), sent.len());
            prop_assert_eq!(&found, &mended(&sent, sent.len().max(1)));
            for (found, sent) in found.iter().zip(&sent) {
                prop_assert!(found == sent || (*found == b'.' && !may_stand(*sent)));
            }
        }
    }
}
