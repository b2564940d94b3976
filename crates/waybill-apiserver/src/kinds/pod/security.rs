//! Security contexts.

use std::collections::BTreeSet;

use waybill_api::field::{ErrorList, FieldError};

use super::{spec::check_optional_choice, volume::descending_path_fault};
use crate::kinds::document::Field;

/// The security context of the pod with this `spec`.
pub(super) fn check_pod(spec: Field<'_, '_>, errors: &mut ErrorList) {
    let context = spec.get("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(context.get(name), errors);
    }
    for group in context.get("supplementalGroups").items() {
        check_id(group, errors);
    }
    if spec.get("shareProcessNamespace").is_true() && spec.get("hostPID").is_true() {
        // The place is upstream's, whose inner form keeps the field there.
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        let value = spec.get("shareProcessNamespace").value();
        errors.push(context.get("shareProcessNamespace").invalid_as(value, detail));
    }
    check_sysctls(context, errors);
    let policy = context.get("fsGroupChangePolicy");
    check_optional_choice(policy, &["Always", "OnRootMismatch"], errors);
    check_optional_choice(context.get("supplementalGroupsPolicy"), &["Merge", "Strict"], errors);
    check_optional_choice(
        context.get("seLinuxChangePolicy"),
        &["MountOption", "Recursive"],
        errors,
    );
    check_profiles(context, errors);
}

/// The security context of a container.
pub(super) fn check_container(spec: Field<'_, '_>, context: Field<'_, '_>, errors: &mut ErrorList) {
    for name in ["runAsUser", "runAsGroup"] {
        check_id(context.get(name), errors);
    }
    let mount = context.get("procMount");
    check_optional_choice(mount, &["Default", "Unmasked"], errors);
    if mount.text() == "Unmasked" && spec.get("hostUsers").value() != false {
        errors.push(mount.invalid_text("`hostUsers` must be false to use `Unmasked`"));
    }
    check_profiles(context, errors);
    if context.get("allowPrivilegeEscalation").value() != false {
        return;
    }
    if context.get("privileged").is_true() {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(context.invalid(detail));
    }
    let capabilities = context.get("capabilities");
    if capabilities.get("add").items().any(|name| name.text() == "CAP_SYS_ADMIN") {
        let detail =
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.push(context.invalid(detail));
    }
}

/// Users and groups are what the kernel takes and `-1` is not.
fn check_id(id: Field<'_, '_>, errors: &mut ErrorList) {
    if id.number().is_some_and(|id| !(0..=2_147_483_647).contains(&id)) {
        errors.push(id.invalid("must be between 0 and 2147483647, inclusive"));
    }
}

fn check_sysctls(context: Field<'_, '_>, errors: &mut ErrorList) {
    let mut names = BTreeSet::new();
    for sysctl in context.get("sysctls").items() {
        let name = sysctl.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if !is_sysctl(name.text()) {
            errors.push(name.invalid_text(SYSCTL_RULE));
        } else if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
}

const SYSCTL_RULE: &str = "must have at most 253 characters and match regex \
    ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn is_sysctl(name: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.iter().all(|byte| plain(byte) || matches!(byte, b'-' | b'_'))
            && bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain)
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_part)
}

fn check_profiles(context: Field<'_, '_>, errors: &mut ErrorList) {
    for (name, word) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let profile = context.get(name);
        if !profile.is_set() {
            continue;
        }
        let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
        if kind.is_empty() {
            errors.push(kind.required(&format!("type is required when {name} is set")));
        } else {
            check_optional_choice(kind, &["Localhost", "RuntimeDefault", "Unconfined"], errors);
        }
        if kind.text() == "Localhost" && local.is_empty() {
            errors.push(local.required(&format!("must be set when {word} type is Localhost")));
        }
        if kind.text() == "Localhost" {
            check_local_profile(name, local, errors);
        }
        if kind.text() != "Localhost" && local.is_set() {
            let detail = format!("can only be set when {word} type is Localhost");
            errors.push(local.invalid(detail));
        }
    }
}

/// A profile on the node: of seccomp a file below a folder, of AppArmor a name.
fn check_local_profile(name: &str, local: Field<'_, '_>, errors: &mut ErrorList) {
    if name == "seccompProfile" {
        if let Some(fault) = descending_path_fault(local.text()) {
            errors.push(local.invalid_text(fault));
        }
        return;
    }
    if local.text().trim() != local.text() {
        errors.push(local.invalid_text("must not be padded with whitespace"));
    }
    if local.text().len() > APP_ARMOR_BYTES {
        errors.push(FieldError::too_long(local.path(), APP_ARMOR_BYTES));
    }
}

