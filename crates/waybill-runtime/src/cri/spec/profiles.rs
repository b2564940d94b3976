//! Confinement by seccomp, AppArmor and SELinux: what is asked for must hold, so what nothing carries out is refused here. Profiles of
//! seccomp are carried out (docs/adr/0042), and those of AppArmor where the kernel has it and they are loaded (docs/adr/0043).

use std::path::Path;

use waybill_proto::cri::{
    LinuxContainerSecurityContext, LinuxSandboxSecurityContext, SeLinuxOption, SecurityProfile,
    security_profile::ProfileType,
};

use crate::{
    cri::{
        UnsetSeccompProfile,
        apparmor::{AppArmor, DEFAULT},
        error::{CriError, Result},
        machine::Machine,
    },
    engine::SeccompProfile,
};

/// What a container may ask for; returns its AppArmor profile.
pub(super) fn check_container(
    context: &LinuxContainerSecurityContext,
    machine: &Machine,
) -> Result<Option<String>> {
    if context.privileged {
        // Privileged containers are not confined, whatever else the request says.
        return Ok(None);
    }
    #[expect(deprecated, reason = "older kubelets send the profile as a path")]
    let apparmor_path = &context.apparmor_profile;
    seccomp_profile(context, machine)?;
    check_selinux(context.selinux_options.as_ref(), machine)?;
    apparmor_profile(context.apparmor.as_ref(), apparmor_path, &machine.apparmor)
}

/// What a sandbox may ask for. Kubelets ask for the default seccomp profile for every sandbox, and other clients for that of the
/// pod; no program of the pod runs there, only a process of ours that waits, so there is nothing to confine.
pub(crate) fn check_sandbox(
    context: &LinuxSandboxSecurityContext,
    machine: &Machine,
) -> Result<()> {
    if let Some(profile) =
        context.seccomp.as_ref().filter(|it| it.profile_type() == ProfileType::Localhost)
    {
        local_file(&profile.localhost_ref)?;
    }
    // What could not be confined is refused all the same: its containers will ask for it next.
    apparmor_profile(context.apparmor.as_ref(), "", &machine.apparmor)?;
    check_selinux(context.selinux_options.as_ref(), machine)
}

/// The seccomp profile of a container; a request that says nothing gets what the runtime is set to, which is the default unless its
/// operator decided otherwise.
pub(crate) fn seccomp_profile(
    context: &LinuxContainerSecurityContext,
    machine: &Machine,
) -> Result<SeccompProfile> {
    if context.privileged {
        return Ok(SeccompProfile::Unconfined);
    }
    #[expect(deprecated, reason = "older kubelets send the profile as a path")]
    let path = context.seccomp_profile_path.as_str();
    let Some(profile) = &context.seccomp else {
        return match path {
            "" => Ok(match machine.unset_seccomp_profile {
                UnsetSeccompProfile::RuntimeDefault => SeccompProfile::RuntimeDefault,
                UnsetSeccompProfile::Unconfined => SeccompProfile::Unconfined,
            }),
            "runtime/default" | "docker/default" => Ok(SeccompProfile::RuntimeDefault),
            "unconfined" => Ok(SeccompProfile::Unconfined),
            file => local_file(file),
        };
    };
    match profile.profile_type() {
        ProfileType::RuntimeDefault => Ok(SeccompProfile::RuntimeDefault),
        ProfileType::Unconfined => Ok(SeccompProfile::Unconfined),
        ProfileType::Localhost => local_file(&profile.localhost_ref),
    }
}

/// Kubelets send the absolute path of a file; older ones and tools put a word before it.
fn local_file(reference: &str) -> Result<SeccompProfile> {
    let path = Path::new(reference.strip_prefix("localhost/").unwrap_or(reference));
    if path.is_absolute() {
        Ok(SeccompProfile::Localhost(path.to_owned()))
    } else {
        let reason =
            format!("the seccomp profile {reference:?} is not an absolute path of this machine");
        Err(CriError::invalid(reason))
    }
}

