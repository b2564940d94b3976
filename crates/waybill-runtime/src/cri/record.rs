//! What is remembered about sandboxes and containers: a `record.json` for each, on tmpfs.
//!
//! A record is written whole or not at all, and last: a directory without one is garbage of a request
//! that did not come to its end. Values of variables are not part of it.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use waybill_proto::cri::{
    ContainerConfig, LinuxContainerResources, LinuxSandboxSecurityContext, NamespaceMode,
    NamespaceOption, PodSandboxConfig,
};

use super::{machine::Machine, spec::user_namespace};
use crate::{
    engine::Namespaces,
    id_map::UserNamespace,
    versioned::{self, Unreadable, Versioned},
};

const FILE: &str = "record.json";
const NEW_FILE: &str = ".record.json.new";

/// A pod sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) id: String,
    /// Nanoseconds since 1970, as all times here.
    pub(crate) created_at: i64,
    pub(crate) config: PodSandboxConfig,
    pub(crate) runtime_handler: String,
    pub(crate) namespaces: NamespacePaths,
    pub(crate) cgroup_parent: PathBuf,
    pub(crate) stopped: bool,
}

impl Versioned for SandboxRecord {
    const VERSION: u32 = 2;

    /// Who knows of no user namespaces would make containers without.
    fn version(&self) -> u32 {
        if self.namespaces.user.is_some() { 2 } else { 1 }
    }
}

impl SandboxRecord {
    pub(crate) fn security_context(&self) -> Option<&LinuxSandboxSecurityContext> {
        self.config.linux.as_ref()?.security_context.as_ref()
    }

    pub(crate) fn namespace_options(&self) -> NamespaceOption {
        self.security_context().and_then(|it| it.namespace_options.clone()).unwrap_or_default()
    }

    /// The user namespace that its containers are in, if they do not share the machine's.
    pub(crate) fn user_namespace(&self) -> Option<UserNamespace> {
        let map = user_namespace::requested(&self.namespace_options()).ok().flatten()?;
        Some(UserNamespace { pin: self.namespaces.user.clone()?, map })
    }

    pub(crate) fn is_privileged(&self) -> bool {
        self.security_context().is_some_and(|context| context.privileged)
    }

    /// What its containers see as the name of their machine.
    pub(crate) fn hostname<'a>(&'a self, machine: &'a Machine) -> &'a str {
        let shares = self.namespace_options().network() == NamespaceMode::Node;
        if shares || self.config.hostname.is_empty() {
            &machine.hostname
        } else {
            &self.config.hostname
        }
    }
}

/// The namespaces that containers of a sandbox join; `None` where they share the machine's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamespacePaths {
    pub(crate) network: Option<PathBuf>,
    pub(crate) ipc: Option<PathBuf>,
    pub(crate) uts: Option<PathBuf>,
    pub(crate) pid: Option<PathBuf>,
    #[serde(default)]
    pub(crate) user: Option<PathBuf>,
}

impl From<Namespaces> for NamespacePaths {
    fn from(namespaces: Namespaces) -> Self {
        let Namespaces { network, ipc, uts, pid, user } = namespaces;
        Self { network, ipc, uts, pid, user }
    }
}

/// A container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    pub(crate) created_at: i64,
    /// Without its variables.
    pub(crate) config: ContainerConfig,
    /// Names of its variables in order, less those that are not to be shown.
    pub(crate) env_names: Vec<String>,
    pub(crate) image_id: String,
    /// As `repository@digest` where one is known, or else the id.
    pub(crate) image_ref: String,
    /// The name that the image had when the container was made, if it had one with a tag.
    #[serde(default)]
    pub(crate) image_tag: Option<String>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) user: RecordedUser,
    /// What is in force, updates included.
    pub(crate) resources: LinuxContainerResources,
    /// As the kernel counts.
    pub(crate) stop_signal: i32,
    /// Why it could not be started, if that was tried and failed.
    pub(crate) start_error: Option<StartError>,
    /// Whether somebody asked for its removal, which is brought to its end whatever happens: what is left of it would look like
    /// a container that ended by itself.
    #[serde(default)]
    pub(crate) removing: bool,
}

impl Versioned for ContainerRecord {
    const VERSION: u32 = 1;
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// A start that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartError {
    pub(crate) at: i64,
    pub(crate) message: String,
}

