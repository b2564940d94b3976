//! Pods.

mod affinity;
mod binding;
mod claims;
mod container;
mod defaults;
mod dns;
mod env;
mod ephemeral;
mod handler;
mod mount;
mod os;
mod qos;
mod resize;
mod resources;
mod restart;
mod security;
mod spec;
mod status;
mod table;
mod update;
mod volume;

#[cfg(test)]
mod testing;

use serde_json::{Value, json};
use waybill_api::{field::ErrorList, pod::drop_disabled_fields};

pub(crate) use self::{
    binding::{bind, validate_binding},
    ephemeral::{prepare_ephemeral_containers_update, validate_ephemeral_containers_update},
    resize::{prepare_resize, validate_resize, with_resources_of},
};
pub(super) use self::{
    defaults::default_spec,
    env::{check_env, check_env_update, env_warnings},
    spec::check_spec,
};
use super::{
    Context, Generation, Kind, Shape, Status,
    document::{Field, fill, keep, member, object_mut, put},
    meta,
};

use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Subresource},
    schema::{self, KindSchema},
    selector::supported::{self, Source},
};

static PODS_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::Pod>();

pub(crate) static PODS: Resource = Resource {
    plural: "pods",
    singular: "pod",
    kind: "Pod",
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        Subresource::connect("attach", "PodAttachOptions"),
        Subresource { name: "binding", group_version: None, kind: "Binding", verbs: &["create"] },
        Subresource {
            name: "ephemeralcontainers",
            group_version: None,
            kind: "",
            verbs: &["get", "patch", "update"],
        },
        Subresource {
            name: "eviction",
            group_version: Some(("policy", "v1")),
            kind: "Eviction",
            verbs: &["create"],
        },
        Subresource::connect("exec", "PodExecOptions"),
        Subresource { name: "log", group_version: None, kind: "", verbs: &["get"] },
        Subresource::connect("portforward", "PodPortForwardOptions"),
        Subresource {
            name: "resize",
            group_version: None,
            kind: "",
            verbs: &["get", "patch", "update"],
        },
        Subresource::STATUS,
    ],
    schemas: &PODS_SCHEMAS,
    protobuf: Some(&tables::core_v1::POD),
    rules: Some(&Pod),
    table: table::TABLE,
    fields: &[
        supported::NAME,
        supported::NAMESPACE,
        // The first name of `spec.nodeName`, which upstream still reads.
        ("spec.host", Source::Text(&["/spec/nodeName"])),
        ("spec.hostNetwork", Source::Flag("/spec/hostNetwork")),
        ("spec.nodeName", Source::Text(&["/spec/nodeName"])),
        ("spec.restartPolicy", Source::Text(&["/spec/restartPolicy"])),
        ("spec.schedulerName", Source::Text(&["/spec/schedulerName"])),
        ("spec.serviceAccountName", Source::Text(&["/spec/serviceAccountName"])),
        ("status.nominatedNodeName", Source::Text(&["/status/nominatedNodeName"])),
        ("status.phase", Source::Text(&["/status/phase"])),
        ("status.podIP", Source::Text(&["/status/podIP", "/status/podIPs/0/ip"])),
        ("status.podIPs", Source::Ips("/status/podIPs")),
    ],
    patch: patch::core_v1::POD,
    ..Resource::BASE
};

pub(super) struct Pod;

impl Kind for Pod {
    fn shape(&self) -> Shape {
        Shape { generation: Generation::OfSpec, status: Status::Subresource, ..Shape::NAMESPACED }
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = object_mut(object, "spec") {
            defaults::default_pod(spec);
        }
    }

    /// FILE-09
    fn prepare_create(&self, object: &mut Value, context: &Context) {
        meta::prepare_create(self.shape(), object);
        let Some(spec) = object_mut(object, "spec") else { return };
        drop_disabled_fields(spec, None, &context.gates);
        defaults::fill_priority(spec);
        defaults::fill_tolerations(spec);
        let status = initial_status(spec);
        put(object, "status", status);
    }

    /// FILE-09
    fn prepare_update(&self, new: &mut Value, old: &Value, context: &Context) {
        let old_spec = member(old, "spec");
        if let Some(spec) = object_mut(new, "spec") {
            drop_disabled_fields(spec, Some(old_spec), &context.gates);
            for field in ["priority", "preemptionPolicy"] {
                fill(spec, field, member(old_spec, field).clone());
            }
            defaults::fill_tolerations(spec);
            // They change by their own subresource only.
            keep(spec, old_spec, "ephemeralContainers");
        }
        meta::prepare_update(self.shape(), new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        meta::prepare_status_update(new, old);
        if let Some(metadata) = object_mut(new, "metadata") {
            // By their labels pods are found and guarded; those who report on them do not choose them.
            keep(metadata, member(old, "metadata"), "labels");
        }
        if let Some(status) = object_mut(new, "status") {
            keep(status, member(old, "status"), "qosClass");
        }
    }

    /// NAME-06, CSI-10, CSI-12
    fn validate_create(&self, object: &Value, context: &Context) -> ErrorList {
        let mut errors = meta::validate_create(self.shape(), object);
        let root = Field::root(object);
        let spec = root.get("spec");
        spec::check_pod(root, &mut errors);
        check_env(root, context, &mut errors);
        spec::check_new_pod(spec, &mut errors);
        errors
    }

    /// NAME-07, NAME-08, CSI-10
    fn validate_update(&self, new: &Value, old: &Value, context: &Context) -> ErrorList {
        let mut errors = meta::validate_update(new, old);
        let (new, old) = (Field::root(new), Field::root(old));
        spec::check_pod(new, &mut errors);
        check_env_update(new, old, context, &mut errors);
        update::check_mirror(new, old, &mut errors);
        update::check_change(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value, _context: &Context) -> ErrorList {
        let mut errors = meta::validate_update(new, old);
        let (new, old) = (Field::root(new), Field::root(old));
        update::check_mirror(new, old, &mut errors);
        status::check_change(new, old, &mut errors);
        errors
    }

    fn warnings(&self, object: &Value, context: &Context) -> Vec<String> {
        env_warnings(Field::root(object).get("spec"), context)
    }
}

/// The status of a pod that nothing has happened to yet.
fn initial_status(spec: &Value) -> Value {
    let mut status = json!({"phase": "Pending", "qosClass": qos::class(spec)});
    if !Field::root(spec).get("schedulingGates").is_empty() {
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        });
        put(&mut status, "conditions", vec![condition]);
    }
    status
}

#[cfg(test)]
mod tests;