const APP_ARMOR_BYTES: usize = 4095;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{check_container, check_spec};

    #[test]
    fn ids_have_a_range() {
        check_spec(
            &json!({"securityContext": {"runAsUser": 0, "fsGroup": 2_147_483_647_i64}}),
            &[],
        );
        check_spec(
            &json!({"securityContext": {"runAsUser": -1, "supplementalGroups": [1, -2]}}),
            &[
                "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647",
                "spec.securityContext.supplementalGroups[1]: Invalid value: -2: must be between",
            ],
        );
    }

    #[test]
    fn sysctls() {
        let named = |name: &str| json!({"name": name, "value": "1"});
        check_spec(
            &json!({"securityContext": {"sysctls": [named("net.ipv4/tcp_syncookies"), named(""),
                named("A"), named("a"), named("a")]}}),
            &[
                "spec.securityContext.sysctls[1].name: Required value",
                "spec.securityContext.sysctls[2].name: Invalid value: \"A\": must have at most 253",
                "spec.securityContext.sysctls[4].name: Duplicate value: \"a\"",
            ],
        );
    }

    #[test]
    fn policies_are_closed_sets() {
        check_spec(
            &json!({"securityContext": {"fsGroupChangePolicy": "Odd", "seLinuxChangePolicy": "Odd",
                "supplementalGroupsPolicy": "Odd"}}),
            &[
                "spec.securityContext.fsGroupChangePolicy: Unsupported value: \"Odd\": supported",
                "spec.securityContext.supplementalGroupsPolicy: Unsupported value: \"Odd\": suppor",
                "spec.securityContext.seLinuxChangePolicy: Unsupported value: \"Odd\": supported",
            ],
        );
    }

    #[test]
    fn profiles_of_the_node_are_named_well() {
        let with = |name: &str, kind: &str, profile: &str| json!({"securityContext": {name: {"type": kind, "localhostProfile": profile}}});
        check_spec(&with("seccompProfile", "Localhost", "a/b.json"), &[]);
        check_spec(&with("appArmorProfile", "Localhost", "my-profile"), &[]);
        let at = "spec.securityContext";
        for (name, kind, profile, expected) in [
            (
                "seccompProfile",
                "Localhost",
                "../a",
                "Invalid value: \"../a\": must not contain '..'",
            ),
            ("seccompProfile", "Localhost", "/a", "Invalid value: \"/a\": must be a relative path"),
            (
                "seccompProfile",
                "Unconfined",
                "a",
                "Invalid value: \"a\": can only be set when secc",
            ),
            ("appArmorProfile", "Localhost", " a", "Invalid value: \" a\": must not be padded"),
            ("appArmorProfile", "Localhost", "", "Required value: must be set when AppArmor type"),
            (
                "appArmorProfile",
                "Localhost",
                &"a".repeat(4096),
                "Too long: may not be more than 40",
            ),
        ] {
            let expected = format!("{at}.{name}.localhostProfile: {expected}");
            check_spec(&with(name, kind, profile), &[&expected]);
        }
        check_spec(
            &json!({"securityContext": {"appArmorProfile": {"type": "Odd"}, "seccompProfile": {}}}),
            &[
                "spec.securityContext.seccompProfile.type: Required value: type is required when",
                "spec.securityContext.appArmorProfile.type: Unsupported value: \"Odd\": supported",
            ],
        );
    }

    #[test]
    fn proc_is_unmasked_for_own_users_only() {
        let unmasked = |users: serde_json::Value| {
            json!({"hostUsers": users, "containers": [{"name": "c", "image": "i",
                "securityContext": {"procMount": "Unmasked"}}]})
        };
        check_spec(&unmasked(false.into()), &[]);
        let fault = "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": \
                     `hostUsers` must be false to use `Unmasked`";
        check_spec(&unmasked(true.into()), &[fault]);
        check_spec(&unmasked(serde_json::Value::Null), &[fault]);
    }

    #[test]
    fn containers() {
        let at = "spec.containers[0].securityContext";
        check_container(&json!({"securityContext": {"procMount": "Default"}}), &[]);
        check_container(
            &json!({"securityContext": {"procMount": "Odd", "runAsGroup": -1}}),
            &[
                &format!("{at}.runAsGroup: Invalid value: -1: must be between 0 and"),
                &format!("{at}.procMount: Unsupported value: \"Odd\": supported values: \"Default"),
            ],
        );
        check_container(
            &json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": false}}),
            &[&format!("{at}: Invalid value: {{")],
        );
        check_container(
            &json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
            &[&format!(
                "{at}.seccompProfile.localhostProfile: Required value: must be set when se"
            )],
        );
    }
}