/// Makes a directory that only we may enter; one that exists is an error.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Writes the record of `directory` in place of an older one.
pub(crate) fn write<T: Versioned + Serialize>(directory: &Path, record: &T) -> io::Result<()> {
    let (new, path) = (directory.join(NEW_FILE), directory.join(FILE));
    let mut options = fs::File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&versioned::to_vec(record)?)?;
    fs::rename(new, path)
}

/// Removes `directory` with its record and the empty directories `below` it. Twice is fine.
pub(crate) fn remove(directory: &Path, below: &[&str]) -> io::Result<()> {
    let ignore_missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    for name in below {
        ignore_missing(fs::remove_dir(directory.join(name)))?;
    }
    for name in [NEW_FILE, FILE] {
        ignore_missing(fs::remove_file(directory.join(name)))?;
    }
    ignore_missing(fs::remove_dir(directory))
}

/// Reads the record of `directory`, if it has one.
pub(crate) fn read<T: Versioned + DeserializeOwned>(
    directory: &Path,
) -> Result<Option<T>, Unreadable> {
    versioned::load(&directory.join(FILE))
}

/// The file of the record of `directory`.
pub(crate) fn file(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

/// The names of the directories in `parent`, none if it does not exist.
pub(crate) fn directories(parent: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

#[cfg(test)]
impl ContainerRecord {
    /// One whose configuration still has a variable.
    pub(crate) fn plain() -> Self {
        let secret =
            waybill_proto::cri::KeyValue { key: "SECRET".into(), value: b"hunter2".to_vec() };
        Self {
            id: "c".into(),
            sandbox: "s".into(),
            created_at: 1,
            config: ContainerConfig {
                envs: vec![secret],
                labels: [("a".to_owned(), "b".to_owned())].into(),
                ..ContainerConfig::default()
            },
            env_names: vec!["PATH".into()],
            image_id: "sha256:1".into(),
            image_ref: "sha256:1".into(),
            image_tag: None,
            log: None,
            user: RecordedUser { uid: 1, gid: 2, groups: vec![2] },
            resources: LinuxContainerResources::default(),
            stop_signal: 15,
            start_error: None,
            removing: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use waybill_proto::cri::PodSandboxMetadata;

    use super::*;

    fn container() -> ContainerRecord {
        ContainerRecord::plain()
    }

    #[test]
    fn a_record_comes_back_without_the_values_of_variables() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read::<ContainerRecord>(directory.path()).unwrap().is_none());
        write(directory.path(), &container()).unwrap();
        let text = fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("SECRET"), "{text}");
        let back: ContainerRecord = read(directory.path()).unwrap().unwrap();
        assert!(back.config.envs.is_empty());
        assert_eq!((back.config.labels, back.user), (container().config.labels, container().user));
    }

    #[test]
    fn what_is_not_ours_is_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("c");
        fs::create_dir_all(directory.join("rootfs/etc")).unwrap();
        write(&directory, &container()).unwrap();
        assert!(remove(&directory, &["rootfs"]).is_err());
        assert!(directory.join("rootfs/etc").exists());
        fs::remove_dir(directory.join("rootfs/etc")).unwrap();
        for _ in 0..2 {
            remove(&directory, &["rootfs"]).unwrap();
            assert!(!directory.exists());
        }
    }

    #[test]
    fn a_broken_record_is_an_error_and_not_nothing() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "{").unwrap();
        assert!(read::<ContainerRecord>(directory.path()).is_err());
    }

    #[test]
    fn directories_of_a_parent_that_is_missing_are_none() {
        let parent = tempfile::tempdir().unwrap();
        make_directory(&parent.path().join("a")).unwrap();
        assert_eq!(directories(parent.path()).unwrap(), ["a"]);
        assert!(directories(&parent.path().join("none")).unwrap().is_empty());
        assert!(make_directory(&parent.path().join("a")).is_err());
    }

    #[test]
    fn a_sandbox_on_the_machines_network_has_the_machines_name() {
        let machine = Machine::plain();
        let mut record = SandboxRecord {
            id: "s".into(),
            created_at: 1,
            config: PodSandboxConfig {
                metadata: Some(PodSandboxMetadata::default()),
                hostname: "pod".into(),
                ..PodSandboxConfig::default()
            },
            runtime_handler: String::new(),
            namespaces: NamespacePaths::default(),
            cgroup_parent: "/".into(),
            stopped: false,
        };
        assert_eq!(record.hostname(&machine), "pod");
        record.config.hostname.clear();
        assert_eq!(record.hostname(&machine), "node-1");
    }
}
