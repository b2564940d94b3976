//! Making, changing and removing containers.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxResources};

use super::{Engine, Entry, Result, blocking, io_error, making, silent::end_monitor};
use crate::engine::{
    ContainerRequest, EngineError, Kind, SeccompProfile, State,
    cgroup::{Cgroup, DeviceGuard},
    client::Client,
    environment,
    message::{CreateRequest, Reply, Request},
    record::{self, ContainerFile},
    request::{self, Prepared},
    seccomp::{Filter, Filters},
    wire::Reader,
};

/// How long processes that were killed may take to die.
const PATIENCE: Duration = Duration::from_secs(10);

impl Engine {
    pub(super) async fn make_container(&self, id: &str, request: ContainerRequest) -> Result<()> {
        request::check_id(id)?;
        let ContainerRequest { spec, env, stdio, seccomp, program_name } = request;
        let mut prepared = request::prepare(spec, &stdio, &self.hierarchies)?;
        let capabilities = prepared.settings.capabilities.bounding;
        prepared.settings.seccomp = self.filter(seccomp, capabilities).await?;
        for warning in &prepared.warnings {
            tracing::warn!(container = id, "{warning}");
        }
        let entry = self.reserve(id, &prepared)?;
        let Prepared {
            spec,
            settings,
            arguments,
            resources,
            volumes,
            users,
            cgroup_view,
            machine_pids,
            ..
        } = prepared;
        let block = environment::block_of(&arguments, &[&env]);
        drop(env);
        let program = program_name.map(String::into_bytes);
        let program = program.or_else(|| arguments.first().cloned()).unwrap_or_default();
        let request = CreateRequest {
            cgroup: entry.cgroup.path(),
            device_rules: self.device_rules(resources.as_ref()),
            resources,
            volumes,
            users,
            cgroup_view,
            stdio,
            settings,
            arguments: arguments.len(),
            program,
            machine_pids,
        };
        let mut follower = None;
        let made = async {
            let client = self.start_monitor(&entry, spec).await?;
            entry.connect(Arc::clone(&client));
            follower = Some(self.follow(Arc::clone(&entry), client, Reader::default()));
            let (reply, _) = entry.ask(Request::Create(Box::new(request)), &block).await?;
            let Reply::Created { warnings } = reply else { return Err(entry.unexpected(reply)) };
            for warning in warnings {
                tracing::warn!(container = id, "{warning}");
            }
            Ok(())
        };
        let made = made.await;
        if made.is_err() {
            // A monitor that made nothing ends, and its end is written into the directory that must go.
            if let Some(follower) = follower {
                let ended = tokio::time::timeout(PATIENCE, follower).await;
                if ended.is_err() {
                    self.end_unmade(&entry).await;
                }
            }
            self.discard(&entry).await;
        }
        made
    }

    async fn filter(&self, profile: SeccompProfile, capabilities: u64) -> Result<Option<Filter>> {
        match profile {
            // The disk that a file lies on may take its time.
            SeccompProfile::Localhost(_) => {
                blocking(move || Filters::default().filter(&profile, capabilities)).await
            }
            profile => self.filters.filter(&profile, capabilities),
        }
    }

    fn device_rules(&self, resources: Option<&LinuxResources>) -> Option<Vec<LinuxDeviceCgroup>> {
        let rules = || resources?.devices().clone();
        (self.device_guard == DeviceGuard::Program).then(|| rules().unwrap_or_default())
    }

    /// Takes the id, so that nobody else makes a container of that name meanwhile.
    fn reserve(&self, id: &str, prepared: &Prepared) -> Result<Arc<Entry>> {
        let taken = || EngineError::AlreadyExists { kind: Kind::Container, id: id.to_owned() };
        let mut entries = self.entries();
        if entries.contains_key(id) || self.unknown().contains_key(id) {
            return Err(taken());
        }
        let directory = self.run_dir.join("containers").join(id);
        // Those that another container made are also ours: whichever goes last removes them.
        let made = prepared
            .cgroup
            .above()
            .filter(|above| {
                !prepared.cgroup.hierarchies().has(above)
                    || entries.values().any(|other| other.made.contains(above))
            })
            .collect();
        let entry =
            Entry::new(id, directory, prepared.cgroup.clone(), made, self.patience, State::Created);
        let entry = Arc::new(entry);
        entries.insert(id.to_owned(), Arc::clone(&entry));
        Ok(entry)
    }

