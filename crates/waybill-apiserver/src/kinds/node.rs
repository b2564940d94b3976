//! Nodes.

mod table;

use serde_json::Value;
use waybill_api::field::ErrorList;

use super::{
    Context, Kind, Shape, Status,
    document::{Field, fill, member},
    taint::check_taints,
};

use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Scope, Subresource},
    schema::{self, KindSchema},
    selector::supported::{self, Source},
};

static NODES_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::Node>();

pub(crate) static NODES: Resource = Resource {
    plural: "nodes",
    singular: "node",
    kind: "Node",
    short_names: &["no"],
    scope: Scope::Cluster,
    subresources: &[
        Subresource {
            name: "proxy",
            group_version: None,
            kind: "NodeProxyOptions",
            verbs: &["get"],
        },
        Subresource::STATUS,
        // What ran in the sessions of the node.
        Subresource { name: "trace", group_version: None, kind: "", verbs: &["get"] },
    ],
    schemas: &NODES_SCHEMAS,
    protobuf: Some(&tables::core_v1::NODE),
    rules: Some(&Node),
    table: table::TABLE,
    fields: &[supported::NAME, ("spec.unschedulable", Source::Flag("/spec/unschedulable"))],
    patch: patch::core_v1::NODE,
    ..Resource::BASE
};

pub(super) struct Node;

impl Kind for Node {
    fn shape(&self) -> Shape {
        Shape {
            // A node registers itself with all that it knows.
            status: Status::AtCreation,
            ..Shape::CLUSTER
        }
    }

    fn default(&self, object: &mut Value) {
        let Some(status) = object.get_mut("status") else { return };
        if let capacity @ Value::Object(_) = member(status, "capacity").clone() {
            fill(status, "allocatable", capacity);
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        check_taints(object.get("spec").get("taints"), errors);
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        for name in ["podCIDR", "providerID"] {
            let (new, old) = (new.get("spec"), old.get("spec"));
            if !old.get(name).is_empty() && new.get(name).text() != old.get(name).text() {
                let detail =
                    format!("node updates may not change {name} except from \"\" to valid");
                errors.push(new.get(name).forbidden(detail));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_update, defaulted};

    fn node(spec: &Value) -> Value {
        json!({"metadata": {"name": "n"}, "spec": spec})
    }

    #[test]
    fn what_is_there_can_be_allocated() {
        let node = json!({"status": {"capacity": {"cpu": "2"}}});
        assert_eq!(defaulted(&Node, &node)["status"]["allocatable"], json!({"cpu": "2"}));
        assert_eq!(defaulted(&Node, &json!({"status": {}})), json!({"status": {}}));
    }

    #[test]
    fn taints_are_judged() {
        let taint = json!({"key": "a", "value": "b", "effect": "NoSchedule"});
        check_create(&Node, &node(&json!({"taints": [taint]})), &[]);
        check_create(
            &Node,
            &node(&json!({"taints": [{"key": "a b"}]})),
            &[
                "spec.taints[0].key: Invalid value: \"a b\": name part",
                "spec.taints[0].effect: Required value",
            ],
        );
    }

    #[test]
    fn a_node_stays_where_it_is() {
        let old = node(&json!({"providerID": "a"}));
        check_update(&Node, &old, &node(&json!({})), &[]);
        check_update(
            &Node,
            &node(&json!({"providerID": "b"})),
            &old,
            &["spec.providerID: Forbidden: node updates may not change providerID except from"],
        );
    }
}
