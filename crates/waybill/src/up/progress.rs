//! What people see while things start: on a terminal a line that changes, elsewhere plain lines.

use std::{
    cell::RefCell,
    io::{self, IsTerminal, Write},
    time::Instant,
};

/// Says what is being done and what is done. Nobody who stops reading disturbs anything.
pub(crate) struct Progress {
    kind: Kind,
    started: Instant,
    /// What is being done right now.
    doing: RefCell<Vec<&'static str>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Silent,
    Terminal,
}

impl Progress {
    /// To standard output.
    pub(crate) fn to_people() -> Self {
        Self::of(if io::stdout().is_terminal() { Kind::Terminal } else { Kind::Plain })
    }

    /// To nobody; notes still go to standard error.
    pub(crate) fn silent() -> Self {
        Self::of(Kind::Silent)
    }

    fn of(kind: Kind) -> Self {
        Self { kind, started: Instant::now(), doing: RefCell::default() }
    }

    /// Something was begun.
    pub(super) fn begin(&self, what: &'static str) {
        self.doing.borrow_mut().push(what);
        self.show_current();
    }

    /// It is done; `result` says where it is.
    pub(super) fn done(&self, what: &'static str, result: &str) {
        self.doing.borrow_mut().retain(|it| *it != what);
        if self.kind != Kind::Silent {
            self.line(&format!("✓ {what:<12} {result}"));
        }
        self.show_current();
    }

    /// Everything is there.
    pub(super) fn ready(&self) {
        if self.kind != Kind::Silent {
            self.line(&format!("ready in {:.1} s", self.started.elapsed().as_secs_f64()));
        }
    }

    /// Something that is worth a line of its own, now or later.
    pub(crate) fn note(&self, text: &str) {
        self.clear();
        let _ = writeln!(io::stderr(), "waybill: {text}");
        self.show_current();
    }

    fn line(&self, text: &str) {
        self.clear();
        let mut output = io::stdout().lock();
        let _ = writeln!(output, "{text}").and_then(|()| output.flush());
    }

    fn show_current(&self) {
        if self.kind != Kind::Terminal {
            return;
        }
        let doing = self.doing.borrow();
        if !doing.is_empty() {
            let mut output = io::stdout().lock();
            let _ = write!(output, "\r\x1b[K… {}", doing.join(", ")).and_then(|()| output.flush());
        }
    }

    fn clear(&self) {
        if self.kind == Kind::Terminal {
            let _ = write!(io::stdout().lock(), "\r\x1b[K");
        }
    }
}
