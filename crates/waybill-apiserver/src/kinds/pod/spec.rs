//! What the spec of a pod may say, its containers and volumes aside.

use waybill_api::{
    field::{ErrorList, FieldError},
    names::{qualified_name_faults, subdomain_faults},
};

use super::{affinity, claims, container, dns, os, resources, security, update::MIRROR, volume};
use crate::kinds::{NameRule, document::Field, meta, taint::check_tolerations};

/// What must hold for every pod, its metadata and environments aside.
pub(super) fn check_pod(pod: Field<'_, '_>, errors: &mut ErrorList) {
    let spec = pod.get("spec");
    let metadata = pod.get("metadata");
    let annotations = metadata.get("annotations");
    let mirror = annotations.get(MIRROR);
    if mirror.is_set() && spec.get("nodeName").is_empty() {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        let path = annotations.path().key(MIRROR);
        errors.push(FieldError::invalid(path, mirror.text(), detail));
    }
    check_spec(spec, errors);
    container::check_images(spec, errors);
    if spec.get("serviceAccountName").is_empty() {
        volume::check_no_tokens(spec.get("volumes"), errors);
    }
}

/// What must hold for the spec of a pod or a pod template, its environments aside.
pub(crate) fn check_spec(spec: Field<'_, '_>, errors: &mut ErrorList) {
    volume::check_volumes(spec.get("volumes"), errors);
    claims::check_claims(spec.get("resourceClaims"), errors);
    container::check_containers(spec, errors);
    resources::check_whole_pod(spec, errors);
    container::check_host_ports(spec, errors);
    check_choice(spec.get("restartPolicy"), &["Always", "OnFailure", "Never"], errors);
    dns::check_policy(spec.get("dnsPolicy"), errors);
    meta::check_labels(spec.get("nodeSelector"), errors);
    security::check_pod(spec, errors);
    affinity::check_affinity(spec.get("affinity"), errors);
    dns::check_config(spec, errors);
    check_gates(spec, errors);
    affinity::check_spread(spec.get("topologySpreadConstraints"), errors);
    check_host_users(spec, errors);
    check_names(spec, errors);
    check_hostname_override(spec, errors);
    let deadline = spec.get("activeDeadlineSeconds");
    if deadline.number().is_some_and(|seconds| !SECONDS.contains(&seconds)) {
        errors.push(deadline.invalid("must be between 1 and 2147483647, inclusive"));
    }
    check_tolerations(spec.get("tolerations"), errors);
    let preemption = spec.get("preemptionPolicy");
    check_optional_choice(preemption, &["PreemptLowerPriority", "Never"], errors);
    resources::check_overhead(spec.get("overhead"), errors);
    os::check_os(spec, errors);
}

/// What must hold for a pod that is just being made.
pub(super) fn check_new_pod(spec: Field<'_, '_>, errors: &mut ErrorList) {
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("cannot be set on create"));
    }
    let node = spec.get("nodeName");
    if !node.is_empty() && !spec.get("schedulingGates").is_empty() {
        errors.push(node.forbidden("cannot be set until all schedulingGates have been cleared"));
    }
}

/// `field` must be one of `choices`.
pub(super) fn check_choice(field: Field<'_, '_>, choices: &[&str], errors: &mut ErrorList) {
    if field.is_empty() {
        errors.push(field.required(""));
    } else if !choices.contains(&field.text()) {
        errors.push(field.not_supported(choices));
    }
}

/// `field` must be one of `choices` if it is there.
pub(super) fn check_optional_choice(
    field: Field<'_, '_>,
    choices: &[&str],
    errors: &mut ErrorList,
) {
    if field.is_set() && !choices.contains(&field.text()) {
        errors.push(field.not_supported(choices));
    }
}

/// `address` must be an IP address.
pub(super) fn check_ip(address: Field<'_, '_>, errors: &mut ErrorList) {
    if address.text().parse::<std::net::IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(address.invalid_text(detail));
    }
}

const SECONDS: std::ops::RangeInclusive<i64> = 1..=2_147_483_647;

const WITH_OWN_USERS: &str = "when `hostUsers` is false";

/// A pod with users of its own cannot share the other namespaces of the host.
fn check_host_users(spec: Field<'_, '_>, errors: &mut ErrorList) {
    if spec.get("hostUsers").value() != false {
        return;
    }
    for (field, shown) in
        [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")]
    {
        if spec.get(field).is_true() {
            errors.push(spec.get(shown).forbidden(WITH_OWN_USERS));
        }
    }
    // Neither are their ids mapped, nor are they given to the pod.
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get(list).items() {
            if container.get("volumeDevices").items().next().is_some() {
                errors.push(container.get("volumeDevices").forbidden(WITH_OWN_USERS));
            }
        }
    }
}

/// It is the whole name of the pod's machine, and the machine must be its own.
fn check_hostname_override(spec: Field<'_, '_>, errors: &mut ErrorList) {
    let name = spec.get("hostnameOverride");
    if name.is_empty() {
        return;
    }
    errors.extend(name.all_invalid(subdomain_faults(name.text())));
    if name.text().len() > HOSTNAME_BYTES {
        errors.push(FieldError::too_long(name.path(), HOSTNAME_BYTES));
    }
    for field in ["hostNetwork", "setHostnameAsFQDN"] {
        if spec.get(field).is_true() {
            errors.push(name.forbidden(format!("may not be set when `{field}` is true")));
        }
    }
}

/// As long as the kernel lets the name of a machine be.
const HOSTNAME_BYTES: usize = 64;

fn check_gates(spec: Field<'_, '_>, errors: &mut ErrorList) {
    for gate in spec.get("readinessGates").items() {
        let condition = gate.get("conditionType");
        errors.extend(condition.all_invalid(qualified_name_faults(condition.text())));
    }
    let mut seen = Vec::new();
    for gate in spec.get("schedulingGates").items() {
        let name = gate.get("name").text();
        for fault in qualified_name_faults(name) {
            errors.push(gate.invalid_as(name, fault));
        }
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(gate.path(), name));
        }
        seen.push(name);
    }
}

/// The names of other things.
fn check_names(spec: Field<'_, '_>, errors: &mut ErrorList) {
    for (name, rule) in [
        ("serviceAccountName", NameRule::Subdomain),
        ("nodeName", NameRule::Subdomain),
        ("hostname", NameRule::Label),
        ("subdomain", NameRule::Label),
        ("priorityClassName", NameRule::Subdomain),
        ("runtimeClassName", NameRule::Subdomain),
    ] {
        let field = spec.get(name);
        if !field.is_empty() {
            errors.extend(field.all_invalid(rule.faults(field.text())));
        }
    }
    for alias in spec.get("hostAliases").items() {
        check_ip(alias.get("ip"), errors);
        for hostname in alias.get("hostnames").items() {
            errors.extend(hostname.all_invalid(subdomain_faults(hostname.text())));
        }
    }
}

#[cfg(test)]
mod tests;
