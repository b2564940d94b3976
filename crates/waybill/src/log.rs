//! Where log lines of long-running commands go: standard error, as text or JSON.
//!
//! Standard error may be a file on a disk that is full. A line that cannot be written is counted and
//! left out; no role may fail because of it.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
};

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

/// Starts logging; `RUST_LOG` chooses what, `info` by default.
pub(crate) fn start(format: LogFormat) {
    start_at(format, 0);
}

/// The same with more by default: `debug` for 1, `trace` for more.
pub(crate) fn start_at(format: LogFormat, verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    // It logs whole answers that it does not understand, Secrets among them; what fails we tell ourselves.
    if let Ok(silence) = "kube_client=off".parse() {
        filter = filter.add_directive(silence);
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Patient(&LEFT_OUT))
        // It would print the failure to standard error again, and panic because that fails too.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Text => builder.init(),
    }
}

/// What standard error did not take.
static LEFT_OUT: Mutex<LeftOut> = Mutex::new(LeftOut { lines: 0, torn: false });

#[derive(Debug)]
struct LeftOut {
    lines: u64,
    /// A part of the last line was written.
    torn: bool,
}

/// Standard error that takes every line, and drops what cannot be written.
struct Patient(&'static Mutex<LeftOut>);

impl Write for Patient {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut left_out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.write(&mut io::stderr().lock(), line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LeftOut {
    /// Writes a line, after a word about those before it that are missing.
    fn write(&mut self, output: &mut impl Write, line: &[u8]) {
        let mut text = Vec::new();
        if self.torn {
            text.push(b'\n');
        }
        if self.lines > 0 {
            let (lines, why) = (self.lines, "they could not be written");
            text.extend_from_slice(format!("{lines} log lines are missing: {why}\n").as_bytes());
        }
        text.extend_from_slice(line);
        match write_counted(output, &text) {
            Ok(()) => *self = Self { lines: 0, torn: false },
            Err(written) => {
                self.lines += 1;
                self.torn |= written > 0;
            }
        }
    }
}

/// Writes all of `text`, or says how much of it was written.
fn write_counted(output: &mut impl Write, text: &[u8]) -> Result<(), usize> {
    let mut written = 0;
    while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
        match output.write(rest) {
            Ok(0) => return Err(written),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(written),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has room for so many bytes.
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room - self.text.len());
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_the_next_one_tells() {
        let mut left_out = LeftOut { lines: 0, torn: false };
        let mut disk = Disk { text: Vec::new(), room: 6 };
        for line in ["one\n", "two\n", "three\n"] {
            left_out.write(&mut disk, line.as_bytes());
        }
        disk.room = 1000;
        left_out.write(&mut disk, b"four\n");
        left_out.write(&mut disk, b"five\n");
        let expected = "one\ntw\n2 log lines are missing: they could not be written\nfour\nfive\n";
        assert_eq!(String::from_utf8(disk.text).unwrap(), expected);
    }
}
