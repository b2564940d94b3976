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

/// What a change needs: a unit of systemd that is started anew; containers go on.
///
/// There is no gentler way. CRI-O reads its files again at SIGHUP and then *reports* a new handler, but runs no pod of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Its name.
    pub unit: String,
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
    #[error("systemctl restart {unit} failed: {said}")]
    Refused {
        /// What was to be restarted.
        unit: String,
        /// Its last words.
        said: String,
    },
    /// systemd does not come to an end.
    #[error("systemctl restart {unit} took longer than {} s", LIMIT.as_secs())]
    Late {
        /// What was to be restarted.
        unit: String,
    },
}

impl Restart {
    pub(super) fn of(unit: &str) -> Self {
        Self { unit: unit.to_owned() }
    }

    /// Asks systemd of the node whose `/` is at `root`. `enter` is a program that takes a root and a command, and runs
    /// the command there.
    pub async fn carry_out(&self, root: &Path, enter: &[PathBuf]) -> Result<(), RestartError> {
        let unit = &self.unit;
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
        command.args(["restart", unit]).env("SYSTEMD_IGNORE_CHROOT", "1").stdin(Stdio::null());
        let ended = timeout(LIMIT, command.kill_on_drop(true).output()).await;
        let ended = ended.map_err(|_| RestartError::Late { unit: unit.clone() })?;
        let output = ended.map_err(RestartError::Run)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().chars().take(400).collect();
        Err(RestartError::Refused { unit: unit.clone(), said })
    }
}
