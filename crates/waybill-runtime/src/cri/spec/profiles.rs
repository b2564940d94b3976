//! Confinement by seccomp, AppArmor and SELinux: what is asked for must hold, so it is refused here as
//! long as nothing carries it out.

use waybill_proto::cri::{
    LinuxContainerSecurityContext, LinuxSandboxSecurityContext, SeLinuxOption, SecurityProfile,
    security_profile::ProfileType,
};

use crate::cri::{
    error::{CriError, Result},
    machine::Machine,
};

/// What a container may ask for.
pub(super) fn check_container(
    context: &LinuxContainerSecurityContext,
    machine: &Machine,
) -> Result<()> {
    if context.privileged {
        // Privileged containers are not confined, whatever else the request says.
        return Ok(());
    }
    #[expect(deprecated, reason = "older kubelets send the profile as a path")]
    let (seccomp_path, apparmor_path) = (&context.seccomp_profile_path, &context.apparmor_profile);
    check_seccomp(context.seccomp.as_ref(), seccomp_path)?;
    check_apparmor(context.apparmor.as_ref(), apparmor_path, machine)?;
    check_selinux(context.selinux_options.as_ref(), machine)
}

/// What a sandbox may ask for. Kubelets ask for the default seccomp profile for every sandbox; no
/// program of the pod runs there, only a process of ours that waits.
pub(crate) fn check_sandbox(
    context: &LinuxSandboxSecurityContext,
    machine: &Machine,
) -> Result<()> {
    if context.seccomp.as_ref().is_some_and(|it| it.profile_type() == ProfileType::Localhost) {
        return Err(no_seccomp());
    }
    check_apparmor(context.apparmor.as_ref(), "", machine)?;
    check_selinux(context.selinux_options.as_ref(), machine)
}

fn check_seccomp(profile: Option<&SecurityProfile>, path: &str) -> Result<()> {
    let confined = match profile.map(SecurityProfile::profile_type) {
        Some(ProfileType::RuntimeDefault | ProfileType::Localhost) => true,
        Some(ProfileType::Unconfined) => false,
        None => !matches!(path, "" | "unconfined"),
    };
    if confined { Err(no_seccomp()) } else { Ok(()) }
}

fn no_seccomp() -> CriError {
    let advice = "set seccompProfile.type to Unconfined, or run the pod on another runtime";
    CriError::unsupported("a seccomp profile", advice)
}

/// The default profile of a machine without AppArmor is none, on every runtime.
fn check_apparmor(profile: Option<&SecurityProfile>, path: &str, machine: &Machine) -> Result<()> {
    let confined = match profile.map(SecurityProfile::profile_type) {
        Some(ProfileType::RuntimeDefault) => machine.apparmor,
        Some(ProfileType::Localhost) => true,
        Some(ProfileType::Unconfined) => false,
        None => match path {
            "" | "unconfined" => false,
            "runtime/default" => machine.apparmor,
            _ => true,
        },
    };
    if confined {
        let advice = "set appArmorProfile.type to Unconfined, or run the pod on another runtime";
        return Err(CriError::unsupported("an AppArmor profile", advice));
    }
    Ok(())
}

/// Labels mean nothing on a machine without SELinux, so that they are all obeyed there.
fn check_selinux(options: Option<&SeLinuxOption>, machine: &Machine) -> Result<()> {
    let asked = options.is_some_and(|options| *options != SeLinuxOption::default());
    if asked && machine.selinux {
        let advice = "leave seLinuxOptions out, or run the pod on another runtime";
        return Err(CriError::unsupported("an SELinux label", advice));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(kind: ProfileType) -> Option<SecurityProfile> {
        Some(SecurityProfile { profile_type: kind.into(), localhost_ref: String::new() })
    }

    fn context() -> LinuxContainerSecurityContext {
        LinuxContainerSecurityContext::default()
    }

    fn machine() -> Machine {
        Machine { apparmor: true, selinux: true, ..Machine::plain() }
    }

    #[track_caller]
    fn check(context: &LinuxContainerSecurityContext, machine: &Machine, allowed: bool) {
        assert_eq!(check_container(context, machine).is_ok(), allowed, "{context:?}");
        let privileged = LinuxContainerSecurityContext { privileged: true, ..context.clone() };
        assert!(check_container(&privileged, machine).is_ok());
    }

    #[test]
    fn a_container_is_refused_a_profile_that_nobody_would_apply() {
        check(&context(), &machine(), true);
        for (kind, allowed) in [
            (ProfileType::Unconfined, true),
            (ProfileType::RuntimeDefault, false),
            (ProfileType::Localhost, false),
        ] {
            let seccomp = profile(kind);
            check(&LinuxContainerSecurityContext { seccomp, ..context() }, &machine(), allowed);
            let apparmor = profile(kind);
            check(&LinuxContainerSecurityContext { apparmor, ..context() }, &machine(), allowed);
        }
    }

    #[test]
    fn the_default_apparmor_profile_of_a_machine_without_apparmor_is_none() {
        let apparmor = profile(ProfileType::RuntimeDefault);
        check(&LinuxContainerSecurityContext { apparmor, ..context() }, &Machine::plain(), true);
        let apparmor = profile(ProfileType::Localhost);
        check(&LinuxContainerSecurityContext { apparmor, ..context() }, &Machine::plain(), false);
    }

    #[test]
    fn labels_matter_where_there_is_selinux() {
        let option = SeLinuxOption { level: "s0:c1".into(), ..SeLinuxOption::default() };
        let labelled = LinuxContainerSecurityContext { selinux_options: Some(option), ..context() };
        check(&labelled, &machine(), false);
        check(&labelled, &Machine::plain(), true);
    }

    /// What a stock kubelet sends for every sandbox.
    #[test]
    fn a_sandbox_may_have_the_default_profile() {
        let sandbox = |kind| LinuxSandboxSecurityContext {
            seccomp: profile(kind),
            ..LinuxSandboxSecurityContext::default()
        };
        assert!(check_sandbox(&sandbox(ProfileType::RuntimeDefault), &machine()).is_ok());
        assert!(check_sandbox(&sandbox(ProfileType::Localhost), &machine()).is_err());
    }
}
