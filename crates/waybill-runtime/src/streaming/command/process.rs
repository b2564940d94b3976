//! A running process, by the directions of its streams.

use std::{io, os::fd::OwnedFd};

use tokio::net::unix::pipe;
use waybill_stream::command::{STDERR, STDOUT, Streams, TerminalSize};

use super::super::{
    ExitFuture, Running,
    fds::{Source, resize, sink},
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
    /// Where its input goes; `None` if it was not asked for, or is closed.
    pub(super) stdin: Option<Stdin>,
    terminal: Option<OwnedFd>,
}

/// Where the client's input goes.
pub(super) struct Stdin {
    pub(super) sink: pipe::Sender,
    pub(super) is_terminal: bool,
}

/// What the client hears.
#[derive(Default)]
pub(super) struct Output {
    pub(super) stdout: Option<Heard>,
    pub(super) stderr: Option<Heard>,
    /// See `Running::ends_with_output`.
    pub(super) ends_session: bool,
}

/// A stream that must be read, or the process would wait for ever.
pub(super) struct Heard {
    pub(super) source: Source,
    /// Where it goes; `None` if the client did not ask for it.
    pub(super) channel: Option<u8>,
}

impl Process {
    /// Takes the streams of `running` in hand.
    pub(super) fn open(running: Running, streams: Streams) -> io::Result<Self> {
        let ends_session = running.ends_with_output;
        let (input, output) = match running.io {
            ProcessIo::Pipes { stdin, stdout, stderr } => {
                let stdin = stdin.filter(|_| streams.stdin).map(|fd| Stdin::new(fd, false));
                let stdout = stdout.map(|fd| Heard::new(fd, streams.stdout.then_some(STDOUT)));
                let stderr = stderr.map(|fd| Heard::new(fd, streams.stderr.then_some(STDERR)));
                (
                    Input { stdin: stdin.transpose()?, terminal: running.terminal },
                    Output {
                        stdout: stdout.transpose()?,
                        stderr: stderr.transpose()?,
                        ends_session,
                    },
                )
            }
            ProcessIo::Terminal(terminal) => {
                let stdin = streams.stdin.then(|| Stdin::new(terminal.try_clone()?, true));
                let stdout = Heard::new(terminal.try_clone()?, streams.stdout.then_some(STDOUT))?;
                (
                    Input { stdin: stdin.transpose()?, terminal: Some(terminal) },
                    Output { stdout: Some(stdout), stderr: None, ends_session },
                )
            }
        };
        Ok(Self { input, output, exit: running.exit })
    }
}

impl Input {
    /// Gives the terminal a new size. Without one, there is nothing to do.
    pub(super) fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &self.terminal
            && let Err(error) = resize(terminal, size)
        {
            tracing::debug!(%error, "a terminal could not be resized");
        }
    }
}

impl Stdin {
    fn new(fd: OwnedFd, is_terminal: bool) -> io::Result<Self> {
        Ok(Self { sink: sink(fd)?, is_terminal })
    }
}

impl Heard {
    fn new(fd: OwnedFd, channel: Option<u8>) -> io::Result<Self> {
        Ok(Self { source: Source::new(fd)?, channel })
    }
}
