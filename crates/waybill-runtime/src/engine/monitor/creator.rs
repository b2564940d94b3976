//! Makes a container: a short-lived child of the monitor runs libcontainer, so that its memory goes away with
//! it. The container's first process becomes the monitor's child and waits for the start.

use std::{
    collections::HashMap,
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    rc::Rc,
};

use libcontainer::{
    container::builder::ContainerBuilder,
    syscall::syscall::SyscallType,
    workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError},
};
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxResources, Spec};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use waybill_core::chain::Chain;

use super::{
    apparmor,
    child::{self, Program},
    movable, privileges, proc, users, view, volumes,
};
use crate::engine::{
    cgroup::Cgroup,
    environment::{self, Block},
    settings::Settings,
    sys,
    users::Users,
    volume::Volume,
    wire,
};
use crate::procfs::MountTable;

/// The name that libcontainer knows the container by, which is also the directory of its state. The same for all: each
/// container has a run directory of its own.
pub(super) const OCI: &str = "oci";
/// Where libcontainer's process waits for the start.
pub(super) const START_SOCKET: &str = "oci/notify.sock";
/// Where libcontainer sends the terminal.
pub(super) const CONSOLE_SOCKET: &str = "console.sock";

/// What is ready before the fork.
pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) cgroup: Cgroup,
    pub(super) resources: Option<LinuxResources>,
    /// See `CreateRequest`.
    pub(super) device_rules: Option<Vec<LinuxDeviceCgroup>>,
    pub(super) volumes: Vec<Volume>,
    pub(super) users: Option<Users>,
    pub(super) cgroup_view: Option<PathBuf>,
    pub(super) arguments: Block,
    pub(super) environment: Block,
    /// The container's ends, or `None` for a terminal.
    pub(super) stdio: Option<[OwnedFd; 3]>,
    /// To the monitor: the outcome.
    pub(super) outcome: OwnedFd,
    /// To the monitor: why the program could not be executed at the start.
    pub(super) status: OwnedFd,
}

/// How the creation went.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Outcome {
    Created {
        pid: i32,
        warnings: Vec<String>,
        /// See [`movable`].
        privileged: bool,
    },
    Failed {
        reason: String,
    },
}

/// Runs in the child and does not come back. The current directory is the container's run directory.
pub(super) fn run(plan: Plan) -> ! {
    let Plan {
        settings,
        cgroup,
        resources,
        device_rules,
        volumes,
        users,
        cgroup_view,
        arguments,
        environment,
        stdio,
        outcome,
        status,
    } = plan;
    let mut keep = vec![outcome.as_fd(), status.as_fd()];
    keep.extend(stdio.iter().flatten().map(OwnedFd::as_fd));
    let result = sys::close_all_but(&keep)
        .and_then(|()| enter(&cgroup, resources.as_ref(), device_rules.as_deref()))
        .map_err(|error| format!("cannot enter the container's cgroups: {}", Chain(&error)))
        .and_then(|()| prepare_mounts(&cgroup, &volumes, users.as_ref(), cgroup_view.as_deref()))
        .and_then(|has_cgroups| {
            let privileged =
                has_cgroups || movable::by_rights(settings.capabilities.bounding, users.is_some());
            let (pid, mut warnings) = create(&settings, (arguments, environment), stdio, status)?;
            warnings.extend(volumes::put_late(&volumes, pid)?);
            Ok(Outcome::Created { pid, warnings, privileged })
        });
    let message = match result {
        Ok(created) => created,
        Err(reason) => Outcome::Failed { reason },
    };
    if let Ok(mut message) = wire::Outgoing::new(&message, &[], Vec::new()) {
        let _ = message.send(outcome.as_fd());
    }
    sys::exit_now(0)
}

/// The unified hierarchy was entered by the fork.
fn enter(
    cgroup: &Cgroup,
    resources: Option<&LinuxResources>,
    device_rules: Option<&[LinuxDeviceCgroup]>,
) -> io::Result<()> {
    if let Some(resources) = resources {
        cgroup.apply(resources)?;
    }
    if let Some(rules) = device_rules {
        cgroup.guard_devices(rules)?;
    }
    cgroup.finish_leaves()?;
    child::enter_cgroups(&cgroup.entrances()?)
}