    async fn start_monitor(
        &self,
        entry: &Arc<Entry>,
        spec: oci_spec::runtime::Spec,
    ) -> Result<Arc<Client>> {
        let (spawner, entry) = (Arc::clone(&self.spawner), Arc::clone(entry));
        let socket = making(move || {
            let directory = &entry.directory;
            make_directory(directory).map_err(io_error("make", directory))?;
            let file = ContainerFile::new(entry.cgroup.path(), entry.made.clone());
            // The specification is read by our own spawner's child only, and has a version of its own.
            record::save(&directory.join(record::RECORD), &file)
                .and_then(|()| Ok(serde_json::to_vec(&spec)?))
                .and_then(|spec| record::write(&directory.join(record::CONFIG), &spec))
                .map_err(io_error("write a record in", directory))?;
            spawner.monitor(directory).map_err(spawner_error)
        })
        .await?;
        Client::new(socket).map(Arc::new).map_err(spawner_error)
    }

    pub(super) async fn unmake_container(&self, id: &str) -> Result<()> {
        let entry = match self.entry(id) {
            Err(EngineError::NotFound { .. }) => return Ok(()),
            found => found?,
        };
        match entry.state() {
            State::Running { .. } => {
                return Err(entry.wrong_state("running", "it must have ended"));
            }
            State::Created | State::Silent => {
                self.kill_all(id).await?;
                let _ =
                    tokio::time::timeout(PATIENCE + self.patience.end, self.wait_killed(id)).await;
            }
            State::Exited(_) | State::Unknown { .. } => {}
        }
        let removed = Arc::clone(&entry);
        blocking(move || remove(&removed)).await?;
        self.forget(&entry);
        Ok(())
    }

    /// Ends what a monitor is making that does not come to its end, and that monitor.
    pub(super) async fn end_unmade(&self, entry: &Arc<Entry>) {
        let unmade = Arc::clone(entry);
        let killed = blocking(move || {
            let path = unmade.cgroup.path();
            unmade.cgroup.kill().map_err(io_error("kill", &path))?;
            end_monitor(&unmade.directory)
                .map_err(io_error("end the monitor in", &unmade.directory))
        });
        if let Err(error) = killed.await {
            let error = waybill_core::chain::Chain(&error).to_string();
            tracing::warn!(container = entry.id, error, "a monitor that does not answer lives on");
        }
    }

    /// Removes what a creation that failed left behind. What cannot go yet is not forgotten, so that it can be deleted later.
    async fn discard(&self, entry: &Arc<Entry>) {
        let removed = Arc::clone(entry);
        match blocking(move || remove(&removed)).await {
            Ok(()) => self.forget(entry),
            Err(error) => tracing::warn!(
                container = entry.id,
                error = %waybill_core::chain::Chain(&error),
                "what is left of a container that could not be created was not removed"
            ),
        }
    }

    fn forget(&self, entry: &Arc<Entry>) {
        let mut entries = self.entries();
        if entries.get(&entry.id).is_some_and(|other| Arc::ptr_eq(other, entry)) {
            entries.remove(&entry.id);
        }
    }

    pub(super) async fn change_limits(&self, id: &str, resources: LinuxResources) -> Result<()> {
        let entry = self.entry(id)?;
        if matches!(entry.state(), State::Exited(_)) {
            return Err(entry.wrong_state("exited", "it must not have ended"));
        }
        blocking(move || {
            let path = entry.cgroup.path();
            entry.cgroup.change(&resources).map_err(io_error("change the limits of", &path))
        })
        .await
    }
}

/// Removes everything of a container but what others put into its directory, such as a mounted root file system.
pub(super) fn remove(entry: &Entry) -> Result<()> {
    let cgroup = &entry.cgroup;
    let failed = |source| EngineError::Io { action: "remove cgroup", path: cgroup.path(), source };
    cgroup.kill().map_err(failed)?;
    if !cgroup.wait_until_empty(PATIENCE).map_err(failed)? {
        return Err(failed(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "a process that was killed does not die",
        )));
    }
    cgroup.remove().map_err(failed)?;
    Cgroup::remove_made(cgroup.hierarchies(), &entry.made);
    remove_files(&entry.directory).map_err(io_error("remove", &entry.directory))
}

/// The record goes last, so that what was left over is found again.
pub(super) fn remove_files(directory: &Path) -> io::Result<()> {
    let ignore_missing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    };
    ignore_missing(fs::remove_dir_all(directory.join("oci")))?;
    for file in ["console.sock", record::MONITOR_SOCKET] {
        ignore_missing(fs::remove_file(directory.join(file)))?;
    }
    for file in [record::CONFIG, record::EXIT, record::CGROUPS, record::RECORD] {
        record::remove(&directory.join(file))?;
    }
    // Still there if a root file system is mounted below it; whoever mounted it removes it.
    let _ = fs::remove_dir(directory.join("rootfs"));
    let _ = fs::remove_dir(directory);
    Ok(())
}

pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

pub(super) fn spawner_error(error: io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => EngineError::SpawnerLost,
        io::ErrorKind::TimedOut => EngineError::SpawnerBusy,
        _ => EngineError::Io { action: "use", path: PathBuf::from("spawner"), source: error },
    }
}