/// The AppArmor profile of a container, if it shall have one. Older kubelets send it as a word with the name behind.
fn apparmor_profile(
    profile: Option<&SecurityProfile>,
    path: &str,
    apparmor: &AppArmor,
) -> Result<Option<String>> {
    match profile.map(|profile| (profile.profile_type(), profile.localhost_ref.as_str())) {
        Some((ProfileType::Unconfined, _)) => Ok(None),
        Some((ProfileType::RuntimeDefault, _)) => default_profile(apparmor),
        Some((ProfileType::Localhost, name)) => loaded_profile(name, apparmor),
        None => match path {
            // Whoever says nothing gets the default where there is one.
            "" => Ok(default_profile(apparmor).unwrap_or(None)),
            "unconfined" => Ok(None),
            "runtime/default" => default_profile(apparmor),
            name => loaded_profile(name, apparmor),
        },
    }
}

/// That of a machine without AppArmor is none, on every runtime.
fn default_profile(apparmor: &AppArmor) -> Result<Option<String>> {
    if !apparmor.is_there() {
        return Ok(None);
    }
    if !is_loaded(apparmor, DEFAULT)? {
        let advice = format!(
            "load {DEFAULT:?} on this machine (`apparmor_parser -r`, see deploy/apparmor), or set appArmorProfile.type to Unconfined"
        );
        return Err(CriError::unsupported(
            "the default AppArmor profile, which is not loaded,",
            advice,
        ));
    }
    Ok(Some(DEFAULT.to_owned()))
}

fn loaded_profile(name: &str, apparmor: &AppArmor) -> Result<Option<String>> {
    let name = name.strip_prefix("localhost/").unwrap_or(name);
    if !apparmor.is_there() {
        let advice = "this machine's kernel has none, or it is switched off";
        return Err(CriError::unsupported("an AppArmor profile", advice));
    }
    // The name becomes a word for the kernel, which knows no others.
    if !is_loaded(apparmor, name)? {
        let reason = format!("the AppArmor profile {name:?} is not loaded on this machine");
        return Err(CriError::invalid(reason));
    }
    Ok(Some(name.to_owned()))
}

