//! Containers of all three kinds.

use std::collections::BTreeSet;

use waybill_api::{
    field::{ErrorList, FieldError},
    names::{label_faults, port_name_faults},
};

use super::{claims, handler, mount, resources, restart, security, spec::check_choice};
use crate::kinds::document::Field;

/// The most of each kind in a pod. Upstream knows no limit but that of its store; no node runs a pod with more, and one with 20,000
/// kept a node from everything else.
const MOST_CONTAINERS: usize = 1000;

/// The containers of `spec`, in upstream's order.
pub(super) fn check_containers(spec: Field<'_, '_>, errors: &mut ErrorList) {
    let (regular, init) = (spec.get("containers"), spec.get("initContainers"));
    let ephemeral = spec.get("ephemeralContainers");
    let mut names = BTreeSet::new();
    if regular.is_empty() {
        errors.push(regular.required(""));
    }
    let too_many = |list: &Field<'_, '_>| list.items().count() > MOST_CONTAINERS;
    let mut surplus = [regular, init, ephemeral].into_iter().filter(too_many).peekable();
    if surplus.peek().is_some() {
        // What is wrong with each of them helps nobody.
        errors.extend(
            surplus.map(|list| {
                FieldError::too_many(list.path(), list.items().count(), MOST_CONTAINERS)
            }),
        );
        return;
    }
    for container in regular.items() {
        check_common(spec, container, &mut names, errors);
        handler::check_container(spec, container, errors);
        restart::check_restarts(container, errors);
    }
    check_port_conflicts(regular.items(), errors);
    for container in init.items() {
        check_common(spec, container, &mut names, errors);
        check_init(spec, container, errors);
        // Init containers run one after the other.
        check_port_conflicts([container], errors);
    }
    let lasting = names.clone();
    for container in ephemeral.items() {
        check_common(spec, container, &mut names, errors);
        check_ephemeral(container, &lasting, errors);
    }
}

/// Pods, unlike templates, must name images exactly.
pub(super) fn check_images(spec: Field<'_, '_>, errors: &mut ErrorList) {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.get(list).items() {
            let image = container.get("image");
            if image.text().trim() != image.text() {
                errors.push(image.invalid_text("must not have leading or trailing whitespace"));
            }
        }
    }
}

/// On the network of the host, ports are what they are. Templates may leave them out, and pods get
/// them by default.
pub(super) fn check_host_ports(spec: Field<'_, '_>, errors: &mut ErrorList) {
    if !spec.get("hostNetwork").is_true() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            let number = host.number().unwrap_or_default();
            if number != 0 && host.number() != port.get("containerPort").number() {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(host.invalid_as(number, detail));
            }
        }
    }
}

/// The text for a number that is no port.
pub(super) const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Whether `number` is a port.
pub(super) fn is_port(number: i64) -> bool {
    (1..=65535).contains(&number)
}

const EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

fn check_common<'v>(
    spec: Field<'v, '_>,
    container: Field<'v, '_>,
    names: &mut BTreeSet<&'v str>,
    errors: &mut ErrorList,
) {
    let name = container.get("name");
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        errors.extend(name.all_invalid(label_faults(name.text())));
        if !names.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
    if container.get("image").is_empty() {
        errors.push(container.get("image").required(""));
    }
    let policy = container.get("terminationMessagePolicy");
    check_choice(policy, &["File", "FallbackToLogsOnError"], errors);
    check_ports(container.get("ports"), errors);
    mount::check_mounts(container, spec.get("volumes"), errors);
    check_choice(container.get("imagePullPolicy"), &["Always", "IfNotPresent", "Never"], errors);
    resources::check_resources(container.get("resources"), errors);
    claims::check_uses(spec, container, errors);
    check_resize_policy(spec, container.get("resizePolicy"), errors);
    security::check_container(spec, container.get("securityContext"), errors);
}

/// Upstream names the list, not its items, but for duplicates.
fn check_resize_policy(spec: Field<'_, '_>, policies: Field<'_, '_>, errors: &mut ErrorList) {
    let mut names = BTreeSet::new();
    for policy in policies.items() {
        let (name, restart) =
            (policy.get("resourceName").text(), policy.get("restartPolicy").text());
        if !names.insert(name) {
            errors.push(FieldError::duplicate(policy.path(), name));
        }
        for (text, choices) in [(name, &["cpu", "memory"]), (restart, &RESIZES)] {
            if text.is_empty() {
                errors.push(policies.required(""));
            } else if !choices.contains(&text) {
                errors.push(policies.invalid_choice(text, choices));
            }
        }
        if spec.get("restartPolicy").text() == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(policies.invalid_as(restart, detail));
        }
    }
}

const RESIZES: [&str; 2] = ["NotRequired", "RestartContainer"];

fn check_ports(ports: Field<'_, '_>, errors: &mut ErrorList) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.is_empty() {
            let faults = port_name_faults(name.text());
            if faults.is_empty() && !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
            errors.extend(name.all_invalid(faults));
        }
        let number = port.get("containerPort");
        match number.number() {
            None | Some(0) => errors.push(number.required("")),
            Some(port) if !is_port(port) => errors.push(number.invalid(PORT_RANGE)),
            Some(_) => {}
        }
        let host = port.get("hostPort");
        if host.number().is_some_and(|port| port != 0 && !is_port(port)) {
            errors.push(host.invalid(PORT_RANGE));
        }
        check_choice(port.get("protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
}

fn check_port_conflicts<'v, 'w>(
    containers: impl IntoIterator<Item = Field<'v, 'w>>,
    errors: &mut ErrorList,
) {
    let mut taken = BTreeSet::new();
    for container in containers {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            let Some(number) = host.number().filter(|&number| number != 0) else { continue };
            let (protocol, ip) = (port.get("protocol").text(), port.get("hostIP").text());
            if !taken.insert((protocol, ip, number)) {
                let shown = format!("{protocol}/{ip}/{number}");
                errors.push(FieldError::duplicate(host.path(), shown));
            }
        }
    }
}

/// An init container that restarts is a sidecar, and may do what others may.
fn check_init(spec: Field<'_, '_>, container: Field<'_, '_>, errors: &mut ErrorList) {
    restart::check_restarts(container, errors);
    if container.get("restartPolicy").text() == "Always" {
        handler::check_container(spec, container, errors);
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if container.get(field).is_set() {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(container.get(field).forbidden(detail));
        }
    }
}

/// Nothing of the pod may come to depend on a container that is there for debugging.
fn check_ephemeral(container: Field<'_, '_>, others: &BTreeSet<&str>, errors: &mut ErrorList) {
    let target = container.get("targetContainerName");
    if !target.is_empty() && !others.contains(target.text()) {
        errors.push(target.not_found());
    }
    for field in [
        "ports",
        "resources",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
    ] {
        if !container.get(field).is_empty() {
            errors.push(container.get(field).forbidden(EPHEMERAL));
        }
    }
    for mount in container.get("volumeMounts").items() {
        for field in ["subPath", "subPathExpr"] {
            if !mount.get(field).is_empty() {
                errors.push(mount.get(field).forbidden(EPHEMERAL));
            }
        }
    }
}

#[cfg(test)]
mod tests;
