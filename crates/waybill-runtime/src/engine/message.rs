//! What the runtime, its spawner and the monitors say to one another. Values of variables are not part of it:
//! they travel in the block beside a header (see `wire`).

use std::{collections::BTreeMap, path::PathBuf, time::SystemTime};

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxResources};
use serde::{Deserialize, Serialize};

use super::{
    Exit, State, Stdio, cgroup::SessionIdentity, settings::Settings, users::Users, volume::Volume,
};
use crate::IdMap;

/// The version of what runtimes, spawners and monitors say to one another. What an older one says without a number is the same
/// as version 1. Fields may be added to a message, and messages that somebody can do without; whatever else changes needs a new
/// version, and who knows only older ones leaves the other side alone (ADR 0044).
pub(super) const PROTOCOL: u32 = 1;

/// From the runtime to its spawner.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum SpawnerRequest {
    /// Fork a monitor that works in a container's run directory; its first connection comes along.
    Monitor { directory: PathBuf },
    /// Make and pin namespaces.
    Sandbox(SandboxPlan),
    /// Make a network as pods have it, and let go of it.
    TryNetwork,
    /// Make a user namespace as pods have it, map the ids of that directory, and let go of both.
    TryUserNamespace { directory: PathBuf },
    /// Hold the lock that comes along open for life.
    Hold,
    /// Only answer.
    Ping,
}

/// What a sandbox's namespaces shall be.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SandboxPlan {
    /// The directory of pins, with a file for each namespace that is to be made: `net`, `ipc`, `uts`, `pid`,
    /// `user`.
    pub(super) pins: PathBuf,
    pub(super) network: bool,
    pub(super) ipc: bool,
    pub(super) hostname: Option<String>,
    pub(super) pid: bool,
    /// Of the user namespace that the others belong to.
    pub(super) user: Option<IdMap>,
    pub(super) sysctls: BTreeMap<String, String>,
    /// The unified cgroup directory of the process that holds the PID namespace.
    pub(super) holder_cgroup: Option<PathBuf>,
}

/// The spawner's answer.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum SpawnerReply {
    Done,
    /// The answer to a ping.
    Serving {
        version: u32,
    },
    /// The sandbox is made; the holder of its PID namespace, if it has one.
    Sandbox {
        holder: Option<i32>,
    },
    Failed {
        reason: String,
    },
}

/// From the runtime to a monitor.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Numbered {
    #[serde(default)]
    pub(super) version: u32,
    pub(super) number: u64,
    /// When nobody waits for the answer any more, in nanoseconds after boot. A monitor that was stopped meanwhile does nothing
    /// then; older runtimes do not tell it.
    #[serde(default)]
    pub(super) until: Option<u64>,
    pub(super) request: Request,
}

/// What is understood of every request: who waits for its answer.
#[derive(Deserialize)]
pub(super) struct Asked {
    pub(super) number: u64,
}

/// What a monitor is asked.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Request {
    /// The block holds the arguments, then the variables, each string ended by NUL.
    Create(Box<CreateRequest>),
    Start,
    Signal {
        signal: i32,
    },
    /// The block holds the arguments, then the variables, each string ended by NUL.
    Exec(SessionRequest),
    Attach {
        stdin: bool,
    },
    ReopenLog,
}

/// A container, apart from what stands in its `config.json`.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct CreateRequest {
    pub(super) cgroup: PathBuf,
    pub(super) resources: Option<LinuxResources>,
    /// What a program in the cgroup shall allow, where that is our part.
    pub(super) device_rules: Option<Vec<LinuxDeviceCgroup>>,
    pub(super) volumes: Vec<Volume>,
    /// What the container has instead of the machine's users.
    #[serde(default)]
    pub(super) users: Option<Users>,
    /// Where, for libcontainer, the container's own cgroups shall be put together.
    pub(super) cgroup_view: Option<PathBuf>,
    pub(super) stdio: Stdio,
    pub(super) settings: Settings,
    pub(super) arguments: usize,
    /// What errors call the program.
    pub(super) program: Vec<u8>,
    /// Whether the container's processes are in the machine's PID namespace.
    pub(super) machine_pids: bool,
}

/// An exec session, apart from its strings.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SessionRequest {
    pub(super) session: String,
    pub(super) container: String,
    pub(super) arguments: usize,
    pub(super) caller_variables: usize,
    pub(super) tty: bool,
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) audit_id: Option<String>,
}

/// From a monitor to the runtime.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum FromMonitor {
    /// First on every connection.
    Hello {
        #[serde(default)]
        version: u32,
        state: State,
        sessions: Vec<String>,
    },
    Reply {
        number: u64,
        reply: Reply,
    },
    /// Also to those who did not ask for the start.
    Started {
        pid: i32,
        started_at: SystemTime,
    },
    Exited(Exit),
    SessionExited {
        session: String,
        exit: Exit,
    },
}

/// What is understood of every message of a monitor, whatever its version.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Gist {
    pub(super) hello: Option<Spoken>,
    pub(super) reply: Option<Asked>,
}

/// Which version a monitor speaks.
#[derive(Deserialize)]
pub(super) struct Spoken {
    #[serde(default)]
    pub(super) version: u32,
}

/// The answer to one request.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Reply {
    Done,
    Created {
        warnings: Vec<String>,
    },
    Started {
        pid: i32,
        started_at: SystemTime,
    },
    /// With the caller's ends: the terminal's master, or the pipes that were asked for, in order.
    Session {
        pid: i32,
        started_at: SystemTime,
        /// Monitors of older runtimes do not tell it.
        #[serde(default)]
        identity: SessionIdentity,
        /// Whether root in the container could move processes between cgroups; older monitors do not tell it.
        #[serde(default)]
        privileged: bool,
    },
    /// With standard input if it was asked for, standard output, standard error or the terminal.
    Attached {
        terminal: bool,
    },
    Failed(Failure),
}

/// Why a monitor did not do what it was asked.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Failure {
    /// The request makes no sense in this state.
    Refused(String),
    /// The container was not started, or has ended or is about to.
    NotRunning,
    Create(String),
    Exec {
        code: i32,
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D15: what older monitors say has no version, and of what newer ones say enough is understood to leave them alone.
    #[test]
    fn first_words_of_other_versions_are_told_from_ours() {
        let old = r#"{"Hello":{"state":"Created","sessions":[]}}"#;
        let parsed: FromMonitor = serde_json::from_str(old).unwrap();
        assert!(matches!(parsed, FromMonitor::Hello { version: 0, state: State::Created, .. }));
        let gist = |text: &str| serde_json::from_str::<Gist>(text).unwrap();
        let newer = r#"{"Hello":{"version":2,"state":{"Frozen":{}},"more":1}}"#;
        assert_eq!(gist(newer).hello.unwrap().version, 2);
        assert!(serde_json::from_str::<FromMonitor>(newer).is_err());
        assert_eq!(gist(r#"{"Reply":{"number":7,"reply":"Wonder"}}"#).reply.unwrap().number, 7);
        let other = gist(r#"{"Melted":{"by":"sun"}}"#);
        assert!(other.hello.is_none() && other.reply.is_none());
    }
}
