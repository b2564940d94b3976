//! What lies in the run directory, on a tmpfs: records by which a runtime that was started again finds what
//! the one before it left. No environment is ever part of it.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use waybill_core::{
    env::name::{EnvName, NameRules},
    id::AuditId,
};

use super::{
    Exit, SessionRecord,
    cgroup::{CgroupIds, Layout, SessionIdentity},
};
pub(super) use crate::versioned::load;
use crate::versioned::{self, Versioned};

pub(super) const CONFIG: &str = "config.json";
pub(super) const RECORD: &str = "record.json";
pub(super) const EXIT: &str = "exit.json";
/// Which cgroups a monitor made.
pub(super) const CGROUPS: &str = "cgroups.json";
pub(super) const MONITOR_SOCKET: &str = "monitor.sock";
/// What monitors are called among processes.
pub(super) const MONITOR_NAME: &std::ffi::CStr = c"waybill-monitor";
/// What the name of a file ends with that is not whole.
pub(super) const HALF_WRITTEN: &str = ".new";
/// From a container's run directory, where its monitor works.
const SESSIONS_FROM_CONTAINER: &str = "../../sessions";

/// A sandbox.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SandboxFile {
    pub(super) network: bool,
    pub(super) ipc: bool,
    pub(super) uts: bool,
    pub(super) holder: Option<Holder>,
    /// Whether it has a user namespace.
    #[serde(default)]
    pub(super) user: bool,
    pub(super) cgroup_parent: PathBuf,
    /// Cgroups that were made for it, topmost first.
    pub(super) made: Vec<PathBuf>,
    /// Whether it was removed but for cgroups that containers still stand in.
    #[serde(default)]
    pub(super) removed: bool,
}

impl Versioned for SandboxFile {
    const VERSION: u32 = 2;

    /// Who knows of no user namespaces would make containers without.
    fn version(&self) -> u32 {
        if self.user { 2 } else { 1 }
    }
}

/// The process that holds a sandbox's PID namespace. Its start time tells it from one that got its number later.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Holder {
    pub(super) pid: i32,
    pub(super) start: u64,
}

/// A container. Version 0 lies in no leaves (see [`Layout::Flat`]).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct ContainerFile {
    #[serde(default, skip_serializing)]
    version: u32,
    pub(super) cgroup: PathBuf,
    /// Cgroups above its own that were made for it, topmost first.
    pub(super) made: Vec<PathBuf>,
}

impl Versioned for ContainerFile {
    const VERSION: u32 = 1;
}

impl ContainerFile {
    pub(super) fn new(cgroup: PathBuf, made: Vec<PathBuf>) -> Self {
        Self { version: Self::VERSION, cgroup, made }
    }

    /// How its processes lie.
    pub(super) fn layout(&self) -> Layout {
        if self.version == 0 { Layout::Flat } else { Layout::Leaves }
    }
}

impl Versioned for Exit {
    const VERSION: u32 = 1;
}

/// The cgroups that a monitor made for its container, by their IDs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct CgroupsFile {
    container: u64,
    processes: u64,
    /// Whether root in the container could move processes between cgroups; those of older monitors are not known to.
    #[serde(default)]
    pub(super) privileged: bool,
}

impl Versioned for CgroupsFile {
    const VERSION: u32 = 1;
}

impl CgroupsFile {
    pub(super) fn of(ids: CgroupIds) -> Self {
        let CgroupIds { container, processes } = ids;
        Self { container, processes, privileged: false }
    }

    pub(super) fn ids(&self) -> CgroupIds {
        let Self { container, processes, .. } = *self;
        CgroupIds { container, processes }
    }
}

/// An exec session. The cgroup of one of version 0 is not known by its ID.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct SessionFile {
    #[serde(default)]
    pub(super) identity: SessionIdentity,
    /// Whether root in its container could move processes between cgroups.
    #[serde(default)]
    pub(super) privileged: bool,
    pub(super) id: String,
    pub(super) container: String,
    pub(super) pid: i32,
    pub(super) started_at: SystemTime,
    pub(super) exit: Option<Exit>,
    pub(super) injected: Vec<Name>,
    pub(super) audit_id: Option<String>,
}

impl Versioned for SessionFile {
    const VERSION: u32 = 1;
}

/// A variable's name, which need not be text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Name {
    Text(String),
    Bytes(Vec<u8>),
}

impl SessionFile {
    pub(super) fn of(record: &SessionRecord) -> Self {
        Self {
            identity: SessionIdentity { cgroup_id: record.cgroup_id, made_at: record.made_at },
            privileged: record.privileged,
            id: record.id.clone(),
            container: record.container.clone(),
            pid: record.pid,
            started_at: record.started_at,
            exit: record.exit.clone(),
            injected: names_of(record.injected.iter().cloned()),
            audit_id: record.audit_id.as_ref().map(ToString::to_string),
        }
    }

