//! ProviderClasses; their rules live in `waybill-api` (CSI-15).

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    provider_class::{self, ProviderClass as Class},
};
use waybill_core::provider::ALLOWED_NAMESPACES;

use super::{Context, Generation, Kind, Shape, meta};

use crate::{
    registry::{Resource, Scope},
    schema::{
        self, KindSchema,
        extensions::{self, V1, V1Alpha1},
    },
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

const TABLE: Table = Table {
    columns: &[
        columns::NAME,
        Column::new("Driver", "The CSI driver that serves the class."),
        Column::new("Namespaces", "Namespaces whose pods may use the class."),
        columns::AGE,
    ],
    cells: row,
    ..Table::PLAIN
};

static PROVIDER_CLASSES_SCHEMAS: [KindSchema; 2] = schema::of::<extensions::ProviderClass<V1>>();

pub(crate) static PROVIDER_CLASSES: Resource = Resource {
    group: "storage.k8s.io",
    plural: "providerclasses",
    singular: "providerclass",
    kind: "ProviderClass",
    scope: Scope::Cluster,
    schemas: &PROVIDER_CLASSES_SCHEMAS,
    rules: Some(&ProviderClass),
    table: TABLE,
    ..Resource::BASE
};

static OLDER_PROVIDER_CLASSES_SCHEMAS: [KindSchema; 2] =
    schema::of::<extensions::ProviderClass<V1Alpha1>>();

pub(crate) static OLDER_PROVIDER_CLASSES: Resource = Resource {
    group: "storage.k8s.io",
    version: "v1alpha1",
    plural: "providerclasses",
    singular: "providerclass",
    kind: "ProviderClass",
    scope: Scope::Cluster,
    schemas: &OLDER_PROVIDER_CLASSES_SCHEMAS,
    rules: Some(&ProviderClass),
    table: TABLE,
    stored_as: Some(&PROVIDER_CLASSES),
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    // A class that names no namespaces serves them all.
    let namespaces = read::text_or(object, &format!("/spec/parameters/{ALLOWED_NAMESPACES}"), "*");
    vec![
        cells::name(object),
        read::text(object, "/spec/driver").into(),
        namespaces.to_owned().into(),
        cells::age(object, now),
    ]
}

pub(super) struct ProviderClass;

impl Kind for ProviderClass {
    fn shape(&self) -> Shape {
        Shape { generation: Generation::OfSpec, ..Shape::CLUSTER }
    }

    fn validate_create(&self, object: &Value, _context: &Context) -> ErrorList {
        let mut errors = meta::validate_create(self.shape(), object);
        match decode(object) {
            Ok(class) => extend(&mut errors, provider_class::validate_create(&class)),
            Err(error) => errors.push(error),
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, _context: &Context) -> ErrorList {
        let mut errors = meta::validate_update(new, old);
        match (decode(new), decode(old)) {
            (Ok(new), Ok(old)) => extend(&mut errors, provider_class::validate_update(&new, &old)),
            (Err(error), _) | (_, Err(error)) => errors.push(error),
        }
        errors
    }

    fn warnings(&self, object: &Value, _context: &Context) -> Vec<String> {
        decode(object).map_or_else(|_| Vec::new(), |class| provider_class::warnings(&class))
    }
}

fn decode(object: &Value) -> Result<Class, FieldError> {
    serde_json::from_value(object.clone())
        .map_err(|error| FieldError::invalid(FieldPath::new("spec"), "", error.to_string()))
}

/// Adds what is new; the name was judged with the other metadata.
fn extend(errors: &mut ErrorList, found: ErrorList) {
    let name = FieldPath::new("metadata").child("name");
    errors.extend(found.into_iter().filter(|error| *error.path() != name));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_update, context};

    fn class(spec: &Value) -> Value {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass",
            "metadata": {"name": "vault"}, "spec": spec})
    }

    /// CSI-15, CSI-17
    #[test]
    fn classes_are_judged_once() {
        let good = class(&json!({"driver": "d.example.com"}));
        check_create(&ProviderClass, &good, &[]);
        check_create(&ProviderClass, &class(&json!({})), &["spec.driver: Required value: driver"]);
        let mut nameless = good.clone();
        nameless["metadata"] = json!({});
        check_create(&ProviderClass, &nameless, &["metadata.name: Required value: name or gen"]);
        check_create(&ProviderClass, &class(&json!(5)), &["spec: Invalid value: \"\": "]);
        check_update(
            &ProviderClass,
            &class(&json!({"driver": "e.example.com"})),
            &good,
            &["spec.driver: Invalid value: \"e.example.com\": field is immutable"],
        );
        assert_eq!(ProviderClass.warnings(&good, &context()).len(), 2);
    }
}
