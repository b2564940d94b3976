//! Webhooks of admission: whom the server asks about writes.

use serde_json::{Value, json};
use waybill_api::field::ErrorList;
use waybill_policy::validation::{validate_mutating_webhooks, validate_validating_webhooks};

use super::{
    Context, Generation, Kind, Shape,
    admission_rules::default_rules,
    document::{Field, fill, fill_number, fill_text},
};
use crate::{
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Scope},
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
    },
};

static VALIDATING_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration>();

pub(crate) static VALIDATING_WEBHOOK_CONFIGURATIONS: Resource = Resource {
    plural: "validatingwebhookconfigurations",
    singular: "validatingwebhookconfiguration",
    kind: "ValidatingWebhookConfiguration",
    schemas: &VALIDATING_SCHEMAS,
    protobuf: Some(&tables::admissionregistration_v1::VALIDATING_WEBHOOK_CONFIGURATION),
    patch: patch::admissionregistration_v1::VALIDATING_WEBHOOK_CONFIGURATION,
    rules: Some(&WebhookConfiguration { mutating: false }),
    ..CONFIGURATION
};

static MUTATING_SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration>();

pub(crate) static MUTATING_WEBHOOK_CONFIGURATIONS: Resource = Resource {
    plural: "mutatingwebhookconfigurations",
    singular: "mutatingwebhookconfiguration",
    kind: "MutatingWebhookConfiguration",
    schemas: &MUTATING_SCHEMAS,
    protobuf: Some(&tables::admissionregistration_v1::MUTATING_WEBHOOK_CONFIGURATION),
    patch: patch::admissionregistration_v1::MUTATING_WEBHOOK_CONFIGURATION,
    rules: Some(&WebhookConfiguration { mutating: true }),
    ..CONFIGURATION
};

const CONFIGURATION: Resource = Resource {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    scope: Scope::Cluster,
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Webhooks", "How many webhooks it names.").kind("integer"),
            columns::AGE,
        ],
        cells: |object, now| {
            let webhooks = object.get("webhooks").and_then(Value::as_array).map_or(0, Vec::len);
            vec![cells::name(object), webhooks.into(), cells::age(object, now)]
        },
        ..Table::PLAIN
    },
    ..Resource::BASE
};

struct WebhookConfiguration {
    mutating: bool,
}

impl Kind for WebhookConfiguration {
    fn shape(&self) -> Shape {
        Shape { generation: Generation::Of("webhooks"), ..Shape::CLUSTER }
    }

    fn default(&self, object: &mut Value) {
        let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in webhooks.into_iter().flatten() {
            fill_text(webhook, "failurePolicy", "Fail");
            fill_text(webhook, "matchPolicy", "Equivalent");
            fill(webhook, "namespaceSelector", json!({}));
            fill(webhook, "objectSelector", json!({}));
            fill(webhook, "timeoutSeconds", 10);
            if self.mutating {
                fill_text(webhook, "reinvocationPolicy", "Never");
            }
            default_rules(webhook, "rules");
            if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
                fill_number(service, "port", 443);
            }
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let validate =
            if self.mutating { validate_mutating_webhooks } else { validate_validating_webhooks };
        errors.extend(validate(object.value()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{check_create, defaulted};

    fn configuration(webhook: &Value) -> Value {
        let mut whole = json!({
            "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/x"},
        });
        for (key, value) in webhook.as_object().unwrap() {
            whole[key] = value.clone();
        }
        json!({"metadata": {"name": "c"}, "webhooks": [whole]})
    }

    #[track_caller]
    fn check(webhook: &Value, expected: &[&str]) {
        check_create(&WebhookConfiguration { mutating: true }, &configuration(webhook), expected);
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        let service = json!({"clientConfig": {"service": {"name": "s", "namespace": "n"}}});
        let mut service = configuration(&service);
        service["webhooks"][0]["rules"] = json!([{"operations": ["CREATE"]}]);
        let kind = WebhookConfiguration { mutating: true };
        let webhook = &defaulted(&kind, &service)["webhooks"][0];
        assert_eq!(webhook["clientConfig"]["service"]["port"], 443);
        assert_eq!(webhook["rules"][0]["scope"], "*");
        assert_eq!(webhook["timeoutSeconds"], 10);
        assert_eq!(webhook["reinvocationPolicy"], "Never");
    }

    #[test]
    fn a_webhook_can_be_called() {
        check(&json!({}), &[]);
        check(
            &json!({"name": "short"}),
            &["webhooks[0].name: Invalid value: \"short\": should be"],
        );
        check(
            &json!({"clientConfig": {}}),
            &["webhooks[0].clientConfig: Required value: exactly one of url or service"],
        );
        check(
            &json!({"clientConfig": {"url": "http://a/"}}),
            &["webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only"],
        );
        check(
            &json!({"sideEffects": "Some", "timeoutSeconds": 31}),
            &[
                "webhooks[0].sideEffects: Unsupported",
                "webhooks[0].timeoutSeconds: Invalid value: 31",
            ],
        );
        check(
            &json!({"admissionReviewVersions": ["v2"]}),
            &["webhooks[0].admissionReviewVersions: Invalid"],
        );
    }
}
