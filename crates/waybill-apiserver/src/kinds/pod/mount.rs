//! Where containers see the volumes of their pod.

use std::collections::BTreeSet;

use waybill_api::field::ErrorList;

use super::volume::descending_path_fault;
use crate::kinds::document::Field;

/// The `volumeMounts` and `volumeDevices` of `container`.
pub(super) fn check_mounts(
    container: Field<'_, '_>,
    volumes: Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let known: BTreeSet<_> = volumes.items().map(|volume| volume.get("name").text()).collect();
    let (mounts, devices) = (container.get("volumeMounts"), container.get("volumeDevices"));
    let mut paths = BTreeSet::new();
    for mount in mounts.items() {
        check_name(mount.get("name"), &known, errors);
        check_path(mount.get("mountPath"), &mut paths, errors);
        check_apart(mount, "mountPath", devices, "devicePath", "volumeDevices", errors);
        check_sub_path(mount, errors);
        check_propagation(container, mount.get("mountPropagation"), errors);
        check_recursion(mount, errors);
    }
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for device in devices.items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        if !name.is_empty() && !names.insert(name.text()) {
            errors.push(name.invalid_text("must be unique"));
        }
        check_block(name, volumes, errors);
        check_name(name, &known, errors);
        check_path(path, &mut paths, errors);
        if path.text().split('/').any(|part| part == "..") {
            errors.push(path.invalid_text("can not contain backsteps ('..')"));
        }
        check_apart(device, "devicePath", mounts, "mountPath", "volumeMounts", errors);
    }
}

fn check_path<'v>(path: Field<'v, '_>, taken: &mut BTreeSet<&'v str>, errors: &mut ErrorList) {
    if path.is_empty() {
        errors.push(path.required(""));
    } else if !taken.insert(path.text()) {
        errors.push(path.invalid_text("must be unique"));
    }
}

/// A volume is a file system or a device to a container, and a path leads to one of them.
fn check_apart(
    item: Field<'_, '_>,
    path: &str,
    others: Field<'_, '_>,
    other_path: &str,
    list: &str,
    errors: &mut ErrorList,
) {
    let (name, path) = (item.get("name"), item.get(path));
    if others.items().any(|other| other.get("name").text() == name.text()) {
        errors.push(name.invalid_text(format!("must not already exist in {list}")));
    }
    if others.items().any(|other| other.get(other_path).text() == path.text()) {
        errors.push(path.invalid_text(format!("must not already exist as a path in {list}")));
    }
}

fn check_block(name: Field<'_, '_>, volumes: Field<'_, '_>, errors: &mut ErrorList) {
    let volume = volumes.items().find(|volume| volume.get("name").text() == name.text());
    let is_claim = |volume: &Field<'_, '_>| {
        volume.get("persistentVolumeClaim").is_set() || volume.get("ephemeral").is_set()
    };
    if volume.is_some_and(|volume| !is_claim(&volume)) {
        errors.push(name.invalid_text(
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
        ));
    }
}

fn check_recursion(mount: Field<'_, '_>, errors: &mut ErrorList) {
    let mode = mount.get("recursiveReadOnly");
    match mode.text() {
        _ if !mode.is_set() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.get("readOnly").is_true() {
                errors.push(mode.forbidden("may only be specified when readOnly is true"));
            }
            let propagation = mount.get("mountPropagation");
            if propagation.is_set() && propagation.text() != "None" {
                errors.push(mode.forbidden(
                    "may only be specified when mountPropagation is None or not specified",
                ));
            }
        }
        _ => errors.push(mode.not_supported(&["Disabled", "Enabled", "IfPossible"])),
    }
}

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];

fn check_name(name: Field<'_, '_>, known: &BTreeSet<&str>, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(name.required(""));
    } else if !known.contains(name.text()) {
        errors.push(name.not_found());
    }
}

fn check_sub_path(mount: Field<'_, '_>, errors: &mut ErrorList) {
    let (plain, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
    for path in [plain, expression] {
        if let Some(fault) = descending_path_fault(path.text()) {
            errors.push(path.invalid_text(fault));
        }
    }
    if !plain.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.push(expression.invalid_text(detail));
    }
}

fn check_propagation(container: Field<'_, '_>, propagation: Field<'_, '_>, errors: &mut ErrorList) {
    if propagation.is_empty() {
        return;
    }
    if !PROPAGATIONS.contains(&propagation.text()) {
        errors.push(propagation.not_supported(&PROPAGATIONS));
    }
    let privileged = container.get("securityContext").get("privileged").is_true();
    if propagation.text() == "Bidirectional" && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(propagation.forbidden(detail));
    }
}
