//! Messages between the runtime, its spawner and the monitors.
//!
//! A frame is two little-endian lengths, a JSON header and a block of bytes. Descriptors travel with the first
//! byte. Values of variables travel in the block only; every buffer that held a block is wiped when it is dropped.

use std::{
    fmt,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

const PREFIX: usize = 8;
const LARGEST_HEADER: usize = 4 << 20;
const LARGEST_BLOCK: usize = 64 << 20;
/// Three streams and a terminal.
const MOST_DESCRIPTORS: usize = 4;

/// A frame that has arrived.
pub(super) struct Frame {
    body: Zeroizing<Vec<u8>>,
    header: usize,
    pub(super) fds: Vec<OwnedFd>,
}

impl Frame {
    pub(super) fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(self.body.get(..self.header).unwrap_or_default())
            .map_err(io::Error::from)
    }

    pub(super) fn block(&self) -> &[u8] {
        self.body.get(self.header..).unwrap_or_default()
    }
}

/// The bytes of a frame, ready to be sent.
pub(super) fn encode<T: Serialize>(header: &T, block: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    let header = serde_json::to_vec(header)?;
    if header.len() > LARGEST_HEADER || block.len() > LARGEST_BLOCK {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(PREFIX + header.len() + block.len()));
    for length in [header.len(), block.len()] {
        bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(block);
    Ok(bytes)
}

/// A frame on its way out.
pub(super) struct Outgoing {
    bytes: Zeroizing<Vec<u8>>,
    sent: usize,
    fds: Vec<OwnedFd>,
}

impl fmt::Debug for Outgoing {
    /// Without the bytes, which may hold values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl Outgoing {
    pub(super) fn new<T: Serialize>(
        header: &T,
        block: &[u8],
        fds: Vec<OwnedFd>,
    ) -> io::Result<Self> {
        Ok(Self { bytes: encode(header, block)?, sent: 0, fds })
    }

    /// Sends as much as the socket takes; true when all is sent.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let fds: Vec<BorrowedFd<'_>> = self.fds.iter().map(OwnedFd::as_fd).collect();
            match send_some(socket, rest, &fds) {
                Ok(count) => {
                    self.sent += count;
                    self.fds.clear();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    let count = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(count)
}

/// Receives the one descriptor that a peer of another kind sends, with whatever bytes come along.
pub(super) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut bytes = [0; 4096];
    let mut fds = Vec::new();
    receive_some(socket, &mut bytes, &mut fds)?;
    fds.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no descriptor came"))
}

fn receive_some(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut target = [IoSliceMut::new(bytes)];
    let received = recvmsg(socket, &mut target, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(received.bytes)
}

/// Puts frames together from what a stream socket delivers.
#[derive(Default)]
pub(super) struct Reader {
    prefix: [u8; PREFIX],
    prefix_filled: usize,
    body: Zeroizing<Vec<u8>>,
    body_filled: usize,
    fds: Vec<OwnedFd>,
}

/// What reading brought.
pub(super) enum Read {
    Frame(Frame),
    /// Nothing more for now; only from a socket that does not block.
    Later,
    End,
}

impl Reader {
    /// Reads up to the end of one frame.
    pub(super) fn read(&mut self, socket: BorrowedFd<'_>) -> io::Result<Read> {
        loop {
            let count = match self.receive(socket) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::Later),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(Read::End);
                }
                Err(error) => return Err(error),
            };
            if count == 0 {
                return Ok(Read::End);
            }
            if self.prefix_filled < PREFIX {
                self.prefix_filled += count;
                self.begin_body()?;
            } else {
                self.body_filled += count;
            }
            if self.prefix_filled == PREFIX && self.body_filled == self.body.len() {
                return Ok(Read::Frame(self.finish()));
            }
        }
    }

    fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let target = if self.prefix_filled < PREFIX {
            self.prefix.get_mut(self.prefix_filled..)
        } else {
            self.body.get_mut(self.body_filled..)
        };
        receive_some(socket, target.unwrap_or_default(), &mut self.fds)
    }

    fn begin_body(&mut self) -> io::Result<()> {
        if self.prefix_filled == PREFIX {
            let (header, block) = self.lengths();
            if header > LARGEST_HEADER || block > LARGEST_BLOCK {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too large"));
            }
            self.body = Zeroizing::new(vec![0; header + block]);
        }
        Ok(())
    }

    fn lengths(&self) -> (usize, usize) {
        let [a, b, c, d, e, f, g, h] = self.prefix;
        let length = |bytes| usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
        (length([a, b, c, d]), length([e, f, g, h]))
    }

    fn finish(&mut self) -> Frame {
        let (header, _) = self.lengths();
        let done = std::mem::take(self);
        Frame { body: done.body, header, fds: done.fds }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn frames_keep_their_bytes_and_descriptors() {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let block: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut first = Outgoing::new(&"first", &block, vec![pipe]).unwrap();
        let mut second = Outgoing::new(&"second", &[], Vec::new()).unwrap();
        let sender = std::thread::spawn(move || {
            while !first.send(a.as_fd()).unwrap() {
                std::thread::yield_now();
            }
            assert!(second.send(a.as_fd()).unwrap());
        });
        let mut reader = Reader::default();
        let Read::Frame(frame) = reader.read(b.as_fd()).unwrap() else { panic!("no frame") };
        assert_eq!(frame.parse::<String>().unwrap(), "first");
        assert!(frame.block() == block);
        assert_eq!(frame.fds.len(), 1);
        let Read::Frame(frame) = reader.read(b.as_fd()).unwrap() else { panic!("no frame") };
        assert_eq!(frame.parse::<String>().unwrap(), "second");
        assert!(frame.fds.is_empty());
        sender.join().unwrap();
        assert!(matches!(reader.read(b.as_fd()).unwrap(), Read::End));
    }

    #[test]
    fn a_length_beyond_reason_is_refused() {
        let (a, b) = UnixStream::pair().unwrap();
        io::Write::write_all(&mut &a, &[0xff; 8]).unwrap();
        assert!(Reader::default().read(b.as_fd()).is_err());
    }
}
