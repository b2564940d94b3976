//! What a client lends to its plugins, and how it uses them.

use std::{
    ffi::{OsStr, OsString},
    io::IsTerminal,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;

use crate::{InteractiveMode, Policy, StdinError};

/// Everything about plugins that a client decides. The default is that of a program whose standard input is
/// free.
#[derive(Clone)]
pub struct Options {
    /// The variables that plugins inherit, and the `PATH` on which they are found.
    pub environment: Vec<(OsString, OsString)>,
    /// Who has standard input.
    pub stdin: Stdin,
    /// How long a plugin may take that talks to nobody. One that talks to a person may take as long as they do.
    pub timeout: Duration,
    /// What happens to a request that a server answers with 401.
    pub on_unauthorized: OnUnauthorized,
    /// What happens to connections when the certificate changes.
    pub on_rotation: OnRotation,
    /// Which plugins may run.
    pub policy: Policy,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// Who has standard input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Plugins may use it, if it is a terminal.
    #[default]
    Free,
    /// The client reads it itself, for the reason given.
    Taken(String),
}

/// What happens to a request that a server answers with 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnauthorized {
    /// The plugin is run again; if it gives another credential and the request can be repeated, it is.
    RenewAndRepeat,
    /// The plugin is run again for the next request, and this one fails, as in client-go.
    Renew,
}

/// What happens to connections when the certificate changes. No new request uses them in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRotation {
    /// Those in use go on until their requests are done.
    Drain,
    /// They are closed, as in client-go.
    Close,
}

/// What time it is.
pub trait Clock: Send + Sync {
    /// On the wall.
    fn now(&self) -> Timestamp;
    /// For pauses, which must not depend on somebody who sets the clock.
    fn monotonic(&self) -> Instant;
}

/// The clocks of the machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            environment: std::env::vars_os().collect(),
            stdin: Stdin::Free,
            timeout: Duration::from_secs(60),
            on_unauthorized: OnUnauthorized::RenewAndRepeat,
            on_rotation: OnRotation::Drain,
            policy: Policy::AllowAll,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    pub(crate) fn path(&self) -> &OsStr {
        let path = self.environment.iter().rev().find(|(name, _)| name == "PATH");
        path.map_or(OsStr::new(""), |(_, value)| value)
    }
}

impl Stdin {
    /// Whether a plugin gets it.
    pub(crate) fn is_for(&self, mode: InteractiveMode) -> Result<bool, StdinError> {
        self.decide(mode, std::io::stdin().is_terminal())
    }

    fn decide(&self, mode: InteractiveMode, terminal: bool) -> Result<bool, StdinError> {
        match (mode, self) {
            (InteractiveMode::Never, _) => Ok(false),
            (InteractiveMode::IfAvailable, Self::Free) => Ok(terminal),
            (InteractiveMode::IfAvailable, Self::Taken(_)) => Ok(false),
            (InteractiveMode::Always, _) if !terminal => Err(StdinError::NoTerminal),
            (InteractiveMode::Always, Self::Free) => Ok(true),
            (InteractiveMode::Always, Self::Taken(reason)) => {
                Err(StdinError::Unavailable { reason: reason.clone() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRED-18: every case, once with a terminal and once without.
    #[test]
    fn standard_input_is_lent_as_the_mode_says_cred_18() {
        let taken = || Stdin::Taken("used by stdin resource manifest reader".to_owned());
        let unavailable = || {
            let reason = "used by stdin resource manifest reader".to_owned();
            Err(StdinError::Unavailable { reason })
        };
        let none = || Err(StdinError::NoTerminal);
        for (mode, stdin, with, without) in [
            (InteractiveMode::Never, Stdin::Free, Ok(false), Ok(false)),
            (InteractiveMode::Never, taken(), Ok(false), Ok(false)),
            (InteractiveMode::IfAvailable, Stdin::Free, Ok(true), Ok(false)),
            (InteractiveMode::IfAvailable, taken(), Ok(false), Ok(false)),
            (InteractiveMode::Always, Stdin::Free, Ok(true), none()),
            (InteractiveMode::Always, taken(), unavailable(), none()),
        ] {
            assert_eq!(stdin.decide(mode, true), with, "{mode:?} {stdin:?}, a terminal");
            assert_eq!(stdin.decide(mode, false), without, "{mode:?} {stdin:?}, no terminal");
        }
    }
}
