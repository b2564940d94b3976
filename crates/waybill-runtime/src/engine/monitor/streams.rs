//! The streams of a container: what it writes goes to its log and to everybody who attached, what they
//! write goes to its standard input.
//!
//! Nothing is dropped: while somebody who attached does not read, the container's output waits, as it would
//! before a terminal. After the container's end the log does not wait for anybody.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{event::PollFlags, io::Errno};

use super::log::{Log, Stream};
use crate::engine::Stdio;

/// How much is read at once.
const CHUNK: usize = 16 << 10;
/// What may wait for a slow reader before the container waits.
const MOST_WAITING: usize = 64 << 10;

/// Our ends.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) log: Option<Log>,
    /// The terminal's master stands in both `stdin` and `stdout`.
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    stdin_once: bool,
    pub(super) tty: bool,
    clients: Vec<Client>,
    /// From a client, not yet taken by the container.
    input: Vec<u8>,
    /// Whether standard input ends once `input` is taken.
    close_input: bool,
    ended: bool,
}

/// Somebody who attached.
#[derive(Default)]
struct Client {
    stdin: Option<OwnedFd>,
    stdout: Output,
    stderr: Output,
    /// Whether it had input, which ended, while that of the container goes on: then it gets what waits for it, and no more.
    is_done: bool,
}

/// The way to a client's reader.
#[derive(Default)]
struct Output {
    pipe: Option<OwnedFd>,
    waiting: Vec<u8>,
}

/// Which descriptor is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Output(Stream),
    Input,
    ClientInput(usize),
    ClientOutput(usize, Stream),
}

impl Streams {
    pub(super) fn new(stdio: &Stdio) -> Self {
        Self { stdin_once: stdio.stdin_once, tty: stdio.tty, ..Self::default() }
    }

    /// Adds somebody who attached; returns their ends: input if asked for, output, errors unless there is a terminal.
    pub(super) fn attach(&mut self, stdin: bool) -> io::Result<Vec<OwnedFd>> {
        let mut client = Client::default();
        let mut theirs = Vec::new();
        if stdin {
            let (read, write) = pipe()?;
            rustix::io::ioctl_fionbio(&read, true)?;
            client.stdin = Some(read);
            theirs.push(write);
        }
        let outputs = [&mut client.stdout, &mut client.stderr];
        for output in outputs.into_iter().take(if self.tty { 1 } else { 2 }) {
            let (read, write) = pipe()?;
            rustix::io::ioctl_fionbio(&write, true)?;
            output.pipe = Some(write);
            theirs.push(read);
        }
        self.clients.push(client);
        Ok(theirs)
    }

