//! What can go wrong in the engine. No variant holds a value of a variable.

use std::{fmt, io, path::PathBuf};

use super::seccomp::SeccompFault;
use crate::NotDone;

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no such sandbox or container.
    #[error("{kind} {id:?} does not exist")]
    NotFound {
        /// What was looked for.
        kind: Kind,
        /// Its id.
        id: String,
    },
    /// The id is taken.
    #[error("{kind} {id:?} exists already")]
    AlreadyExists {
        /// What exists.
        kind: Kind,
        /// Its id.
        id: String,
    },
    /// The request cannot be carried out as it stands, on this machine or anywhere.
    #[error("{reason}")]
    Invalid {
        /// What is wrong and what to do.
        reason: String,
    },
    /// A seccomp profile of this machine cannot be used.
    #[error("the seccomp profile {path:?} cannot be used")]
    SeccompFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        fault: SeccompFault,
    },
    /// The container is not in the state that the call needs.
    #[error("container {id:?} is {state}; {needs}")]
    WrongState {
        /// The container.
        id: String,
        /// The state it is in.
        state: &'static str,
        /// What the call needs.
        needs: &'static str,
    },
    /// The container's monitor cannot do what was asked.
    #[error("container {id:?}: {reason}")]
    Refused {
        /// The container.
        id: String,
        /// Why not.
        reason: String,
    },
    /// A thread for it is missing, or it failed in a way that is a bug.
    #[error(transparent)]
    NotDone(#[from] NotDone),
    /// The program could not be started.
    #[error(transparent)]
    Exec(#[from] ExecFault),
    /// The container could not be made.
    #[error("container {id:?} could not be created: {reason}")]
    Create {
        /// The container.
        id: String,
        /// What its creation reported.
        reason: String,
    },
    /// The container's monitor died; its container is being killed.
    #[error("the monitor of container {id:?} is gone")]
    MonitorLost {
        /// The container.
        id: String,
    },
    /// The container's monitor lives and does not answer; the container is left as it is.
    #[error(
        "the monitor of container {id:?} did not answer within {seconds} s; it may be stopped: \
         continue it, or delete the container"
    )]
    MonitorSilent {
        /// The container.
        id: String,
        /// How long it had.
        seconds: u64,
    },
    /// The spawner died while it worked on this; another takes its place.
    #[error("the spawner process died or did not answer, and was replaced; try again")]
    SpawnerLost,
    /// Others wait for the spawner, which does not answer them.
    #[error("the spawner process did not answer others in time, who came first; try again")]
    SpawnerBusy,
    /// What was made by another version of this program, or whose record is damaged. It is left as it is.
    #[error(
        "{kind} {id:?} is not understood and left as it is: {reason}; run the version that made it, or end its processes and \
         remove its record by hand"
    )]
    Unknown {
        /// What it is.
        kind: Kind,
        /// Its id.
        id: String,
        /// Which record or monitor cannot be understood, and why.
        reason: String,
    },
    /// Nobody answers at a port of a sandbox.
    #[error("cannot connect to port {port} in sandbox {sandbox:?}")]
    Dial {
        /// The sandbox.
        sandbox: String,
        /// The port on its loopback device.
        port: u16,
        /// What the last attempt brought.
        #[source]
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Why a program could not be started; `code` is what a shell would return for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExecFault {
    /// 127 when the program does not exist, otherwise 126.
    pub code: i32,
    /// What failed, in the words that users of other runtimes know.
    pub message: String,
}

/// What an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pod sandbox.
    Sandbox,
    /// A container.
    Container,
    /// An exec session.
    Session,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandbox => "sandbox",
            Self::Container => "container",
            Self::Session => "session",
        })
    }
}