fn is_loaded(apparmor: &AppArmor, name: &str) -> Result<bool> {
    apparmor.has(name).map_err(CriError::io("read", "/sys/kernel/security/apparmor/profiles"))
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
        Machine { selinux: true, ..Machine::plain() }
    }

    #[track_caller]
    fn check(context: &LinuxContainerSecurityContext, machine: &Machine, allowed: bool) {
        assert_eq!(check_container(context, machine).is_ok(), allowed, "{context:?}");
        let privileged = LinuxContainerSecurityContext { privileged: true, ..context.clone() };
        assert_eq!(check_container(&privileged, machine).unwrap(), None);
    }

    /// The profile of a container on a machine with these, or why it gets none.
    fn apparmor(
        loaded: &[&str],
        asked: Option<(ProfileType, &str)>,
    ) -> std::result::Result<Option<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let machine =
            Machine { apparmor: AppArmor::with(directory.path(), loaded), ..Machine::plain() };
        let apparmor = asked.map(|(kind, name)| SecurityProfile {
            profile_type: kind.into(),
            localhost_ref: name.to_owned(),
        });
        let context = LinuxContainerSecurityContext { apparmor, ..context() };
        check_container(&context, &machine).map_err(|error| error.to_string())
    }

    #[test]
    fn a_container_gets_an_apparmor_profile_that_is_loaded_or_none_at_all() {
        let own = Ok(Some("own".to_owned()));
        let default = Ok(Some(DEFAULT.to_owned()));
        let local = |name| Some((ProfileType::Localhost, name));
        let of_runtime = Some((ProfileType::RuntimeDefault, ""));
        assert_eq!(apparmor(&["own"], local("own")), own);
        assert_eq!(apparmor(&["own"], local("localhost/own")), own);
        assert_eq!(apparmor(&[DEFAULT], of_runtime), default);
        assert_eq!(apparmor(&[DEFAULT], None), default);
        assert_eq!(apparmor(&[], None), Ok(None));
        assert_eq!(apparmor(&[DEFAULT], Some((ProfileType::Unconfined, ""))), Ok(None));
        for (loaded, asked, text) in [
            (&["own"][..], local("other"), "\"other\" is not loaded"),
            (&["own"], local(""), "\"\" is not loaded"),
            (&["own"], of_runtime, "is not loaded, is not supported: load \"waybill-default\""),
        ] {
            let refused = apparmor(loaded, asked).unwrap_err();
            assert!(refused.contains(text), "{refused}");
        }
    }

    #[test]
    fn a_sandbox_may_name_a_seccomp_profile_by_a_whole_path() {
        for (reference, taken) in [("/a/b.json", true), ("b.json", false), ("", false)] {
            let localhost_ref = reference.to_owned();
            let profile_type = ProfileType::Localhost.into();
            let seccomp = Some(SecurityProfile { profile_type, localhost_ref });
            let context = LinuxSandboxSecurityContext { seccomp, ..Default::default() };
            assert_eq!(check_sandbox(&context, &machine()).is_ok(), taken, "{reference:?}");
        }
    }

    #[test]
    fn a_container_that_names_no_seccomp_profile_gets_the_default() {
        let of = |context: &LinuxContainerSecurityContext| {
            seccomp_profile(context, &Machine::plain()).ok()
        };
        let with = |kind| LinuxContainerSecurityContext { seccomp: profile(kind), ..context() };
        assert_eq!(of(&context()), Some(SeccompProfile::RuntimeDefault));
        assert_eq!(of(&with(ProfileType::RuntimeDefault)), Some(SeccompProfile::RuntimeDefault));
        assert_eq!(of(&with(ProfileType::Unconfined)), Some(SeccompProfile::Unconfined));
        assert_eq!(of(&with(ProfileType::Localhost)), None);
        for (reference, path) in [
            ("/a/b.json", Some("/a/b.json")),
            ("localhost//a/b.json", Some("/a/b.json")),
            ("b.json", None),
            ("localhost/b.json", None),
            ("", None),
        ] {
            let seccomp = SecurityProfile {
                profile_type: ProfileType::Localhost.into(),
                localhost_ref: reference.to_owned(),
            };
            let context = LinuxContainerSecurityContext { seccomp: Some(seccomp), ..context() };
            assert_eq!(of(&context), path.map(|path| SeccompProfile::Localhost(path.into())));
            #[expect(deprecated, reason = "older kubelets send the profile as a path")]
            let older = LinuxContainerSecurityContext {
                seccomp_profile_path: reference.to_owned(),
                seccomp: None,
                ..context
            };
            let path = if reference.is_empty() {
                Some(SeccompProfile::RuntimeDefault)
            } else {
                path.map(|path| SeccompProfile::Localhost(path.into()))
            };
            assert_eq!(of(&older), path);
        }
        let privileged =
            LinuxContainerSecurityContext { privileged: true, ..with(ProfileType::RuntimeDefault) };
        assert_eq!(of(&privileged), Some(SeccompProfile::Unconfined));
    }

    /// `--unset-seccomp-profile unconfined` changes nothing for those who name a profile.
    #[test]
    fn an_operator_decides_what_a_container_without_a_seccomp_profile_gets() {
        let machine =
            Machine { unset_seccomp_profile: UnsetSeccompProfile::Unconfined, ..Machine::plain() };
        let of = |context: &LinuxContainerSecurityContext| seccomp_profile(context, &machine).ok();
        let with = |kind| LinuxContainerSecurityContext { seccomp: profile(kind), ..context() };
        assert_eq!(of(&context()), Some(SeccompProfile::Unconfined));
        assert_eq!(of(&with(ProfileType::RuntimeDefault)), Some(SeccompProfile::RuntimeDefault));
        for word in ["runtime/default", "docker/default"] {
            #[expect(deprecated, reason = "older kubelets send the profile as a path")]
            let older = LinuxContainerSecurityContext {
                seccomp_profile_path: word.to_owned(),
                ..context()
            };
            assert_eq!(of(&older), Some(SeccompProfile::RuntimeDefault));
        }
    }

    #[test]
    fn the_default_apparmor_profile_of_a_machine_without_apparmor_is_none() {
        for (kind, allowed) in [
            (ProfileType::Unconfined, true),
            (ProfileType::RuntimeDefault, true),
            (ProfileType::Localhost, false),
        ] {
            let context = LinuxContainerSecurityContext { apparmor: profile(kind), ..context() };
            check(&context, &Machine::plain(), allowed);
        }
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