    pub(super) fn interests(&self) -> Vec<(Ready, BorrowedFd<'_>, PollFlags)> {
        let mut interests = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(fd) = self.source(stream).filter(|_| !self.is_waiting(stream)) {
                interests.push((Ready::Output(stream), fd.as_fd(), PollFlags::IN));
            }
        }
        if let Some(fd) = self.stdin.as_ref().filter(|_| !self.input.is_empty()) {
            interests.push((Ready::Input, fd.as_fd(), PollFlags::OUT));
        }
        for (at, client) in self.clients.iter().enumerate() {
            if let Some(fd) = client.stdin.as_ref().filter(|_| self.input.is_empty()) {
                interests.push((Ready::ClientInput(at), fd.as_fd(), PollFlags::IN));
            }
            for stream in [Stream::Stdout, Stream::Stderr] {
                let output = client.output(stream);
                let Some(fd) = &output.pipe else { continue };
                // Without anything to write this still reports that the reader is gone.
                let flags =
                    if output.waiting.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                interests.push((Ready::ClientOutput(at, stream), fd.as_fd(), flags));
            }
        }
        interests
    }

    pub(super) fn handle(&mut self, ready: Ready, flags: PollFlags) {
        match ready {
            Ready::Output(stream) => {
                self.copy_output(stream);
            }
            Ready::Input => self.write_input(),
            Ready::ClientInput(at) => self.copy_input(at),
            Ready::ClientOutput(at, stream) => {
                let Some(client) = self.clients.get_mut(at) else { return };
                let output = client.output_mut(stream);
                if flags.contains(PollFlags::ERR) {
                    output.close();
                } else {
                    output.write();
                }
            }
        }
    }

    /// Forgets clients of whom nothing is left. Only between two rounds, because it moves positions.
    pub(super) fn sweep(&mut self) {
        for client in self.clients.iter_mut().filter(|client| self.ended || client.is_done) {
            client.stdin = None;
            for output in [&mut client.stdout, &mut client.stderr] {
                if output.waiting.is_empty() {
                    output.pipe = None;
                }
            }
        }
        self.clients.retain(|client| {
            client.stdin.is_some() || client.stdout.pipe.is_some() || client.stderr.pipe.is_some()
        });
    }

    /// Takes what is left in the pipes after the last process is gone, and ends everything.
    pub(super) fn finish(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            while self.copy_output(stream) {}
        }
        if let Some(log) = &mut self.log {
            log.finish();
        }
        (self.stdin, self.stdout, self.stderr) = (None, None, None);
        self.input.clear();
        self.ended = true;
        self.sweep();
    }

    /// Whether clients still have to read something.
    pub(super) fn is_busy(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Copies one piece of output; false when there is nothing now.
    fn copy_output(&mut self, stream: Stream) -> bool {
        let mut buffer = [0; CHUNK];
        let Some(fd) = self.source(stream) else { return false };
        let bytes = match rustix::io::read(fd, &mut buffer) {
            Err(Errno::AGAIN) => return false,
            Err(Errno::INTR) => return true,
            // A terminal whose other side is closed everywhere says EIO.
            Ok(0) | Err(_) => {
                self.end_output(stream);
                return false;
            }
            Ok(count) => buffer.get(..count).unwrap_or_default(),
        };
        if let Some(log) = &mut self.log {
            log.write(stream, bytes);
        }
        for client in &mut self.clients {
            client.output_mut(stream).push(bytes);
        }
        true
    }

    fn end_output(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.stdout = None,
            Stream::Stderr => self.stderr = None,
        }
    }

    fn copy_input(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        let Some(fd) = &client.stdin else { return };
        let mut buffer = [0; CHUNK];
        match rustix::io::read(fd, &mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) | Err(_) => {
                client.stdin = None;
                if self.stdin_once && !self.tty {
                    self.close_input = true;
                    self.write_input();
                } else {
                    // Who has no more to say leaves, as on other runtimes; the next one may type on.
                    client.is_done = true;
                }
            }
            Ok(count) => {
                self.input.extend_from_slice(buffer.get(..count).unwrap_or_default());
                self.write_input();
            }
        }
    }

    fn write_input(&mut self) {
        if let Some(fd) = &self.stdin {
            let taken = write_some(fd, &self.input).unwrap_or(self.input.len());
            self.input.drain(..taken);
        } else {
            self.input.clear();
        }
        if self.close_input && self.input.is_empty() {
            self.stdin = None;
        }
    }

    fn source(&self, stream: Stream) -> Option<&OwnedFd> {
        match stream {
            Stream::Stdout => self.stdout.as_ref(),
            Stream::Stderr => self.stderr.as_ref(),
        }
    }

    fn is_waiting(&self, stream: Stream) -> bool {
        self.clients.iter().any(|client| client.output(stream).waiting.len() >= MOST_WAITING)
    }
}

impl Client {
    fn output(&self, stream: Stream) -> &Output {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    fn output_mut(&mut self, stream: Stream) -> &mut Output {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        if self.pipe.is_some() {
            self.waiting.extend_from_slice(bytes);
            self.write();
        }
    }

    fn write(&mut self) {
        let Some(fd) = &self.pipe else { return };
        match write_some(fd, &self.waiting) {
            Some(taken) => drop(self.waiting.drain(..taken)),
            None => self.close(),
        }
    }

    fn close(&mut self) {
        self.pipe = None;
        self.waiting = Vec::new();
    }
}

/// How much the descriptor took; `None` when nobody reads any more.
fn write_some(fd: &OwnedFd, bytes: &[u8]) -> Option<usize> {
    let mut taken = 0;
    while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
        match rustix::io::write(fd, rest) {
            Ok(count) => taken += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => return None,
        }
    }
    Some(taken)
}

