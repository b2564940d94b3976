//! Who a container is and what it may do, from the contexts of its pod and its own.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, SELinuxOptions, SeccompProfile, SecurityContext,
};
use waybill_proto::cri::{
    Capability, Image, Int64Value, LinuxContainerSecurityContext, NamespaceMode, SeLinuxOption,
    SecurityProfile, security_profile::ProfileType,
};

use super::sandbox::{self, ConfigError, Machine};
use crate::pod::Pod;

/// What the kernel shows of itself and containers should not see.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// What containers may read and must not change.
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The context of a container. `target` is the id of the container whose processes an ephemeral
/// container wants to see.
pub(super) fn context(
    pod: &Pod,
    container: &Container,
    image: &Image,
    target: Option<&str>,
    machine: &Machine,
) -> Result<LinuxContainerSecurityContext, ConfigError> {
    let of_pod = pod.spec().security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(of_pod.run_as_user);
    let group = own.run_as_group.or(of_pod.run_as_group);
    if own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true) {
        check_non_root(pod, container, user, image)?;
    }
    let (run_as_user, run_as_username) = run_as(user, image, group.is_some());
    let privileged = own.privileged == Some(true);
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |paths: &[&str]| match unmasked {
        true => Vec::new(),
        false => paths.iter().map(ToString::to_string).collect(),
    };
    let mut namespaces = sandbox::namespaces(pod);
    if let Some(target) = target {
        namespaces.pid = NamespaceMode::Target.into();
        target.clone_into(&mut namespaces.target_id);
    }
    Ok(LinuxContainerSecurityContext {
        capabilities: capabilities(&own),
        privileged,
        namespace_options: Some(namespaces),
        selinux_options: own
            .se_linux_options
            .as_ref()
            .or(of_pod.se_linux_options.as_ref())
            .map(selinux),
        run_as_user: run_as_user.map(|value| Int64Value { value }),
        run_as_group: group.map(|value| Int64Value { value }),
        run_as_username,
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: sandbox::supplemental_groups(&of_pod),
        supplemental_groups_policy: sandbox::groups_policy(&of_pod).into(),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(match own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref()) {
            _ if privileged => profile(ProfileType::Unconfined, None),
            Some(profile) => seccomp(profile, machine)?,
            // As kubelets with `seccompDefault` do.
            None => profile(ProfileType::RuntimeDefault, None),
        }),
        apparmor: own
            .app_armor_profile
            .as_ref()
            .or(of_pod.app_armor_profile.as_ref())
            .map(apparmor),
        ..LinuxContainerSecurityContext::default()
    })
}

fn check_non_root(
    pod: &Pod,
    container: &Container,
    user: Option<i64>,
    image: &Image,
) -> Result<(), ConfigError> {
    let place = format!("(pod: {:?}, container: {})", pod.shown(), container.name);
    let named = !image.username.is_empty();
    match (user, image.uid.map(|uid| uid.value)) {
        (Some(0), _) => {
            Err(ConfigError(format!("container's runAsUser breaks non-root policy {place}")))
        }
        (Some(_), _) => Ok(()),
        (None, Some(uid)) if uid != 0 => Ok(()),
        (None, None) if named => Err(ConfigError(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is \
             non-root {place}",
            image.username
        ))),
        (None, _) => Err(ConfigError(format!(
            "container has runAsNonRoot and image will run as root {place}"
        ))),
    }
}

/// The user by number or by name. A group alone is not enough for CRI.
fn run_as(user: Option<i64>, image: &Image, has_group: bool) -> (Option<i64>, String) {
    match (user, image.uid.map(|uid| uid.value)) {
        (Some(user), _) | (None, Some(user)) => (Some(user), String::new()),
        (None, None) if !image.username.is_empty() => (None, image.username.clone()),
        (None, None) => (has_group.then_some(0), String::new()),
    }
}

fn capabilities(context: &SecurityContext) -> Option<Capability> {
    let asked = context.capabilities.clone()?;
    Some(Capability {
        add_capabilities: asked.add.unwrap_or_default(),
        drop_capabilities: asked.drop.unwrap_or_default(),
        add_ambient_capabilities: Vec::new(),
    })
}

pub(super) fn selinux(options: &SELinuxOptions) -> SeLinuxOption {
    SeLinuxOption {
        user: options.user.clone().unwrap_or_default(),
        role: options.role.clone().unwrap_or_default(),
        r#type: options.type_.clone().unwrap_or_default(),
        level: options.level.clone().unwrap_or_default(),
    }
}

fn seccomp(asked: &SeccompProfile, machine: &Machine) -> Result<SecurityProfile, ConfigError> {
    match asked.type_.as_str() {
        "RuntimeDefault" => Ok(profile(ProfileType::RuntimeDefault, None)),
        "Localhost" => {
            let file =
                local_profile(asked.localhost_profile.as_deref().unwrap_or_default(), machine)?;
            Ok(profile(ProfileType::Localhost, file.to_str()))
        }
        _ => Ok(profile(ProfileType::Unconfined, None)),
    }
}

/// The file of a seccomp profile, which runtimes want with its whole path. The API server has checked the name, and nobody that of a
/// static pod.
fn local_profile(name: &str, machine: &Machine) -> Result<PathBuf, ConfigError> {
    let plain = |part| matches!(part, Component::Normal(_));
    if name.is_empty() || !Path::new(name).components().all(plain) {
        let reason = format!(
            "seccompProfile.localhostProfile {name:?} is no path below {}",
            machine.directories.seccomp_profiles().display()
        );
        return Err(ConfigError(reason));
    }
    Ok(machine.directories.seccomp_profiles().join(name))
}

