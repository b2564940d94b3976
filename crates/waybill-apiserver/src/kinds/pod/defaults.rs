//! What users leave out of a pod.

use serde_json::{Map, Value, json};
use waybill_api::quantity;

use super::resources::{container_requests, is_of_whole_pods};
use crate::kinds::document::{
    fill, fill_number, fill_text, items_mut, member, object_mut, put, text,
};

const GRACE: &str = "terminationGracePeriodSeconds";

/// Fills the spec of a pod.
pub(super) fn default_pod(spec: &mut Value) {
    default_spec(spec);
    fill(spec, "enableServiceLinks", true);
    // A grace period that is negative was never valid, and was never refused.
    if member(spec, GRACE).as_i64().is_some_and(i64::is_negative) {
        put(spec, GRACE, 1);
    }
    let host_network = member(spec, "hostNetwork") == true;
    for list in ["containers", "initContainers"] {
        for container in items_mut(spec, list) {
            fill_requests(container);
            if host_network {
                fill_host_ports(container);
            }
        }
    }
    fill_whole_requests(spec);
}

/// Fills the spec of a pod or of a pod template.
pub(crate) fn default_spec(spec: &mut Value) {
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "restartPolicy", "Always");
    fill_text(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", Map::new());
    fill(spec, GRACE, 30);
    fill_service_account(spec);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        items_mut(spec, list).for_each(default_container);
    }
    write_resources(spec);
    items_mut(spec, "volumes").for_each(default_volume);
}

/// Admission gives every pod a priority, which only classes of priority change.
pub(super) fn fill_priority(spec: &mut Value) {
    let priority = match text(spec, "priorityClassName") {
        "system-cluster-critical" => 2_000_000_000,
        "system-node-critical" => 2_000_001_000,
        _ => 0,
    };
    fill(spec, "priority", priority);
    fill(spec, "preemptionPolicy", "PreemptLowerPriority");
}

/// Admission lets every pod stay for five minutes on a node that is in trouble.
pub(super) fn fill_tolerations(spec: &mut Value) {
    let present = member(spec, "tolerations").as_array().map_or(&[][..], Vec::as_slice);
    let tolerated = |key: &str| {
        present.iter().any(|toleration| {
            (text(toleration, "key") == key || text(toleration, "key").is_empty())
                && matches!(text(toleration, "effect"), "NoExecute" | "")
        })
    };
    let missing: Vec<_> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .into_iter()
        .filter(|key| !tolerated(key))
        .map(|key| {
            json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300})
        })
        .collect();
    if !missing.is_empty() {
        fill(spec, "tolerations", Vec::<Value>::new());
        if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
            tolerations.extend(missing);
        }
    }
}

/// `rw-r--r--`, for files from the API.
const FILE_MODE: i64 = 0o644;

/// The field has an old name, which must agree.
fn fill_service_account(spec: &mut Value) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !name.is_empty() {
        put(spec, "serviceAccountName", name.clone());
        put(spec, "serviceAccount", name);
    }
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(text(container, "image"));
    fill_text(container, "imagePullPolicy", policy);
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    fill(container, "resources", Map::new());
    write_resources(container);
    for port in items_mut(container, "ports") {
        fill_text(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        container.get_mut(probe).into_iter().for_each(default_probe);
    }
    for hook in ["postStart", "preStop"] {
        let handler = container.get_mut("lifecycle").and_then(|all| all.get_mut(hook));
        handler.into_iter().for_each(default_handler);
    }
    for variable in items_mut(container, "env") {
        if let Some(source) = variable.get_mut("valueFrom") {
            default_field_ref(source);
            if let Some(file) = source.get_mut("fileKeyRef") {
                fill(file, "optional", false);
            }
        }
    }
}

/// Images whose tag moves are pulled at each start.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    // A colon before the last slash belongs to the port of the registry.
    let name = image.rsplit('/').next().unwrap_or(image);
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn write_resources(owner: &mut Value) {
    if let Some(resources) = owner.get_mut("resources") {
        for list in ["limits", "requests"] {
            resources.get_mut(list).into_iter().for_each(write_canonically);
        }
    }
}

/// Each amount in thousandths at the finest, and in its one text, since clients read texts only.
fn write_canonically(amounts: &mut Value) {
    for amount in amounts.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Ok(quantity) = quantity::read(amount) {
            *amount = quantity.round_up_to_milli().to_string().into();
        }
    }
}

fn default_probe(probe: &mut Value) {
    default_handler(probe);
    fill_number(probe, "timeoutSeconds", 1);
    fill_number(probe, "periodSeconds", 10);
    fill_number(probe, "successThreshold", 1);
    fill_number(probe, "failureThreshold", 3);
    if let Some(grpc) = probe.get_mut("grpc") {
        fill(grpc, "service", "");
    }
}

fn default_handler(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        fill_text(get, "path", "/");
        fill_text(get, "scheme", "HTTP");
    }
}

fn default_field_ref(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef") {
        fill_text(field, "apiVersion", "v1");
    }
}

fn fill_requests(container: &mut Value) {
    let Some(resources) = container.get_mut("resources") else { return };
    let Value::Object(limits) = member(resources, "limits").clone() else { return };
    if limits.is_empty() {
        return;
    }
    let Some(requests) = object_mut(resources, "requests") else { return };
    for (name, limit) in limits {
        fill(requests, &name, limit);
    }
}

/// A pod that speaks of resources as a whole requests what its containers do, or what it may use.
fn fill_whole_requests(spec: &mut Value) {
    if !member(spec, "resources").is_object() {
        return;
    }
    let sums = container_requests(spec).into_iter();
    let sums = sums.map(|(name, sum)| (name.to_owned(), sum.to_string().into()));
    let limits = member(member(spec, "resources"), "limits").as_object().into_iter().flatten();
    let limits = limits.map(|(name, limit)| (name.clone(), limit.clone()));
    let known = |(name, _): &(String, Value)| is_of_whole_pods(name);
    let amounts: Vec<_> = sums.chain(limits).filter(known).collect();
    if let Some(resources) = spec.get_mut("resources").filter(|_| !amounts.is_empty())
        && let Some(requests) = object_mut(resources, "requests")
    {
        for (name, amount) in amounts {
            fill(requests, &name, amount);
        }
    }
}

fn fill_host_ports(container: &mut Value) {
    for port in items_mut(container, "ports") {
        if let Some(number) = member(port, "containerPort").as_i64() {
            fill_number(port, "hostPort", number);
        }
    }
}

fn default_volume(volume: &mut Value) {
    let Value::Object(fields) = &*volume else { return };
    if fields.iter().all(|(name, value)| name == "name" || value.is_null()) {
        put(volume, "emptyDir", Map::new());
    }
    for source in ["configMap", "downwardAPI", "projected", "secret"] {
        if let Some(source) = volume.get_mut(source) {
            fill(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", "");
    }
    if let Some(downward) = volume.get_mut("downwardAPI") {
        items_mut(downward, "items").for_each(default_field_ref);
    }
    if let Some(projected) = volume.get_mut("projected") {
        items_mut(projected, "sources").for_each(default_projection);
    }
    if let Some(image) = volume.get_mut("image") {
        let policy = pull_policy(text(image, "reference"));
        fill_text(image, "pullPolicy", policy);
    }
}

fn default_projection(source: &mut Value) {
    if let Some(token) = source.get_mut("serviceAccountToken") {
        fill(token, "expirationSeconds", 3600);
    }
    if let Some(downward) = source.get_mut("downwardAPI") {
        items_mut(downward, "items").for_each(default_field_ref);
    }
}

#[cfg(test)]
mod tests;
