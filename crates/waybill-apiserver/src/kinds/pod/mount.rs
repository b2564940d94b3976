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
    let mut paths = BTreeSet::new();
    for mount in container.get("volumeMounts").items() {
        check_name(mount.get("name"), &known, errors);
        let path = mount.get("mountPath");
        if path.is_empty() {
            errors.push(path.required(""));
        } else if !paths.insert(path.text()) {
            errors.push(path.invalid_text("must be unique"));
        }
        check_sub_path(mount, errors);
        check_propagation(container, mount.get("mountPropagation"), errors);
    }
    for device in container.get("volumeDevices").items() {
        check_name(device.get("name"), &known, errors);
        let path = device.get("devicePath");
        if path.is_empty() {
            errors.push(path.required(""));
        } else if !paths.insert(path.text()) {
            errors.push(path.invalid_text("must be unique"));
        }
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