fn apparmor(asked: &AppArmorProfile) -> SecurityProfile {
    match asked.type_.as_str() {
        "RuntimeDefault" => profile(ProfileType::RuntimeDefault, None),
        "Localhost" => profile(ProfileType::Localhost, asked.localhost_profile.as_deref()),
        _ => profile(ProfileType::Unconfined, None),
    }
}

fn profile(kind: ProfileType, reference: Option<&str>) -> SecurityProfile {
    SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: reference.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{directories::Directories, pod::testing::pod};

    fn image(uid: Option<i64>, username: &str) -> Image {
        let uid = uid.map(|value| Int64Value { value });
        Image { uid, username: username.to_owned(), ..Image::default() }
    }

    fn of(
        of_pod: Value,
        own: Value,
        image: &Image,
    ) -> Result<LinuxContainerSecurityContext, ConfigError> {
        let mut spec = json!({ "containers": [{ "name": "a", "image": "i" }] });
        spec["securityContext"] = of_pod;
        spec["containers"][0]["securityContext"] = own;
        let pod = pod(spec);
        context(&pod, &pod.spec().containers[0], image, None, &machine())
    }

    fn machine() -> Machine {
        let directories = Directories { state: "/state".into(), logs: "/logs".into() };
        Machine { node: "n".into(), directories, cgroup_root: "/waybill".into(), memory: 0 }
    }

    #[test]
    fn a_seccomp_profile_of_the_node_is_a_file_below_its_folder() {
        let of = |name: &str| {
            let asked = json!({ "type": "Localhost", "localhostProfile": name });
            let context = of(json!({}), json!({ "seccompProfile": asked }), &image(Some(0), ""));
            context.map(|context| context.seccomp.unwrap()).map_err(|fault| fault.0)
        };
        let profile = of("a/b.json").unwrap();
        assert_eq!(profile.profile_type(), ProfileType::Localhost);
        assert_eq!(profile.localhost_ref, "/state/seccomp/a/b.json");
        for name in ["", "/etc/passwd", "../b.json", "a/../../b.json"] {
            let fault = of(name).unwrap_err();
            assert!(fault.contains("is no path below /state/seccomp"), "{fault}");
        }
    }

    #[test]
    fn a_root_user_breaks_run_as_non_root() {
        let check = |own: Value, image: &Image, expected: Option<&str>| {
            let fault = of(json!({ "runAsNonRoot": true }), own, image).err();
            let expected =
                expected.map(|text| format!("{text} (pod: \"p_ns(uid-1)\", container: a)"));
            assert_eq!(fault.map(|fault| fault.0), expected);
        };
        let root = "container has runAsNonRoot and image will run as root";
        check(json!({}), &image(Some(0), ""), Some(root));
        check(json!({}), &image(None, ""), Some(root));
        check(json!({ "runAsNonRoot": false }), &image(Some(0), ""), None);
        check(json!({}), &image(Some(5), ""), None);
        check(json!({ "runAsUser": 5 }), &image(Some(0), ""), None);
        check(
            json!({ "runAsUser": 0 }),
            &image(Some(5), ""),
            Some("container's runAsUser breaks non-root policy"),
        );
        let name = "container has runAsNonRoot and image has non-numeric user (web), cannot \
                    verify user is non-root";
        check(json!({}), &image(None, "web"), Some(name));
    }

    #[test]
    fn the_container_speaks_before_its_pod_and_that_before_the_image() {
        let user = |of_pod: Value, own: Value, image: &Image| {
            let context = of(of_pod, own, image).unwrap();
            (context.run_as_user.map(|it| it.value), context.run_as_username)
        };
        let none = String::new();
        let by_pod = json!({ "runAsUser": 7 });
        assert_eq!(
            user(by_pod.clone(), json!({ "runAsUser": 8 }), &image(Some(9), "")),
            (Some(8), none.clone())
        );
        assert_eq!(user(by_pod, json!({}), &image(Some(9), "")), (Some(7), none.clone()));
        assert_eq!(user(json!({}), json!({}), &image(Some(9), "")), (Some(9), none.clone()));
        assert_eq!(user(json!({}), json!({}), &image(None, "web")), (None, "web".into()));
        assert_eq!(user(json!({}), json!({}), &image(None, "")), (None, none.clone()));
        assert_eq!(user(json!({ "runAsGroup": 3 }), json!({}), &image(None, "")), (Some(0), none));
    }

    #[test]
    fn a_pod_is_confined_unless_it_says_otherwise_or_is_privileged() {
        let seccomp = |of_pod, own| {
            let context = of(of_pod, own, &image(Some(0), "")).unwrap();
            context.seccomp.unwrap().profile_type()
        };
        let asked = json!({ "seccompProfile": { "type": "RuntimeDefault" } });
        let refused = json!({ "seccompProfile": { "type": "Unconfined" } });
        assert_eq!(seccomp(json!({}), json!({})), ProfileType::RuntimeDefault);
        assert_eq!(seccomp(asked.clone(), json!({})), ProfileType::RuntimeDefault);
        assert_eq!(seccomp(asked.clone(), refused), ProfileType::Unconfined);
        assert_eq!(seccomp(asked, json!({ "privileged": true })), ProfileType::Unconfined);
        let masked = |own| of(json!({}), own, &image(Some(0), "")).unwrap().masked_paths.len();
        assert_eq!(masked(json!({})), 12);
        assert_eq!(masked(json!({ "privileged": true })), 0);
        assert_eq!(masked(json!({ "procMount": "Unmasked" })), 0);
    }

    #[test]
    fn groups_of_the_pod_are_those_of_its_volumes_too() {
        let of_pod = json!({ "fsGroup": 4, "supplementalGroups": [5, 6] });
        let context = of(of_pod, json!({}), &image(None, "")).unwrap();
        assert_eq!(context.supplemental_groups, [4, 5, 6]);
    }
}
