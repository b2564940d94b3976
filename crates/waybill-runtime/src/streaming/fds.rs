//! Our ends of a process's streams: pipes and terminals, for tokio.

#![allow(unsafe_code, reason = "tokio has no safe way to wait for a terminal")]

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    termios::{LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize},
};
use tokio::io::{AsyncWrite, Interest, unix::AsyncFd};
use waybill_stream::command::TerminalSize;

/// An end of a pipe, or the master of a terminal.
pub(super) struct Stream(AsyncFd<OwnedFd>);

impl Stream {
    /// An end that is only read.
    pub(super) fn readable(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE)
    }

    /// An end that is only written.
    pub(super) fn writable(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::WRITABLE)
    }

    /// A terminal.
    pub(super) fn terminal(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Interest::READABLE | Interest::WRITABLE)
    }

    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        // SAFETY: an `OwnedFd` is open and stays the same until it is dropped, and nothing takes it
        // out of the `AsyncFd` before.
        let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
        Ok(Self(registered?))
    }

    /// Reads what is there, waiting until something is; 0 at the end.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.async_io(Interest::READABLE, |fd| read(fd, buffer)).await;
        at_end_of_terminal(read)
    }

    /// Reads what is there now; 0 if nothing is or will be.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> usize {
        read(self.0.get_ref(), buffer).unwrap_or(0)
    }

    /// What a user types to end the input of a program that reads lines; `None` if the program reads
    /// keys instead, for which there is no end.
    pub(super) fn end_of_input(&self) -> Option<u8> {
        let attributes = tcgetattr(self.0.get_ref()).ok()?;
        let reads_lines = attributes.local_modes.contains(LocalModes::ICANON);
        reads_lines.then(|| attributes.special_codes[SpecialCodeIndex::VEOF])
    }

    /// Gives a terminal a new size.
    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        resize(&self.0, size)
    }
}

impl AsyncWrite for &Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(written) = ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// It is closed when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Gives a terminal a new size; its foreground processes get SIGWINCH.
pub(super) fn resize(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

fn read(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(fd, buffer)?)
}

/// The master of a terminal fails with EIO when nobody has the other side open any more.
fn at_end_of_terminal(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(0),
        read => read,
    }
}
