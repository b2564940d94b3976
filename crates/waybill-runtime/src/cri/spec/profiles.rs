//! Confinement by seccomp, AppArmor and SELinux: what is asked for must hold, so it is refused here as
//! long as nothing carries it out. Of seccomp there is our own default profile (docs/adr/0020).

use waybill_proto::cri::{
    LinuxContainerSecurityContext, LinuxSandboxSecurityContext, SeLinuxOption, SecurityProfile,
    security_profile::ProfileType,
};

use crate::{
    cri::{
        error::{CriError, Result},
        machine::Machine,
    },
    engine::SeccompProfile,
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
    let apparmor_path = &context.apparmor_profile;
    seccomp_profile(context)?;
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
        return Err(no_local_seccomp());
    }
    check_apparmor(context.apparmor.as_ref(), "", machine)?;
    check_selinux(context.selinux_options.as_ref(), machine)
}

/// The seccomp profile of a container; a request that says nothing gets the default.
pub(crate) fn seccomp_profile(context: &LinuxContainerSecurityContext) -> Result<SeccompProfile> {
    if context.privileged {
        return Ok(SeccompProfile::Unconfined);
    }
    #[expect(deprecated, reason = "older kubelets send the profile as a path")]
    let path = context.seccomp_profile_path.as_str();
    match (context.seccomp.as_ref().map(SecurityProfile::profile_type), path) {
        (Some(ProfileType::RuntimeDefault), _)
        | (None, "" | "runtime/default" | "docker/default") => Ok(SeccompProfile::RuntimeDefault),
        (Some(ProfileType::Unconfined), _) | (None, "unconfined") => Ok(SeccompProfile::Unconfined),
        (Some(ProfileType::Localhost), _) | (None, _) => Err(no_local_seccomp()),
    }
}

fn no_local_seccomp() -> CriError {
    let advice = "set seccompProfile.type to RuntimeDefault, or run the pod on another runtime";
    CriError::unsupported("a seccomp profile of the machine (Localhost)", advice)
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
            let apparmor = profile(kind);
            check(&LinuxContainerSecurityContext { apparmor, ..context() }, &machine(), allowed);
        }
    }

    #[test]
    fn a_container_that_names_no_seccomp_profile_gets_the_default() {
        let of = |context: &LinuxContainerSecurityContext| seccomp_profile(context).ok();
        let with = |kind| LinuxContainerSecurityContext { seccomp: profile(kind), ..context() };
        assert_eq!(of(&context()), Some(SeccompProfile::RuntimeDefault));
        assert_eq!(of(&with(ProfileType::RuntimeDefault)), Some(SeccompProfile::RuntimeDefault));
        assert_eq!(of(&with(ProfileType::Unconfined)), Some(SeccompProfile::Unconfined));
        assert_eq!(of(&with(ProfileType::Localhost)), None);
        let privileged =
            LinuxContainerSecurityContext { privileged: true, ..with(ProfileType::RuntimeDefault) };
        assert_eq!(of(&privileged), Some(SeccompProfile::Unconfined));
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
