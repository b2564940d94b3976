//! Events, of the core group and of `events.k8s.io`.
//!
//! Both groups show the same objects under different field names; which group a document speaks for
//! is told by the fields it has.

mod fields;
mod table;

use waybill_api::{
    field::{ErrorList, FieldError},
    names::qualified_name_faults,
};

use self::fields::FIELDS;
use super::{Context, Kind, Shape, document::Field};

use crate::{
    protobuf::tables,
    registry::Resource,
    schema::{self, KindSchema},
};

static EVENTS_SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::Event>();

pub(crate) static EVENTS: Resource = Resource {
    plural: "events",
    singular: "event",
    kind: "Event",
    short_names: &["ev"],
    schemas: &EVENTS_SCHEMAS,
    protobuf: Some(&tables::core_v1::EVENT),
    rules: Some(&Event),
    table: table::TABLE,
    fields: FIELDS,
    ..Resource::BASE
};

static EVENTS_OF_EVENTS_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::events::v1::Event>();

pub(crate) static EVENTS_OF_EVENTS: Resource = Resource {
    group: "events.k8s.io",
    plural: "events",
    singular: "event",
    kind: "Event",
    short_names: &["ev"],
    schemas: &EVENTS_OF_EVENTS_SCHEMAS,
    protobuf: Some(&tables::events_v1::EVENT),
    rules: Some(&Event),
    table: table::TABLE,
    fields: FIELDS,
    stored_as: Some(&EVENTS),
    ..Resource::BASE
};

pub(super) struct Event;

impl Kind for Event {
    fn shape(&self) -> Shape {
        Shape { create_on_update: true, ..Shape::NAMESPACED }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let is_new = object.get("apiVersion").text().starts_with("events.k8s.io/");
        check_namespace(object, if is_new { "regarding" } else { "involvedObject" }, errors);
        if is_new && !object.get("eventTime").is_set() {
            errors.push(object.get("eventTime").required(""));
        }
        // Events of the old form carry no `eventTime`, and nothing below is asked of them.
        if object.get("eventTime").is_set() {
            check_new_form(object, is_new, errors);
        }
    }
}

const SHORT_BYTES: usize = 128;
const NOTE_BYTES: usize = 1024;

/// An event stands in the namespace of its object, or in `default` if that has none.
fn check_namespace(event: Field<'_, '_>, object: &str, errors: &mut ErrorList) {
    let (metadata, object) = (event.get("metadata"), event.get(object));
    let (own, namespace) = (metadata.get("namespace").text(), object.get("namespace"));
    let fits = match namespace.text() {
        "" => matches!(own, "" | "default" | "kube-system"),
        namespace => own == namespace,
    };
    if !fits {
        errors.push(namespace.invalid_text("does not match event.namespace"));
    }
}

fn check_new_form(event: Field<'_, '_>, is_new: bool, errors: &mut ErrorList) {
    let controller = event.get(if is_new { "reportingController" } else { "reportingComponent" });
    if controller.is_empty() {
        errors.push(controller.required(""));
    } else {
        errors.extend(controller.all_invalid(qualified_name_faults(controller.text())));
    }
    for name in ["reportingInstance", "action", "reason"] {
        let field = event.get(name);
        if field.is_empty() {
            errors.push(field.required(""));
        } else if field.text().len() > SHORT_BYTES {
            errors.push(FieldError::too_long(field.path(), SHORT_BYTES));
        }
    }
    let note = event.get(if is_new { "note" } else { "message" });
    if note.text().len() > NOTE_BYTES {
        errors.push(FieldError::too_long(note.path(), NOTE_BYTES));
    }
    let kind = event.get("type");
    if !["Normal", "Warning"].contains(&kind.text()) {
        errors.push(kind.invalid_as("", format!("has invalid value: {}", kind.text())));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::testing::check_create;

    #[track_caller]
    fn check(fields: &Value, expected: &[&str]) {
        let mut event = json!({"metadata": {"name": "a", "namespace": "n"}});
        for (key, value) in fields.as_object().unwrap() {
            event[key] = value.clone();
        }
        check_create(&Event, &event, expected);
    }

    #[test]
    fn an_event_stands_with_its_object() {
        check(&json!({"involvedObject": {"namespace": "n"}}), &[]);
        check(
            &json!({"involvedObject": {"namespace": "m"}}),
            &["involvedObject.namespace: Invalid value: \"m\": does not match event.namespace"],
        );
        check(&json!({}), &["involvedObject.namespace: Invalid value: \"\": does not match event"]);
    }

    #[test]
    fn the_new_form_says_who_did_what_and_why() {
        let regarding = json!({"namespace": "n"});
        check(
            &json!({"apiVersion": "events.k8s.io/v1", "regarding": regarding}),
            &["eventTime: Required value"],
        );
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1", "regarding": regarding, "eventTime": "t",
            "reportingController": "example.com/c", "reportingInstance": "i", "action": "a",
            "reason": "r", "type": "Normal",
        });
        check(&event, &[]);
        event["action"] = "x".repeat(129).into();
        event["type"] = "Odd".into();
        event["reason"] = "".into();
        check(
            &event,
            &[
                "action: Too long: may not be more than 128 bytes",
                "reason: Required value",
                "type: Invalid value: \"\": has invalid value: Odd",
            ],
        );
    }
}
