//! The operating system that a pod is for, and the fields that the other one has.

use waybill_api::field::ErrorList;

use crate::kinds::document::Field;

/// The `os` of the pod with this `spec`.
pub(super) fn check_os(spec: Field<'_, '_>, errors: &mut ErrorList) {
    let os = spec.get("os");
    let name = os.get("name");
    match name.text() {
        _ if !os.is_set() => {}
        "" => errors.push(name.required("cannot be empty")),
        "linux" => check_contexts(spec, &["windowsOptions"], &["windowsOptions"], LINUX, errors),
        "windows" => {
            for field in ["hostUsers", "resources", "shareProcessNamespace"] {
                forbid(spec.get(field), WINDOWS, errors);
            }
            for field in ["hostPID", "hostIPC"] {
                if spec.get(field).is_true() {
                    errors.push(spec.get(field).forbidden(WINDOWS));
                }
            }
            check_contexts(spec, &POD_LINUX, &CONTAINER_LINUX, WINDOWS, errors);
        }
        _ => errors.push(os.invalid_choice(name.text(), &["linux", "windows"])),
    }
}

const LINUX: &str = "windows options cannot be set for a linux pod";
const WINDOWS: &str = "cannot be set for a windows pod";

/// Fields of the security context of a pod that only Linux has.
const POD_LINUX: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];

/// Fields of the security context of a container that only Linux has.
const CONTAINER_LINUX: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn check_contexts(
    spec: Field<'_, '_>,
    of_pod: &[&str],
    of_container: &[&str],
    detail: &str,
    errors: &mut ErrorList,
) {
    let context = spec.get("securityContext");
    for field in of_pod {
        forbid(context.get(field), detail, errors);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.get(list).items() {
            let context = container.get("securityContext");
            for field in of_container {
                forbid(context.get(field), detail, errors);
            }
        }
    }
}

fn forbid(field: Field<'_, '_>, detail: &str, errors: &mut ErrorList) {
    if field.is_set() {
        errors.push(field.forbidden(detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::check_spec;

    #[test]
    fn there_are_two_systems() {
        check_spec(&json!({"os": {"name": "linux"}}), &[]);
        check_spec(&json!({"os": {"name": "windows"}}), &[]);
        check_spec(&json!({"os": {}}), &["spec.os.name: Required value: cannot be empty"]);
        check_spec(
            &json!({"os": {"name": "plan9"}}),
            &["spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\""],
        );
    }

    #[test]
    fn each_has_fields_of_its_own() {
        check_spec(
            &json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}}),
            &["spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for"],
        );
        check_spec(
            &json!({
                "os": {"name": "windows"}, "hostPID": true, "securityContext": {"runAsUser": 1},
                "containers": [{"name": "c", "image": "i",
                    "securityContext": {"privileged": false}}]}),
            &[
                "spec.hostPID: Forbidden: cannot be set for a windows pod",
                "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
                "spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a win",
            ],
        );
    }
}
