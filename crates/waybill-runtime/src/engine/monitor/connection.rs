//! One connection of the runtime to a monitor.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::PollFlags;

use crate::engine::{
    message::FromMonitor,
    wire::{Frame, Outgoing, Read, Reader},
};

/// A socket that does not block, with what is half read and not yet sent.
pub(super) struct Connection {
    socket: OwnedFd,
    reader: Reader,
    outgoing: VecDeque<Outgoing>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, reader: Reader::default(), outgoing: VecDeque::new() })
    }

    /// Sends a message, at once or as soon as the socket takes it.
    pub(super) fn send(&mut self, message: &FromMonitor, fds: Vec<OwnedFd>) -> io::Result<()> {
        self.outgoing.push_back(Outgoing::new(message, &[], fds)?);
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some(first) = self.outgoing.front_mut() {
            if !first.send(self.socket.as_fd())? {
                break;
            }
            self.outgoing.pop_front();
        }
        Ok(())
    }

    /// The next message that has fully arrived; an error when the other side is gone.
    pub(super) fn next(&mut self) -> io::Result<Option<Frame>> {
        match self.reader.read(self.socket.as_fd())? {
            Read::Frame(frame) => Ok(Some(frame)),
            Read::Later => Ok(None),
            Read::End => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) fn interest(&self) -> PollFlags {
        if self.outgoing.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
