//! PodTemplates.

use jiff::Timestamp;
use serde_json::{Map, Value};
use waybill_api::{field::ErrorList, pod::drop_disabled_fields};

use super::{
    Context, Kind, Shape,
    document::{Field, object_mut},
    meta, pod,
};

use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::Resource,
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
        read,
    },
};

static POD_TEMPLATES_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::core::v1::PodTemplate>();

pub(crate) static POD_TEMPLATES: Resource = Resource {
    plural: "podtemplates",
    singular: "podtemplate",
    kind: "PodTemplate",
    schemas: &POD_TEMPLATES_SCHEMAS,
    protobuf: Some(&tables::core_v1::POD_TEMPLATE),
    rules: Some(&PodTemplate),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Containers", "Names of the containers."),
            Column::new("Images", "Images of the containers."),
            Column::new("Pod Labels", "Labels of the pods."),
        ],
        cells: row,
        ..Table::PLAIN
    },
    patch: patch::core_v1::POD_TEMPLATE,
    ..Resource::BASE
};

fn row(object: &Value, _now: Timestamp) -> Vec<Value> {
    let containers = read::list(object, "/template/spec/containers");
    vec![
        cells::name(object),
        read::joined(containers, "/name", ",").into(),
        read::joined(containers, "/image", ",").into(),
        labels(read::map(object, "/template/metadata/labels")).into(),
    ]
}

/// Labels as `kubectl` prints them.
fn labels(labels: Option<&Map<String, Value>>) -> String {
    let mut pairs: Vec<_> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

pub(super) struct PodTemplate;

impl Kind for PodTemplate {
    fn shape(&self) -> Shape {
        Shape::NAMESPACED
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = spec_mut(object) {
            pod::default_spec(spec);
        }
    }

    fn prepare_create(&self, object: &mut Value, context: &Context) {
        meta::prepare_create(self.shape(), object);
        if let Some(spec) = spec_mut(object) {
            drop_disabled_fields(spec, None, &context.gates);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, context: &Context) {
        meta::prepare_update(self.shape(), new, old);
        if let Some(spec) = spec_mut(new) {
            drop_disabled_fields(spec, old.pointer("/template/spec"), &context.gates);
        }
    }

    fn validate_create(&self, object: &Value, context: &Context) -> ErrorList {
        let mut errors = meta::validate_create(self.shape(), object);
        check_template(Field::root(object), &mut errors);
        let root = Field::root(object);
        pod::check_env(root.get("template"), context, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value, context: &Context) -> ErrorList {
        let mut errors = meta::validate_update(new, old);
        check_template(Field::root(new), &mut errors);
        let (new, old) = (Field::root(new), Field::root(old));
        pod::check_env_update(new.get("template"), old.get("template"), context, &mut errors);
        errors
    }

    fn warnings(&self, object: &Value, context: &Context) -> Vec<String> {
        let root = Field::root(object);
        let template = root.get("template");
        pod::env_warnings(template.get("spec"), context)
    }
}

fn spec_mut(object: &mut Value) -> Option<&mut Value> {
    object_mut(object_mut(object, "template")?, "spec")
}

fn check_template(object: Field<'_, '_>, errors: &mut ErrorList) {
    let template = object.get("template");
    let metadata = template.get("metadata");
    meta::check_labels(metadata.get("labels"), errors);
    meta::check_annotations(metadata.get("annotations"), errors);
    let spec = template.get("spec");
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.push(ephemeral.forbidden("ephemeral containers not allowed in pod template"));
    }
    pod::check_spec(spec, errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, defaulted};

    fn template(spec: &Value) -> Value {
        json!({"metadata": {"name": "t", "namespace": "n"}, "template": {"spec": spec}})
    }

    /// NAME-05
    #[test]
    fn templates_are_judged_as_pods_are() {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        check_create(&PodTemplate, &template(&spec), &[]);
        let full = defaulted(&PodTemplate, &template(&spec));
        assert_eq!(full["template"]["spec"]["restartPolicy"], "Always");
        check_create(
            &PodTemplate,
            &template(&json!({})),
            &["template.spec.containers: Required value"],
        );
        let env = json!([{"name": "a=b"}]);
        check_create(
            &PodTemplate,
            &template(&json!({"containers": [{"name": "c", "image": "i", "env": env}]})),
            &["template.spec.containers[0].env[0].name: Invalid value: \"a=b\": a valid env"],
        );
    }
}