/// A pipe that no program inherits.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use super::*;

    fn container() -> (Streams, OwnedFd, OwnedFd) {
        let (stdout, written) = pipe().unwrap();
        let (read, stdin) = pipe().unwrap();
        for fd in [&stdout, &stdin] {
            rustix::io::ioctl_fionbio(fd, true).unwrap();
        }
        let streams = Streams {
            stdin: Some(stdin),
            stdout: Some(stdout),
            stdin_once: true,
            ..Default::default()
        };
        (streams, read, written)
    }

    #[test]
    fn everybody_who_attached_gets_all_output() {
        let (mut streams, _stdin, container) = container();
        let mut clients: Vec<_> =
            (0..2).map(|_| streams.attach(false).unwrap().into_iter().next().unwrap()).collect();
        rustix::io::write(&container, b"hello").unwrap();
        streams.handle(Ready::Output(Stream::Stdout), PollFlags::IN);
        streams.finish();
        for client in clients.drain(..) {
            let mut text = String::new();
            File::from(client).read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
        }
    }

    #[test]
    fn a_reader_that_does_not_read_holds_the_container_up_and_one_that_left_does_not() {
        let (mut streams, _stdin, container) = container();
        rustix::io::ioctl_fionbio(&container, true).unwrap();
        let client = streams.attach(false).unwrap();
        let fill = |streams: &mut Streams| {
            for _ in 0..64 {
                let _ = rustix::io::write(&container, &[b'x'; CHUNK]);
                if streams.interests().iter().any(|(ready, ..)| matches!(ready, Ready::Output(_))) {
                    streams.handle(Ready::Output(Stream::Stdout), PollFlags::IN);
                }
            }
            streams.is_waiting(Stream::Stdout)
        };
        assert!(fill(&mut streams));
        drop(client);
        streams.handle(Ready::ClientOutput(0, Stream::Stdout), PollFlags::ERR);
        streams.handle(Ready::ClientOutput(0, Stream::Stderr), PollFlags::ERR);
        streams.sweep();
        assert!(!streams.is_busy());
        assert!(!fill(&mut streams));
    }

    #[test]
    fn input_ends_with_the_first_client_when_it_is_open_once() {
        let (mut streams, stdin, _container) = container();
        let client = streams.attach(true).unwrap().into_iter().next().unwrap();
        rustix::io::write(&client, b"abc").unwrap();
        streams.handle(Ready::ClientInput(0), PollFlags::IN);
        drop(client);
        streams.handle(Ready::ClientInput(0), PollFlags::HUP);
        let mut text = String::new();
        File::from(stdin).read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
    }

    #[test]
    fn who_has_no_more_input_leaves_when_it_stays_open() {
        let (mut streams, stdin, container) = container();
        streams.stdin_once = false;
        let mut first = streams.attach(true).unwrap();
        let other = streams.attach(false).unwrap().remove(0);
        rustix::io::write(&container, b"before").unwrap();
        streams.handle(Ready::Output(Stream::Stdout), PollFlags::IN);
        let typing = first.remove(0);
        rustix::io::write(&typing, b"abc").unwrap();
        streams.handle(Ready::ClientInput(0), PollFlags::IN);
        drop(typing);
        streams.handle(Ready::ClientInput(0), PollFlags::HUP);
        streams.sweep();
        let mut text = String::new();
        File::from(first.remove(0)).read_to_string(&mut text).unwrap();
        assert_eq!(text, "before");
        // All others stay, and so does the container's input.
        assert_eq!(streams.clients.len(), 1);
        drop(other);
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&stdin, &mut bytes), Ok(3));
        let mut next = streams.attach(true).unwrap();
        rustix::io::write(next.remove(0), b"d").unwrap();
        streams.handle(Ready::ClientInput(1), PollFlags::IN);
        assert_eq!(rustix::io::read(&stdin, &mut bytes), Ok(1));
    }
}
