//! Making and removing sandboxes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::mount::UnmountFlags;
use waybill_core::chain::Chain;

use super::{
    Engine, Result, blocking, io_error,
    lifecycle::{make_directory, spawner_error},
    making,
};
use crate::{
    engine::{
        EngineError, Kind, NamespaceMode, Namespaces, SandboxRequest,
        cgroup::{Cgroup, Hierarchies},
        message::SandboxPlan,
        record::{self, Holder, SandboxFile},
        request,
        sandbox::{self, IPC, NETWORK, PID, PINS, USER, UTS},
    },
    procfs::ProcessStat,
};

/// How long a holder that was killed may take to die.
const PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    pub(super) async fn make_sandbox(
        &self,
        id: &str,
        request: &SandboxRequest,
    ) -> Result<Namespaces> {
        request::check_id(id)?;
        let own = |mode, what| match mode {
            NamespaceMode::Pod => Ok(true),
            NamespaceMode::Node => Ok(false),
            NamespaceMode::Container => Err(EngineError::Invalid {
                reason: format!("a {what} namespace for each container is not supported"),
            }),
        };
        let (network, ipc) = (own(request.network, "network")?, own(request.ipc, "IPC")?);
        if request.user.is_some() && !(network && ipc && request.hostname.is_some()) {
            return Err(request::invalid(
                "a sandbox with a user namespace needs network, IPC and host name of its own",
            ));
        }
        sandbox::check_sysctls(request.sysctls.keys(), network, ipc)
            .map_err(|reason| EngineError::Invalid { reason })?;
        let parent = Cgroup::new(&self.hierarchies, &request.cgroup_parent).ok_or_else(|| {
            EngineError::Invalid {
                reason: format!(
                    "the cgroup parent {:?} is not an absolute path below the root",
                    request.cgroup_parent.display()
                ),
            }
        })?;
        let holder_cgroup = (request.pid == NamespaceMode::Pod)
            .then(|| Cgroup::new(&self.hierarchies, &request.cgroup_parent.join(id)))
            .flatten();
        let made = parent
            .above()
            .chain([parent.relative().to_owned()])
            .filter(|path| !self.hierarchies.has(path))
            .collect();
        let file = SandboxFile {
            network,
            ipc,
            uts: request.hostname.is_some(),
            holder: None,
            user: request.user.is_some(),
            cgroup_parent: request.cgroup_parent.clone(),
            made,
            removed: false,
        };
        let directory = self.sandbox_directory(id);
        let plan = SandboxPlan {
            pins: directory.join("ns"),
            network,
            ipc,
            hostname: request.hostname.clone(),
            pid: holder_cgroup.is_some(),
            user: request.user,
            sysctls: request.sysctls.clone(),
            holder_cgroup: holder_cgroup.as_ref().map(Cgroup::directory),
        };
        let (spawner, hierarchies) = (Arc::clone(&self.spawner), self.hierarchies.clone());
        let id = id.to_owned();
        making(move || {
            reserve(&directory, &id, &file)?;
            let made = (|| {
                parent.create().map_err(io_error("make cgroup", &parent.path()))?;
                if let Some(cgroup) = &holder_cgroup {
                    cgroup.create().map_err(io_error("make cgroup", &cgroup.path()))?;
                }
                make_pins(&plan).map_err(io_error("make", &plan.pins))?;
                let holder = spawner.sandbox(plan).map_err(spawner_error)?;
                let holder = holder
                    .and_then(|pid| Some(Holder { pid, start: ProcessStat::read(pid)?.start }));
                let file = SandboxFile { holder, ..file };
                record::save(&directory.join(record::RECORD), &file)
                    .map_err(io_error("write a record in", &directory))?;
                Ok(namespaces(&directory.join("ns"), &file))
            })();
            if made.is_err() {
                let _ = remove(&directory, &id, &hierarchies);
            }
            made
        })
        .await
    }

    pub(super) async fn unmake_sandbox(&self, id: &str) -> Result<()> {
        request::check_id(id)?;
        self.check_sandbox(id)?;
        let (directory, id) = (self.sandbox_directory(id), id.to_owned());
        let hierarchies = self.hierarchies.clone();
        blocking(move || {
            remove(&directory, &id, &hierarchies).map_err(io_error("remove", &directory))
        })
        .await
    }

    pub(super) async fn finish_removals(&self) -> Result<()> {
        let sandboxes = self.run_dir.join("sandboxes");
        let hierarchies = self.hierarchies.clone();
        blocking(move || {
            finish_removals(&sandboxes, &hierarchies).map_err(io_error("clear", &sandboxes))
        })
        .await
    }

    /// The record of a sandbox that was made.
    pub(super) fn sandbox_file(&self, id: &str) -> Result<Option<SandboxFile>> {
        request::check_id(id)?;
        let file = self.sandbox_directory(id).join(record::RECORD);
        record::load(&file).map_err(|error| EngineError::Unknown {
            kind: Kind::Sandbox,
            id: id.to_owned(),
            reason: format!("{}: {}", file.display(), Chain(&error)),
        })
    }

    pub(super) fn pins(&self, id: &str) -> PathBuf {
        self.sandbox_directory(id).join("ns")
    }

    fn sandbox_directory(&self, id: &str) -> PathBuf {
        self.run_dir.join("sandboxes").join(id)
    }
}

