//! `ProviderClass` as a CustomResourceDefinition, for clusters that do not serve it (OP-31).
//!
//! `deploy/gate/crd.yaml` is written from the schema that this server serves, and a test compares both.
//! Its group is our own, because Kubernetes keeps `storage.k8s.io` for itself.

use std::{fs, path::Path};

use serde_json::{Value, json};
use waybill_api::provider_class::{KIND, RESOURCE};

use super::{definitions::define, kinds};

const GROUP: &str = "waybill.dev";
const FILE: &str = "../../deploy/gate/crd.yaml";
const HEAD: &str = "# Written from the schema of our own API server; do not edit. \
    WAYBILL_WRITE_CRD=1 cargo test -p waybill-apiserver crd\n";

fn definition() -> Value {
    let definitions = define(kinds::all());
    let served = &definitions["io.k8s.api.storage.v1.ProviderClass"];
    let mut schema = served.clone();
    // A structural schema refers to nothing, and says of metadata only that it is an object.
    schema["properties"]["metadata"] = json!({"type": "object"});
    let described = schema["properties"]["spec"]["description"].clone();
    schema["properties"]["spec"] = definitions["io.k8s.api.storage.v1.ProviderClassSpec"].clone();
    schema["properties"]["spec"]["description"] = described;
    if let Value::Object(fields) = &mut schema {
        fields.retain(|name, _| !name.starts_with("x-"));
    }
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{RESOURCE}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": KIND, "listKind": format!("{KIND}List"), "plural": RESOURCE,
                "singular": "providerclass"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [
                    column("Driver", ".spec.driver"),
                    column("Namespaces", ".spec.parameters.allowedNamespaces"),
                    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
                ],
            }],
        },
    })
}

/// CSI-15
#[test]
#[expect(clippy::disallowed_methods, reason = "a variable asks a test to write its golden file")]
fn the_shipped_definition_is_what_this_server_serves_csi_15_op_31() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("WAYBILL_WRITE_CRD").is_some() {
        let text = serde_saphyr::to_string(&definition()).unwrap();
        fs::write(&path, format!("{HEAD}{text}")).unwrap();
    }
    let shipped: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(shipped, definition());
}

/// What Kubernetes demands of a schema before it serves a definition.
#[test]
fn the_definition_is_structural_op_31() {
    let definition = definition();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    check_structural(schema, "");
    let spec = &schema["properties"]["spec"];
    assert_eq!(spec["required"], json!(["driver"]));
    assert_eq!(spec["properties"]["parameters"]["additionalProperties"], json!({"type": "string"}));
}

#[track_caller]
fn check_structural(schema: &Value, at: &str) {
    let fields = schema.as_object().unwrap();
    assert!(schema["type"].is_string(), "{at}: no type");
    for name in fields.keys() {
        let allowed = ["additionalProperties", "description", "properties", "required", "type"];
        assert!(allowed.contains(&name.as_str()), "{at}: {name}");
    }
    assert!(
        !(fields.contains_key("properties") && fields.contains_key("additionalProperties")),
        "{at}: both properties and additionalProperties"
    );
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        check_structural(field, &format!("{at}.{name}"));
    }
    if let Some(entry) = fields.get("additionalProperties") {
        check_structural(entry, &format!("{at}.*"));
    }
}
