//! What clients find in the OpenAPI documents.

use super::*;

const CRUD: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

const PODS: ServedKind = ServedKind {
    group: "",
    version: "v1",
    kind: "Pod",
    resource: "pods",
    namespaced: true,
    verbs: CRUD,
    subresources: &[
        ServedSubresource {
            name: "status",
            group: "",
            version: "v1",
            kind: "Pod",
            verbs: &["get", "patch", "update"],
        },
        ServedSubresource {
            name: "eviction",
            group: "policy",
            version: "v1",
            kind: "Eviction",
            verbs: &["create"],
        },
        ServedSubresource {
            name: "exec",
            group: "",
            version: "v1",
            kind: "PodExecOptions",
            verbs: &["create", "get"],
        },
    ],
};

const fn plain(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    resource: &'static str,
    namespaced: bool,
) -> ServedKind {
    ServedKind { group, version, kind, resource, namespaced, verbs: CRUD, subresources: &[] }
}

fn served() -> Vec<ServedKind> {
    let rbac = "rbac.authorization.k8s.io";
    let review = ServedKind {
        verbs: &["create"],
        ..plain("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", false)
    };
    vec![
        PODS,
        plain("", "v1", "Namespace", "namespaces", false),
        plain("", "v1", "Node", "nodes", false),
        plain("", "v1", "PodTemplate", "podtemplates", true),
        plain("", "v1", "ConfigMap", "configmaps", true),
        plain("", "v1", "Secret", "secrets", true),
        plain("", "v1", "ServiceAccount", "serviceaccounts", true),
        plain("", "v1", "Event", "events", true),
        plain("events.k8s.io", "v1", "Event", "events", true),
        plain("coordination.k8s.io", "v1", "Lease", "leases", true),
        plain(rbac, "v1", "Role", "roles", true),
        plain(rbac, "v1", "ClusterRole", "clusterroles", false),
        review,
        plain("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false),
        plain("storage.k8s.io", "v1", "CSINode", "csinodes", false),
        plain("storage.k8s.io", "v1", "ProviderClass", "providerclasses", false),
        plain("storage.k8s.io", "v1alpha1", "ProviderClass", "providerclasses", false),
    ]
}

fn core() -> Value {
    openapi_v3(GroupVersion { group: "", version: "v1" }, &served())
}

/// Every `$ref` of `document`.
fn references<'a>(document: &'a Value, found: &mut Vec<&'a str>) {
    match document {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[track_caller]
fn check_references(document: &Value) {
    let mut found = Vec::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let served = served();
    for version in served.iter().map(ServedKind::group_version).collect::<BTreeSet<_>>() {
        check_references(&openapi_v3(version, &served));
    }
    check_references(&openapi_v2(&served));
}

/// Go's reader of these documents leaves an empty list out when it writes them again, and upstream's test compares both.
#[test]
fn no_path_and_no_operation_has_an_empty_list_of_parameters() {
    let served = served();
    let documents = [core(), openapi_v2(&served)];
    for path in documents.iter().flat_map(|document| document["paths"].as_object().unwrap()) {
        let operations = path.1.as_object().unwrap().values();
        for described in operations.chain([path.1]) {
            assert_ne!(described.get("parameters"), Some(&json!([])), "{}", path.0);
        }
    }
}

/// CSI-09
#[test]
fn our_fields_are_described_csi_09_exec_17() {
    let core = core();
    let field = |definition: &str, field: &str| {
        core["components"]["schemas"][definition]["properties"][field].clone()
    };
    assert_eq!(
        field("io.k8s.api.core.v1.EnvVarSource", "csiSecretRef")["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.CSISecretSelector"}])
    );
    assert_eq!(field("io.k8s.api.core.v1.PodExecOptions", "env")["type"], "array");
}

#[test]
fn the_patch_of_a_kind_names_the_parameters_that_kubectl_looks_for() {
    let core = core();
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "Pod"})
    );
    let names: Vec<_> =
        patch["parameters"].as_array().unwrap().iter().map(|found| &found["name"]).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation"]);
    let content = &patch["requestBody"]["content"];
    assert!(content.get("application/strategic-merge-patch+json").is_some());
}

#[test]
fn a_number_or_text_reads_as_upstream_serves_it() {
    let port = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
    let quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity";
    let v3 = &core()["components"]["schemas"];
    assert_eq!(v3[port]["oneOf"], json!([{"type": "integer"}, {"type": "string"}]));
    assert_eq!(v3[quantity]["oneOf"], json!([{"type": "string"}, {"type": "number"}]));
    let v2 = &openapi_v2(&served())["definitions"];
    assert_eq!(
        (&v2[port]["type"], &v2[port]["format"]),
        (&json!("string"), &json!("int-or-string"))
    );
    assert_eq!((&v2[quantity]["type"], v2[quantity].get("format")), (&json!("string"), None));
}

#[test]
fn verbs_that_are_not_served_have_no_operation() {
    let version = GroupVersion { group: "authentication.k8s.io", version: "v1" };
    let document = openapi_v3(version, &served());
    let paths = document["paths"].as_object().unwrap();
    let urls: Vec<_> = paths.keys().collect();
    assert_eq!(urls, ["/apis/authentication.k8s.io/v1/selfsubjectreviews"]);
    assert!(paths[urls[0]].get("get").is_none());
}

#[test]
fn lists_carry_their_merge_keys() {
    let core = core();
    let containers =
        &core["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
}

#[test]
fn kept_documents_are_stable_and_the_index_names_them() {
    let first = OpenApi::new(served());
    let second = OpenApi::new(served());
    assert_eq!(first.v3_index(), second.v3_index());
    let index: Value = serde_json::from_slice(&first.v3_index()).unwrap();
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 7);
    for path in paths.keys() {
        assert!(first.v3(path).is_some(), "{path}");
        let url = paths[path]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("/openapi/v3/{path}?hash=")), "{url}");
    }
    assert!(first.v3("apis/none/v1").is_none());
}
