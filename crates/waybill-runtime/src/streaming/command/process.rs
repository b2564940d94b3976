//! A running process, by the directions of its streams.

use std::{io, os::fd::OwnedFd, sync::Arc};

use waybill_stream::command::{STDERR, STDOUT, Streams, TerminalSize};

use super::super::{
    ExitFuture, Running,
    fds::{Stream, resize},
};
use crate::engine::ProcessIo;

/// A running process. Dropping it closes its streams.
pub(super) struct Process {
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) exit: ExitFuture,
}

/// What the client controls.
pub(super) struct Input {
    pub(super) stdin: Stdin,
    terminal: Option<Terminal>,
}

/// Where the client's input goes.
pub(super) enum Stdin {
    /// Nowhere: it was not asked for, or is closed.
    None,
    Pipe(Stream),
    Terminal(Arc<Stream>),
}

/// What the client hears.
#[derive(Default)]
pub(super) struct Output {
    pub(super) stdout: Option<Source>,
    pub(super) stderr: Option<Source>,
}

/// A stream that must be read, or the process would wait for ever.
pub(super) struct Source {
    pub(super) stream: Arc<Stream>,
    /// Where it goes; `None` if the client did not ask for it.
    pub(super) channel: Option<u8>,
}

enum Terminal {
    /// Also read and written.
    Stream(Arc<Stream>),
    /// Only resized.
    Handle(OwnedFd),
}

impl Process {
    /// Takes the streams of `running` in hand.
    pub(super) fn open(running: Running, streams: Streams) -> io::Result<Self> {
        let handle = running.terminal.map(Terminal::Handle);
        let (input, output) = match running.io {
            ProcessIo::Pipes { stdin, stdout, stderr } => {
                let stdin = match stdin.filter(|_| streams.stdin) {
                    Some(fd) => Stdin::Pipe(Stream::writable(fd)?),
                    None => Stdin::None,
                };
                let stdout = source(stdout, streams.stdout.then_some(STDOUT))?;
                let stderr = source(stderr, streams.stderr.then_some(STDERR))?;
                (Input { stdin, terminal: handle }, Output { stdout, stderr })
            }
            ProcessIo::Terminal(fd) => {
                let terminal = Arc::new(Stream::terminal(fd)?);
                let channel = streams.stdout.then_some(STDOUT);
                let stdin = if streams.stdin {
                    Stdin::Terminal(Arc::clone(&terminal))
                } else {
                    Stdin::None
                };
                let stdout = Source { stream: Arc::clone(&terminal), channel };
                let terminal = Some(Terminal::Stream(terminal));
                (Input { stdin, terminal }, Output { stdout: Some(stdout), stderr: None })
            }
        };
        Ok(Self { input, output, exit: running.exit })
    }
}

impl Input {
    /// Gives the terminal a new size. Without one, there is nothing to do.
    pub(super) fn resize(&self, size: TerminalSize) {
        let resized = match &self.terminal {
            None => Ok(()),
            Some(Terminal::Stream(stream)) => stream.resize(size),
            Some(Terminal::Handle(fd)) => resize(fd, size),
        };
        if let Err(error) = resized {
            tracing::debug!(%error, "a terminal could not be resized");
        }
    }
}

fn source(fd: Option<OwnedFd>, channel: Option<u8>) -> io::Result<Option<Source>> {
    fd.map(|fd| Ok(Source { stream: Arc::new(Stream::readable(fd)?), channel })).transpose()
}