/// Volumes are taken before anything is changed: their propagation is that of the machine. Whether one of them holds cgroups for
/// writing.
fn prepare_mounts(
    cgroup: &Cgroup,
    volumes: &[Volume],
    users: Option<&Users>,
    view: Option<&Path>,
) -> Result<bool, String> {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    view::leave_mounts().map_err(|error| format!("cannot leave the machine's mounts: {error}"))?;
    let namespace = users.map(users::open).transpose()?;
    let clones = volumes::take(volumes, namespace.as_ref())?;
    view::hide_cgroups(cgroup, view)
        .map_err(|error| format!("cannot hide the machine's cgroups: {error}"))?;
    users.map(users::put).transpose()?;
    volumes::put(&clones)?;
    // A machine that does not tell is in doubt.
    let table = (!volumes.is_empty()).then(MountTable::read);
    Ok(table.is_some_and(|table| table.map_or(true, |it| movable::by_volumes(volumes, &it))))
}

fn create(
    settings: &Settings,
    (arguments, environment): (Block, Block),
    stdio: Option<[OwnedFd; 3]>,
    status: OwnedFd,
) -> Result<(i32, Vec<String>), String> {
    let mut warnings = Vec::new();
    if let Err(error) = child::set_oom_score(settings) {
        warnings.push(format!("the OOM score adjustment was not applied: {error}"));
    }
    if let Some(profile) = &settings.apparmor_profile {
        // Processes that are forked from here on inherit it.
        apparmor::change_on_exec(profile).map_err(|error| {
            format!("cannot change to the AppArmor profile {profile:?}: {error}")
        })?;
    }
    // libcontainer sets groups only if there are some; ours must not become the container's.
    rustix::thread::set_thread_groups(&[]).map_err(|error| error.to_string())?;
    let directory = std::env::current_dir().map_err(|error| error.to_string())?;
    let executor = Workload {
        arguments: Rc::new(arguments),
        environment: Rc::new(environment),
        status: Rc::new(status),
        settings: settings.clone(),
    };
    let pid = build(&directory, executor, stdio).map_err(|error| Chain(&error).to_string())?;
    Ok((pid, warnings))
}

fn build(
    directory: &Path,
    executor: Workload,
    stdio: Option<[OwnedFd; 3]>,
) -> Result<i32, libcontainer::error::LibcontainerError> {
    let mut builder = ContainerBuilder::new(OCI.to_owned(), SyscallType::default())
        .with_root_path(directory)?
        .with_executor(executor);
    builder = match stdio {
        Some([stdin, stdout, stderr]) => {
            builder.with_stdin(stdin).with_stdout(stdout).with_stderr(stderr)
        }
        None => builder.with_console_socket(Some(directory.join(CONSOLE_SOCKET))),
    };
    let container = builder
        .as_init(directory)
        .with_systemd(false)
        .with_detach(true)
        .as_sibling(true)
        .build()?;
    Ok(container.pid().map_or(0, |pid| pid.as_raw()))
}

/// Executes the container's program with the arguments and the environment that only memory holds.
#[derive(Clone)]
struct Workload {
    arguments: Rc<Block>,
    environment: Rc<Block>,
    status: Rc<OwnedFd>,
    settings: Settings,
}

impl Workload {
    fn program(&self) -> Option<Program> {
        let argv = environment::strings(&self.arguments)
            .map(|argument| CString::new(argument).ok())
            .collect::<Option<Vec<_>>>()?;
        Program::new(argv, &self.environment)
    }
}

impl Executor for Workload {
    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        let program = self.program().ok_or(ExecutorError::InvalidArg)?;
        let mut environment: Block = self.environment.to_vec().into();
        child::add_home(&mut environment, self.settings.uid);
        sys::reset_signals();
        let fault = match privileges::seal(&self.settings) {
            Ok(()) => program.execute(&environment),
            Err(fault) => fault,
        };
        fault.report(self.status.as_fd());
        sys::exit_now(fault.code())
    }

    /// Whether the program can be executed is told at the start, as other runtimes do.
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        let missing = || "the container has no program to run".to_owned();
        let program = self.program();
        program.map(drop).ok_or_else(|| ExecutorValidationError::ArgValidationError(missing()))
    }

    /// The last step before the process waits for its start. What libcontainer made of `config.json`, which holds no variables, is
    /// of no use. It did not change to the container's user or directory either (see `request::prepare`): it still has
    /// directories of the machine open, such as its `/proc`, until we close them here.
    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        let failed = ExecutorSetEnvsError::Other;
        sys::close_all_but_sockets().map_err(|error| failed(error.to_string()))?;
        proc::check().map_err(failed)?;
        privileges::settle(&self.settings)
            .map_err(|fault| failed(fault.describe(b"", &self.settings.cwd)))
    }
}