    /// The same, without what had a meaning only until the machine was started anew: numbers of processes and cgroups.
    pub(super) fn of_another_boot(self) -> Self {
        Self { identity: SessionIdentity::default(), pid: 0, ..self }
    }

    pub(super) fn into_record(self) -> SessionRecord {
        let names = self.injected.iter().map(|name| match name {
            Name::Text(text) => text.as_bytes(),
            Name::Bytes(bytes) => bytes,
        });
        SessionRecord {
            injected: names
                .filter_map(|name| EnvName::parse_bytes(name, NameRules::Kernel).ok())
                .collect(),
            id: self.id,
            container: self.container,
            pid: self.pid,
            started_at: self.started_at,
            cgroup_id: self.identity.cgroup_id,
            made_at: self.identity.made_at,
            privileged: self.privileged,
            exit: self.exit,
            audit_id: self.audit_id.and_then(|id| AuditId::parse(&id).ok()),
        }
    }
}

/// Each name once, in order.
pub(super) fn names_of(names: impl Iterator<Item = EnvName>) -> Vec<Name> {
    let mut seen = HashSet::new();
    names
        .map(|name| match name.as_str() {
            Some(text) => Name::Text(text.to_owned()),
            None => Name::Bytes(name.as_bytes().to_vec()),
        })
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

/// Writes a record as a whole or not at all.
pub(super) fn save<T: Versioned + Serialize>(path: &Path, content: &T) -> io::Result<()> {
    write(path, &versioned::to_vec(content)?)
}

/// Writes a file as a whole or not at all.
pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = half_written(path);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(new);
    }
    written
}

/// Removes a file, and what is left of one whose writer died. Twice is fine.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    for file in [&half_written(path), path] {
        match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
    }
    Ok(())
}

fn half_written(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(HALF_WRITTEN);
    path.with_file_name(name)
}

/// For a monitor.
pub(super) fn save_session(session: &SessionFile) -> io::Result<()> {
    save(&session_file(Path::new(SESSIONS_FROM_CONTAINER), &session.id), session)
}

/// For a monitor: forgets a session that never ran.
pub(super) fn remove_session(id: &str) {
    let _ = fs::remove_file(session_file(Path::new(SESSIONS_FROM_CONTAINER), id));
}

pub(super) fn session_file(sessions: &Path, id: &str) -> PathBuf {
    sessions.join(format!("{id}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_keeps_every_name_once_also_one_that_is_no_text() {
        let name = |bytes: &[u8]| EnvName::parse_bytes(bytes, NameRules::Kernel).unwrap();
        let names = [name(b"A"), name(b"\xff"), name(b"A")];
        let file = SessionFile {
            identity: SessionIdentity { cgroup_id: 7, made_at: 9 },
            privileged: true,
            id: "s".to_owned(),
            container: "c".to_owned(),
            pid: 1,
            started_at: SystemTime::UNIX_EPOCH,
            exit: None,
            injected: names_of(names.into_iter()),
            audit_id: None,
        };
        let text = serde_json::to_string(&file).unwrap();
        let record = serde_json::from_str::<SessionFile>(&text).unwrap().into_record();
        assert_eq!(record.injected, [name(b"A"), name(b"\xff")]);
        assert_eq!((record.cgroup_id, record.made_at, record.privileged), (7, 9, true));
    }

    /// D15
    #[test]
    fn containers_and_sessions_of_runtimes_before_there_were_versions_are_understood() {
        let layout = |text: &str| {
            versioned::from_slice::<ContainerFile>(text.as_bytes()).map(|file| file.layout())
        };
        assert_eq!(layout(r#"{"cgroup":"/a","made":[]}"#).unwrap(), Layout::Flat);
        assert_eq!(layout(r#"{"version":1,"cgroup":"/a","made":[]}"#).unwrap(), Layout::Leaves);
        assert!(layout(r#"{"version":2,"cgroup":"/a","made":[]}"#).is_err());
        let session = r#"{"id":"s","container":"c","pid":1,"started_at":
            {"secs_since_epoch":1,"nanos_since_epoch":0},"exit":null,"injected":[],"audit_id":null}"#;
        let session = versioned::from_slice::<SessionFile>(session.as_bytes()).unwrap();
        let session = session.into_record();
        assert_eq!((session.cgroup_id, session.made_at, session.privileged), (0, 0, false));
    }

    #[test]
    fn files_are_replaced_as_a_whole_and_are_for_their_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.json");
        let made = || load::<ContainerFile>(&path).unwrap().map(|file| file.made.len());
        assert_eq!(made(), None);
        for count in [1, 2] {
            let made = vec![PathBuf::from("/a"); count];
            save(&path, &ContainerFile::new("/a".into(), made)).unwrap();
        }
        assert_eq!(made(), Some(2));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }
}
