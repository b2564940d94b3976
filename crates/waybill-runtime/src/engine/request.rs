//! Checks what the engine is asked for, and makes of a spec what libcontainer is given.
//!
//! What we cannot do exactly is refused here, before anything is made.

use std::path::PathBuf;

use oci_spec::runtime::{LinuxNamespaceType, LinuxResources, Mount, Process, Spec, User};

use super::{
    EngineError, ExecRequest, Stdio,
    cgroup::{self, Cgroup, Hierarchies},
    settings::{self, Settings},
    users::{self, Users},
    volume::{self, Volume},
};
use crate::procfs;

/// A container that can be made.
pub(super) struct Prepared {
    /// For libcontainer: without environment and arguments, and without what we do ourselves.
    pub(super) spec: Spec,
    pub(super) settings: Settings,
    /// Program and arguments. They may hold secrets, so they are in no file.
    pub(super) arguments: Vec<Vec<u8>>,
    pub(super) cgroup: Cgroup,
    pub(super) resources: Option<LinuxResources>,
    pub(super) volumes: Vec<Volume>,
    /// None if they are the machine's.
    pub(super) users: Option<Users>,
    /// See `CreateRequest`.
    pub(super) cgroup_view: Option<PathBuf>,
    pub(super) machine_pids: bool,
    pub(super) warnings: Vec<String>,
}

/// Checks a container's spec.
pub(super) fn prepare(
    mut spec: Spec,
    stdio: &Stdio,
    hierarchies: &Hierarchies,
) -> Result<Prepared, EngineError> {
    let cgroup = check_linux(&spec, hierarchies)?;
    let machine_pids = !has_namespace(&spec, LinuxNamespaceType::Pid);
    let mut warnings = Vec::new();
    let dropped = settings::drop_unavailable_capabilities(&mut spec).map_err(|source| {
        EngineError::Io { action: "read", path: PathBuf::from(procfs::OWN_STATUS), source }
    })?;
    if !dropped.is_empty() {
        warnings
            .push(format!("this runtime does not have, and cannot give: {}", dropped.join(", ")));
    }
    let volumes = volume::take_out(&mut spec);
    let users = users::take_out(&mut spec)?;
    let cgroup_view = translate_cgroup_mount(&mut spec, hierarchies)?;
    // We make the cgroup and limit it ourselves.
    let resources = spec.linux_mut().as_mut().and_then(|linux| {
        let resources = linux.resources().clone();
        linux.set_resources(None);
        resources
    });
    let process = spec.process_mut().as_mut().ok_or_else(|| invalid("the spec has no process"))?;
    if process.env().as_ref().is_some_and(|env| !env.is_empty()) {
        return Err(invalid("the environment must not be part of the spec"));
    }
    if process.selinux_label().is_some() {
        return Err(invalid("SELinux labels are not supported"));
    }
    let arguments = process.args().clone().unwrap_or_default();
    let arguments: Vec<_> = arguments.into_iter().map(String::into_bytes).collect();
    if arguments.is_empty() {
        return Err(invalid("the container has no program to run"));
    }
    if arguments.iter().any(|argument| argument.contains(&0)) {
        return Err(invalid("an argument contains NUL"));
    }
    process.set_args(Some(vec![ARGUMENTS.to_owned()]));
    let settings = Settings::of(process);
    process.set_env(Some(Vec::new()));
    process.set_terminal(Some(stdio.tty));
    // libcontainer fails where the kernel refuses a lower score; the creator sets it instead.
    process.set_oom_score_adj(None);
    leave_last_steps_to_us(process);
    Ok(Prepared {
        spec,
        settings,
        arguments,
        cgroup,
        resources,
        volumes,
        users,
        cgroup_view,
        machine_pids,
        warnings,
    })
}

/// Stands for the arguments in `config.json`, where libcontainer wants some.
const ARGUMENTS: &str = "in-memory";

/// What `monitor::privileges` does, for first processes as for sessions.
fn leave_last_steps_to_us(process: &mut Process) {
    process.set_user(User::default());
    process.set_capabilities(None);
    process.set_apparmor_profile(None);
    process.set_cwd(PathBuf::from("/"));
}