/// Takes the id, and leaves a record of what is about to be made.
fn reserve(directory: &Path, id: &str, file: &SandboxFile) -> Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(EngineError::AlreadyExists { kind: Kind::Sandbox, id: id.to_owned() });
        }
        result => result.map_err(io_error("make", directory))?,
    }
    record::save(&directory.join(record::RECORD), file)
        .map_err(io_error("write a record in", directory))
}

fn make_pins(plan: &SandboxPlan) -> io::Result<()> {
    make_directory(&plan.pins)?;
    let wanted = [
        (plan.network, NETWORK),
        (plan.ipc, IPC),
        (plan.hostname.is_some(), UTS),
        (plan.pid, PID),
        (plan.user.is_some(), USER),
    ];
    for (_, name) in wanted.into_iter().filter(|(wanted, _)| *wanted) {
        fs::File::create(plan.pins.join(name))?;
    }
    Ok(())
}

fn namespaces(pins: &Path, file: &SandboxFile) -> Namespaces {
    let pin = |made: bool, name| made.then(|| pins.join(name));
    Namespaces {
        network: pin(file.network, NETWORK),
        ipc: pin(file.ipc, IPC),
        uts: pin(file.uts, UTS),
        pid: pin(file.holder.is_some(), PID),
        user: pin(file.user, USER),
    }
}

/// Removes all that was made of a sandbox, however far that came.
fn remove(directory: &Path, id: &str, hierarchies: &Hierarchies) -> io::Result<()> {
    let file: Option<SandboxFile> =
        record::load(&directory.join(record::RECORD)).map_err(io::Error::other)?;
    if let Some(file) = &file {
        if let Some(Holder { pid, start }) = file.holder {
            sandbox::kill_holder(pid, start);
        }
        if let Some(cgroup) = Cgroup::new(hierarchies, &file.cgroup_parent.join(id)) {
            cgroup.kill()?;
            cgroup.wait_until_empty(PATIENCE)?;
            cgroup.remove()?;
        }
    }
    let pins = directory.join("ns");
    for name in PINS {
        let pin = pins.join(name);
        match rustix::mount::unmount(&pin, UnmountFlags::DETACH) {
            // Not there, or made and not yet mounted on.
            Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        ignore_missing(fs::remove_file(pin))?;
    }
    ignore_missing(fs::remove_dir(pins))?;
    if let Some(file) = file {
        Cgroup::remove_made(hierarchies, &file.made);
        let left: Vec<_> =
            file.made.iter().filter(|path| hierarchies.have(path)).cloned().collect();
        let own = left.iter().any(|path| Path::new("/").join(path) == file.cgroup_parent);
        if own {
            // Containers that have ended still stand in there; the next removal finds what is left.
            let left = SandboxFile {
                network: false,
                ipc: false,
                uts: false,
                holder: None,
                user: false,
                removed: true,
                ..file
            };
            return record::save(&directory.join(record::RECORD), &left);
        }
        bequeath(directory, &left)?;
    }
    record::remove(&directory.join(record::RECORD))?;
    ignore_missing(fs::remove_dir(directory))
}

/// Removes what is left of sandboxes that were removed while containers stood in their cgroups.
fn finish_removals(sandboxes: &Path, hierarchies: &Hierarchies) -> io::Result<()> {
    for directory in fs::read_dir(sandboxes)? {
        let directory = directory?.path();
        // One that is not understood was not removed by us.
        let file: Option<SandboxFile> =
            record::load(&directory.join(record::RECORD)).unwrap_or_default();
        let id = directory.file_name().and_then(|name| name.to_str());
        if let (Some(id), true) = (id, file.is_some_and(|file| file.removed)) {
            remove(&directory, id, hierarchies)?;
        }
    }
    Ok(())
}

/// Leaves cgroups that other sandboxes stand in to one of those, which removes them with its own.
fn bequeath(directory: &Path, left: &[PathBuf]) -> io::Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    let Some(sandboxes) = directory.parent() else { return Ok(()) };
    for other in fs::read_dir(sandboxes)? {
        let path = other?.path();
        if path == directory {
            continue;
        }
        let Ok(Some(mut heir)) = record::load::<SandboxFile>(&path.join(record::RECORD)) else {
            continue;
        };
        let inherited: Vec<_> = left
            .iter()
            .filter(|cgroup| heir.cgroup_parent.starts_with(Path::new("/").join(cgroup)))
            .filter(|cgroup| !heir.made.contains(cgroup))
            .cloned()
            .collect();
        if !inherited.is_empty() {
            // Topmost first, and all of these stand above what the heir made.
            heir.made.splice(..0, inherited);
            return record::save(&path.join(record::RECORD), &heir);
        }
    }
    Ok(())
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
