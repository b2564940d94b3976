//! What is asked of a record. Everything that is set must match.

use jiff::Timestamp;

/// Which sessions are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// The user who asked.
    pub user: Option<String>,
    /// The pod, or `namespace/pod`.
    pub pod: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// Not those that ended before.
    pub since: Option<Timestamp>,
    /// Not those that began after.
    pub until: Option<Timestamp>,
    /// Only with this text in what was asked for, or in a program or argument of what ran.
    pub command: Option<String>,
    /// Only with a variable of this name.
    pub variable: Option<String>,
    /// Only those in which this process ran, as the machine counts.
    pub pid: Option<u32>,
    /// Only the one with this name: its id in the record, the runtime's name, or its audit ID.
    pub session: Option<String>,
    /// Only with this text anywhere: user, groups, addresses, place, command, variables, programs, arguments.
    pub text: Option<String>,
    /// Also what the node runs by itself, such as probes.
    pub probes: bool,
    /// At most so many, the newest; all if absent.
    pub limit: Option<usize>,
}

/// Which programs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessQuery {
    /// Of the session with this id.
    pub session: Option<String>,
    /// Not those that ended before.
    pub since: Option<Timestamp>,
    /// Not those that began after.
    pub until: Option<Timestamp>,
    /// Only with this text in the program or an argument.
    pub text: Option<String>,
    /// Not so many of the oldest.
    pub offset: usize,
    /// At most so many, the oldest of the rest; all if absent.
    pub limit: Option<usize>,
}