fn check_linux(spec: &Spec, hierarchies: &Hierarchies) -> Result<Cgroup, EngineError> {
    let linux = spec.linux().as_ref().ok_or_else(|| invalid("the spec is not for Linux"))?;
    if linux.seccomp().is_some() {
        return Err(invalid("seccomp profiles of a spec are not supported; the request names one"));
    }
    if has_namespace(spec, LinuxNamespaceType::Time) {
        return Err(invalid("time namespaces are not supported"));
    }
    if !has_namespace(spec, LinuxNamespaceType::Mount) {
        return Err(invalid("a container needs a mount namespace of its own"));
    }
    let path = linux.cgroups_path().clone().unwrap_or_default();
    Cgroup::new(hierarchies, &path).ok_or_else(|| EngineError::Invalid {
        reason: format!(
            "the cgroup path {:?} is not an absolute path below the root",
            path.display()
        ),
    })
}

/// Turns the one mount of cgroups that a spec asks for into what this machine has. On one with older hierarchies
/// that is a directory with each of them mounted in it; its path for the creator, who makes it, is returned.
fn translate_cgroup_mount(
    spec: &mut Spec,
    hierarchies: &Hierarchies,
) -> Result<Option<PathBuf>, EngineError> {
    let Some(mut mounts) = spec.mounts().clone() else { return Ok(None) };
    let is_cgroup = |mount: &Mount| mount.typ().as_deref() == Some("cgroup");
    let Some(at) = mounts.iter().position(is_cgroup) else { return Ok(None) };
    let mut mount = mounts.remove(at);
    if mounts.iter().any(is_cgroup) {
        return Err(invalid("cgroups are mounted more than once"));
    }
    if hierarchies.is_unified() {
        mount.set_typ(Some("cgroup2".to_owned()));
        mounts.insert(at, mount);
        spec.set_mounts(Some(mounts));
        return Ok(None);
    }
    let mut options = mount.options().clone().unwrap_or_default();
    options.push("bind".to_owned());
    mount.set_options(Some(options));
    mount.set_typ(Some("bind".to_owned()));
    let view = PathBuf::from(VIEW);
    let parts = hierarchies.legacy_names().map(|name| {
        let mut part = mount.clone();
        part.set_source(Some(cgroup::source_of(&view, name)));
        part.set_destination(mount.destination().join(name));
        part
    });
    let parts: Vec<Mount> = parts.collect();
    mount.set_source(Some(view.clone()));
    mounts.splice(at..at, [mount].into_iter().chain(parts));
    spec.set_mounts(Some(mounts));
    Ok(Some(view))
}

/// Both exist only in the mount namespace in which libcontainer runs: the cgroups that the container sees, and
/// its volumes.
const VIEW: &str = "/sys/fs/cgroup/container";
pub(super) const STAGE: &str = "/sys/fs/cgroup/volumes";

fn has_namespace(spec: &Spec, kind: LinuxNamespaceType) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    namespaces.is_some_and(|all| all.iter().any(|namespace| namespace.typ() == kind))
}

/// Checks what a session is asked to run.
pub(super) fn check_exec(request: &ExecRequest) -> Result<(), EngineError> {
    check_id(&request.session)?;
    if request.argv.first().is_none_or(Vec::is_empty) {
        return Err(invalid("no program is given"));
    }
    if request.argv.iter().any(|argument| argument.contains(&0)) {
        return Err(invalid("an argument contains NUL"));
    }
    Ok(())
}

/// Ids become names of files and cgroups.
pub(super) fn check_id(id: &str) -> Result<(), EngineError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if id.is_empty() || id.len() > 128 || id.starts_with('.') || !id.bytes().all(plain) {
        return Err(EngineError::Invalid {
            reason: format!(
                "{id:?} is not an id: 1 to 128 letters, digits, '-', '_' and '.', the first not '.'"
            ),
        });
    }
    Ok(())
}

pub(super) fn invalid(reason: &str) -> EngineError {
    EngineError::Invalid { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_fit_for_a_file_name() {
        assert!(check_id("0a-b_c.d").is_ok());
        for bad in ["", ".", "..", ".a", "a/b", "a b", "é", &"x".repeat(129)] {
            assert!(check_id(bad).is_err(), "{bad}");
        }
    }
}
