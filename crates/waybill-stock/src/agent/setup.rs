//! Setting a node up: the wrapper, its configuration, and a handler `waybill` in the configuration of the node's runtime.
//!
//! [`plan`] decides, from the files that are there, which to write; it is pure over [`HostFiles`]. [`Host`] reads and
//! writes below a root, and [`Host::apply`] says whether anything changed, since only then is a runtime restarted.

mod containerd;
mod crio;
mod host;
mod k3s;
mod marked;
mod restart;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

pub use self::{
    host::{Changed, Host, HostError},
    restart::{Restart, RestartError},
};

/// What the handler, and the RuntimeClass, is called.
pub const HANDLER: &str = "waybill";

/// Where the wrapper is on every node. Containers keep this path for as long as they live.
pub const WRAPPER: &str = "/opt/waybill/bin/waybill-oci";

/// Where systems keep programs, in the order in which runtimes look for them.
const PROGRAM_FOLDERS: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The runtime of a node, as the node itself tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRuntime {
    /// What it is.
    pub kind: RuntimeKind,
    /// Major and minor version.
    pub version: (u64, u64),
    /// Who brought it.
    pub distribution: Distribution,
}

/// A runtime that can have a handler of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeKind {
    /// containerd
    Containerd,
    /// CRI-O
    Crio,
}

/// Who writes the configuration of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// k3s writes containerd's file anew at each start, from a template; the version is that of Kubernetes.
    K3s((u64, u64)),
    /// The administrator or the package.
    Plain,
    /// As k3s, below another folder.
    Rke2((u64, u64)),
}

impl NodeRuntime {
    /// Reads `status.nodeInfo.containerRuntimeVersion` and `.kubeletVersion` of a Node.
    pub fn parse(runtime: &str, kubelet: &str) -> Result<Self, SetupError> {
        let unknown = || SetupError::Runtime { runtime: runtime.to_owned() };
        let (name, version) = runtime.split_once("://").ok_or_else(unknown)?;
        let kind = match name {
            "containerd" => RuntimeKind::Containerd,
            "cri-o" => RuntimeKind::Crio,
            _ => return Err(unknown()),
        };
        let version = numbers(version).ok_or_else(unknown)?;
        let distribution = match numbers(kubelet) {
            Some(kubernetes) if kubelet.contains("+k3s") => Distribution::K3s(kubernetes),
            Some(kubernetes) if kubelet.contains("+rke2") => Distribution::Rke2(kubernetes),
            _ => Distribution::Plain,
        };
        Ok(Self { kind, version, distribution })
    }
}

/// `v1.7.12~ds1` begins with 1 and 7.
fn numbers(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The files of a node, by the paths that the node has for them.
pub trait HostFiles {
    /// The text of a file; nothing if there is none.
    fn read(&self, path: &str) -> Result<Option<String>, SetupError>;
    /// The names of files in a folder, in order; none if there is no such folder.
    fn list(&self, folder: &str) -> Vec<String>;
    /// Whether a program is there.
    fn is_program(&self, path: &str) -> bool;
}

/// What to do on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupPlan {
    /// Files and their texts, in the order in which to write them; without a text, the file goes.
    pub files: Vec<(String, Option<String>)>,
    /// The runtime that the wrapper becomes.
    pub real_runtime: String,
    /// How the node's runtime hears of a change.
    pub restart: Restart,
}

/// What is wanted of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A handler.
    Installed,
    /// None, and nothing left of one.
    Removed,
}

/// Decides what to write.
pub fn plan(
    runtime: &NodeRuntime,
    wanted: Wanted,
    files: &dyn HostFiles,
) -> Result<SetupPlan, SetupError> {
    match (runtime.distribution, runtime.kind) {
        (Distribution::K3s(version), _) => k3s::plan(&k3s::K3S, version, runtime, wanted, files),
        (Distribution::Rke2(version), _) => k3s::plan(&k3s::RKE2, version, runtime, wanted, files),
        (Distribution::Plain, RuntimeKind::Containerd) => {
            containerd::plan(runtime.version, wanted, files)
        }
        (Distribution::Plain, RuntimeKind::Crio) => crio::plan(runtime.version, wanted, files),
    }
}

/// The program `name` of the node, by its whole path.
fn find_program(files: &dyn HostFiles, name: &str, before: &[&str]) -> Result<String, SetupError> {
    if name.starts_with('/') {
        return match files.is_program(name) {
            true => Ok(name.to_owned()),
            false => Err(SetupError::NoProgram { name: name.to_owned() }),
        };
    }
    let folders = before.iter().chain(PROGRAM_FOLDERS);
    let mut paths = folders.map(|folder| format!("{folder}/{name}"));
    let found = paths.find(|path| files.is_program(path));
    found.ok_or_else(|| SetupError::NoProgram { name: name.to_owned() })
}

/// Why a node cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A runtime that we do not know.
    #[error(
        "the runtime {runtime:?} can have no handler of ours: containerd 1.6 and later, and CRI-O, can"
    )]
    Runtime {
        /// As the node calls it.
        runtime: String,
    },
    /// The configuration is not what the runtime itself would read.
    #[error("{path} is not understood: {why}")]
    Syntax {
        /// Which file.
        path: String,
        /// What the parser said.
        why: String,
    },
    /// The file cannot take a table of ours at its end.
    #[error("{path} cannot be edited: {why}; add this by hand:\n{block}")]
    Uneditable {
        /// Which file.
        path: String,
        /// Why not.
        why: String,
        /// What should be in it.
        block: String,
    },
    /// Somebody else has the handler.
    #[error("{path} has a handler {HANDLER:?} that is not ours")]
    Taken {
        /// Which file.
        path: String,
    },
    /// There is no OCI runtime to wrap.
    #[error("the program {name:?} is not on this node")]
    NoProgram {
        /// The name or path that the configuration has.
        name: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {why}")]
    Read {
        /// Which file.
        path: String,
        /// What the system said.
        why: String,
    },
    /// CRI is switched off.
    #[error("{path} disables the plugin cri, without which no kubelet can use containerd")]
    NoCri {
        /// Which file.
        path: String,
    },
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Containerd => "containerd",
            Self::Crio => "CRI-O",
        })
    }
}
