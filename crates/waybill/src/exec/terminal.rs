//! The user's own terminal during a session: every key goes to the command, and its size with it.

use std::io::{self, stdin};

use anyhow::{Context, Result};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use waybill_stream::command::TerminalSize;

/// The terminal, handing on keys as they are. Back to what it was on drop.
pub(super) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    pub(super) fn enter() -> Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }

    /// Its size, and each new one.
    #[expect(clippy::disallowed_methods, reason = "for as long as somebody wants to know sizes")]
    pub(super) fn sizes(&self) -> Result<watch::Receiver<TerminalSize>> {
        let mut changes = signal(SignalKind::window_change())?;
        let (sender, receiver) = watch::channel(size().context("reading the terminal's size")?);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    change = changes.recv() => if change.is_none() { return },
                    () = sender.closed() => return,
                }
                if let Ok(size) = size() {
                    sender.send_replace(size);
                }
            }
        });
        Ok(receiver)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

fn size() -> io::Result<TerminalSize> {
    let size = tcgetwinsize(stdin())?;
    Ok(TerminalSize { width: size.ws_col, height: size.ws_row })
}
