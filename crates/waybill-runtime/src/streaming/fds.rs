//! Our ends of a process's streams: pipes and terminals, for tokio.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    termios::{LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize},
};
use tokio::net::unix::pipe;
use waybill_stream::command::TerminalSize;

/// The end of a pipe that is read, or a terminal.
pub(super) struct Source(pipe::Receiver);

impl Source {
    /// Takes the end in hand.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self(pipe::Receiver::from_owned_fd_unchecked(fd)?))
    }

    /// Reads what is there, waiting until something is; 0 at the end.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            match self.0.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The master of a terminal fails so when nobody has the other side open any more.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => return Ok(0),
                read => return read,
            }
        }
    }

    /// Reads what is there now; 0 if nothing is or will be.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> usize {
        rustix::io::read(&self.0, buffer).unwrap_or(0)
    }
}

/// The end of a pipe that is written, or a terminal.
pub(super) fn sink(fd: OwnedFd) -> io::Result<pipe::Sender> {
    set_nonblocking(&fd)?;
    pipe::Sender::from_owned_fd_unchecked(fd)
}

/// What a user types on a terminal to end the input of a program that reads lines; `None` if the
/// program reads keys instead, for which there is no end.
pub(super) fn end_of_input(terminal: impl AsFd) -> Option<u8> {
    let attributes = tcgetattr(terminal).ok()?;
    let reads_lines = attributes.local_modes.contains(LocalModes::ICANON);
    reads_lines.then(|| attributes.special_codes[SpecialCodeIndex::VEOF])
}

/// Gives a terminal a new size; its foreground processes get SIGWINCH.
pub(super) fn resize(terminal: impl AsFd, size: TerminalSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(terminal, size)?)
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}
