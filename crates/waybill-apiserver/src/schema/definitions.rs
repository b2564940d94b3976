//! Definitions: the schema documents of kinds and of all they refer to.
//!
//! They are made on demand and not kept, because they are mostly descriptions. In this form a `$ref`
//! reads `#/definitions/<name>` and may have a description beside it, as in OpenAPI v2.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{KindSchema, extensions, list_types};

/// What stands before the name in a `$ref`.
pub(super) const REF_PREFIX: &str = "#/definitions/";

pub(super) const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
pub(super) const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
pub(super) const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
/// Types that hold whatever JSON they are given.
pub(super) const OPAQUE: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

pub(super) const OBJECT_META: &str =
    "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";

/// Named schemas, by name.
pub(super) type Definitions = Map<String, Value>;

/// Defines `kinds` and all they refer to.
pub(super) fn define<'a>(kinds: impl IntoIterator<Item = &'a KindSchema>) -> Definitions {
    let kinds: Vec<_> = kinds.into_iter().collect();
    let mut generator = generator();
    for kind in &kinds {
        (kind.define)(&mut generator);
    }
    extensions::extend(&mut generator);
    let mut definitions = generator.take_definitions(false);
    for definition in definitions.values_mut() {
        make_metadata_optional(definition);
    }
    list_types::annotate(&mut definitions);
    for kind in kinds {
        name_kind(&mut definitions, kind);
    }
    definitions
}

fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/definitions".into();
    settings.transforms.clear();
    settings.into_generator()
}

/// `k8s-openapi` demands `metadata`, because its Rust field is no `Option`; Kubernetes does not.
fn make_metadata_optional(definition: &mut Value) {
    let reference = definition.pointer("/properties/metadata/$ref").and_then(Value::as_str);
    if reference != Some(OBJECT_META) {
        return;
    }
    let Some(fields) = definition.as_object_mut() else { return };
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|name| name != "metadata");
        if required.is_empty() {
            fields.remove("required");
        }
    }
}

fn name_kind(definitions: &mut Definitions, kind: &KindSchema) {
    let definition = definitions.get_mut(&*kind.definition());
    let Some(Value::Object(definition)) = definition else { return };
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    definition.insert(GROUP_VERSION_KIND.to_owned(), json!([gvk]));
}
