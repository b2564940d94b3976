//! How a runtime hears that its configuration changed: through systemd of the node.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// containerd takes a few seconds; systemd gives up by itself after 90.
const LIMIT: Duration = Duration::from_secs(120);

/// What a change needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The unit reads its files again at SIGHUP.
    Hangup(String),
    /// The unit must be started anew; containers go on.
    Unit(String),
}

/// Why a runtime was not restarted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestartError {
    /// There is nobody to ask.
    #[error(
        "this node has no systemd: make {unit} read its configuration again yourself, then remove the file `restart` in the \
         agent's directory, /run/waybill"
    )]
    NoSystemd {
        /// What to restart.
        unit: String,
    },
    /// The program that asks systemd cannot be started.
    #[error("cannot run systemctl")]
    Run(#[source] io::Error),
    /// systemd refused.
    #[error("systemctl {verb} {unit} failed: {said}")]
    Refused {
        /// What was asked.
        verb: &'static str,
        /// Of whom.
        unit: String,
        /// Its last words.
        said: String,
    },
    /// systemd does not come to an end.
    #[error("systemctl {verb} {unit} took longer than {} s", LIMIT.as_secs())]
    Late {
        /// What was asked.
        verb: &'static str,
        /// Of whom.
        unit: String,
    },
}

impl Restart {
    /// Asks systemd of the node whose `/` is at `root`. `enter` is a program that takes a root and a command, and runs
    /// the command there.
    pub async fn carry_out(&self, root: &Path, enter: &[PathBuf]) -> Result<(), RestartError> {
        let (verb, unit, arguments) = match self {
            Self::Hangup(unit) => ("reload", unit, vec!["kill", "--signal=HUP", unit]),
            Self::Unit(unit) => ("restart", unit, vec!["restart", unit]),
        };
        if !root.join("run/systemd/system").is_dir() {
            return Err(RestartError::NoSystemd { unit: unit.clone() });
        }
        let mut command = match enter {
            [program, first @ ..] if root != Path::new("/") => {
                let mut command = Command::new(program);
                command.args(first).arg(root).arg("systemctl");
                command
            }
            _ => Command::new("systemctl"),
        };
        // In a chroot it would do nothing, and say that all is well.
        command.args(arguments).env("SYSTEMD_IGNORE_CHROOT", "1").stdin(Stdio::null());
        let ended = timeout(LIMIT, command.kill_on_drop(true).output()).await;
        let ended = ended.map_err(|_| RestartError::Late { verb, unit: unit.clone() })?;
        let output = ended.map_err(RestartError::Run)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().chars().take(400).collect();
        Err(RestartError::Refused { verb, unit: unit.clone(), said })
    }
}
