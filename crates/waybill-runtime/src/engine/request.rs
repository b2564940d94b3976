//! Checks what the engine is asked for, and makes of a spec what libcontainer is given.
//!
//! What we cannot do exactly is refused here, before anything is made.

use std::path::PathBuf;

use oci_spec::runtime::{LinuxNamespaceType, Spec};

use super::{
    EngineError, ExecRequest, Stdio,
    cgroup::{Cgroup, Hierarchies},
    settings::{self, Settings},
};

/// A container that can be made.
pub(super) struct Prepared {
    /// For libcontainer: without environment, and without what we do ourselves.
    pub(super) spec: Spec,
    pub(super) settings: Settings,
    pub(super) program: Vec<u8>,
    pub(super) cgroup: Cgroup,
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
        EngineError::Io { action: "read", path: PathBuf::from("/proc/self/status"), source }
    })?;
    if !dropped.is_empty() {
        warnings
            .push(format!("this runtime does not have, and cannot give: {}", dropped.join(", ")));
    }
    let process = spec.process_mut().as_mut().ok_or_else(|| invalid("the spec has no process"))?;
    if process.env().as_ref().is_some_and(|env| !env.is_empty()) {
        return Err(invalid("the environment must not be part of the spec"));
    }
    if process.selinux_label().is_some() {
        return Err(invalid("SELinux labels are not supported"));
    }
    let program = process
        .args()
        .as_ref()
        .and_then(|arguments| arguments.first())
        .ok_or_else(|| invalid("the container has no program to run"))?
        .clone()
        .into_bytes();
    let settings = Settings::of(process);
    process.set_env(Some(Vec::new()));
    process.set_terminal(Some(stdio.tty));
    // libcontainer fails where the kernel refuses a lower score; the creator sets it instead.
    process.set_oom_score_adj(None);
    Ok(Prepared { spec, settings, program, cgroup, machine_pids, warnings })
}

fn check_linux(spec: &Spec, hierarchies: &Hierarchies) -> Result<Cgroup, EngineError> {
    let linux = spec.linux().as_ref().ok_or_else(|| invalid("the spec is not for Linux"))?;
    if linux.seccomp().is_some() {
        return Err(invalid("seccomp profiles are not supported; run the container unconfined"));
    }
    if has_namespace(spec, LinuxNamespaceType::User) {
        return Err(invalid("user namespaces are not supported"));
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
