//! CertificateSigningRequests: who asks for a certificate, who approves of it, and the certificate.
//!
//! What is asked for never changes. Approval and the certificate come by subresources of their own.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::Value;
use waybill_api::field::ErrorList;

use super::{
    Context, Kind, NameRule, Shape, Status,
    document::{Field, fill, items_mut, keep, member, object_mut, put, same},
    meta,
};
use crate::{
    document::{items, text},
    protobuf::tables,
    registry::{Resource, Scope, Subresource},
    schema::{self, KindSchema},
    selector::supported::{self, Source},
    table::{
        Table, cells,
        columns::{self, Column},
    },
};

static SCHEMAS: [KindSchema; 2] =
    schema::of::<k8s_openapi::api::certificates::v1::CertificateSigningRequest>();

pub(crate) static CERTIFICATE_SIGNING_REQUESTS: Resource = Resource {
    group: "certificates.k8s.io",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    kind: "CertificateSigningRequest",
    short_names: &["csr"],
    scope: Scope::Cluster,
    subresources: &[Subresource { name: "approval", ..Subresource::STATUS }, Subresource::STATUS],
    schemas: &SCHEMAS,
    protobuf: Some(&tables::certificates_v1::CERTIFICATE_SIGNING_REQUEST),
    rules: Some(&CertificateRequest),
    table: Table {
        columns: &[
            columns::NAME,
            columns::AGE,
            Column::new("SignerName", "Who is to sign."),
            Column::new("Requestor", "Who asks."),
            Column::new("RequestedDuration", "How long the certificate is to be good."),
            Column::new("Condition", "What became of it."),
        ],
        cells: row,
        ..Table::PLAIN
    },
    fields: &[supported::NAME, ("spec.signerName", Source::Text(&["/spec/signerName"]))],
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let has =
        |kind: &str| items(object, "/status/conditions").iter().any(|it| text(it, "/type") == kind);
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let seconds = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let duration = seconds.map_or_else(|| "<none>".to_owned(), |seconds| format!("{seconds}s"));
    vec![
        cells::name(object),
        cells::age(object, now),
        text(object, "/spec/signerName").into(),
        text(object, "/spec/username").into(),
        duration.into(),
        condition.into(),
    ]
}

struct CertificateRequest;

/// The shortest time that may be asked for.
const SHORTEST: i64 = 600;

const HEADER: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";

/// Conditions that only approval sets.
const DECISIONS: &[&str] = &["Approved", "Denied"];

impl Kind for CertificateRequest {
    fn shape(&self) -> Shape {
        Shape { names: NameRule::PathSegment, status: Status::Subresource, ..Shape::CLUSTER }
    }

    fn default(&self, object: &mut Value) {
        let Some(status) = object.get_mut("status") else { return };
        for condition in items_mut(status, "conditions") {
            fill(condition, "status", "True");
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        meta::prepare_update(self.shape(), new, old);
        keep(new, old, "spec");
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let spec = object.get("spec");
        let (request, signer) = (spec.get("request"), spec.get("signerName"));
        let usages = spec.get("usages");
        let pem = STANDARD.decode(request.text()).unwrap_or_default();
        if !pem.trim_ascii_start().starts_with(HEADER) {
            errors.push(request.invalid_as("...", "PEM block type must be CERTIFICATE REQUEST"));
        }
        match signer.text().split_once('/') {
            _ if signer.is_empty() => errors.push(signer.required("")),
            Some((domain, path)) if domain.contains('.') && !path.is_empty() => {}
            _ => errors.push(signer.invalid(
                "must be a fully qualified domain and path of the form 'example.com/signer-name'",
            )),
        }
        if usages.is_empty() {
            errors.push(usages.required(""));
        }
        let seconds = spec.get("expirationSeconds");
        if seconds.number().is_some_and(|seconds| seconds < SHORTEST) {
            errors.push(
                seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)"),
            );
        }
    }

    fn validate_status_update(&self, new: &Value, old: &Value, _context: &Context) -> ErrorList {
        let mut errors = meta::validate_update(new, old);
        let root = Field::root(new);
        let status = root.get("status");
        let (conditions, before) = (status.get("conditions"), member(old, "status"));
        let decided = |status: &Value| -> Vec<Value> {
            let all = items(status, "/conditions").iter();
            all.filter(|it| DECISIONS.contains(&text(it, "/type"))).cloned().collect()
        };
        if decided(status.value()) != decided(before) {
            errors.push(
                conditions.forbidden("Approved and Denied are set by the approval subresource"),
            );
        }
        let certificate = status.get("certificate");
        let issued = text(before, "/certificate");
        if !issued.is_empty() && certificate.text() != issued {
            errors.push(
                certificate
                    .forbidden("updates may not set or change a certificate that was issued"),
            );
        }
        errors
    }
}

/// Makes `new` ready to replace `old` by the `approval` subresource: conditions are all that changes.
pub(crate) fn prepare_approval(new: &mut Value, old: &Value) {
    let conditions = new.pointer("/status/conditions").cloned().unwrap_or_default();
    meta::prepare_status_update(new, old);
    keep(new, old, "status");
    if let Some(status) = object_mut(new, "status") {
        put(status, "conditions", conditions);
    }
}

/// Everything that is wrong with the conditions that `approval` sets.
pub(crate) fn validate_approval(new: &Value, old: &Value) -> ErrorList {
    let mut errors = meta::validate_update(new, old);
    let root = Field::root(new);
    let status = root.get("status");
    let conditions = status.get("conditions");
    let has = |kind: &str| conditions.items().any(|it| it.get("type").text() == kind);
    if has("Approved") && has("Denied") {
        errors.push(
            conditions.invalid_as("...", "Approved and Denied conditions are mutually exclusive"),
        );
    }
    for condition in conditions.items() {
        let (kind, state) = (condition.get("type"), condition.get("status"));
        if kind.is_empty() {
            errors.push(kind.required(""));
        } else if !state.is_empty() && state.text() != "True" {
            errors.push(state.not_supported(&["True"]));
        }
    }
    // What was decided stays.
    for before in items(old, "/status/conditions") {
        let kind = text(before, "/type");
        let kept =
            conditions.items().any(|it| same(it.get("type").value(), member(before, "type")));
        if DECISIONS.contains(&kind) && !kept {
            errors.push(
                conditions
                    .forbidden(format!("updates may not remove a condition of type {kind:?}")),
            );
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{check_create, check_errors};

    fn request(conditions: &Value) -> Value {
        let pem = STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----\nAA==\n");
        json!({"metadata": {"name": "r", "resourceVersion": "1"},
            "spec": {"request": pem, "signerName": "example.com/s", "usages": ["client auth"]},
            "status": {"conditions": conditions}})
    }

    #[test]
    fn a_request_is_a_request_to_somebody() {
        check_create(&CertificateRequest, &request(&json!([])), &[]);
        let mut other = request(&json!([]));
        other["spec"] = json!({"request": "AA==", "signerName": "x", "expirationSeconds": 1});
        let expected = [
            "spec.request: Invalid value",
            "spec.signerName: Invalid value",
            "spec.usages: Required",
            "spec.expirationSeconds: Invalid value: 1",
        ];
        check_create(&CertificateRequest, &other, &expected);
    }

    #[test]
    fn a_decision_is_one_and_stays() {
        let (approved, denied) = (json!({"type": "Approved"}), json!({"type": "Denied"}));
        let old = request(&json!([approved]));
        check_errors(&validate_approval(&old, &request(&json!([]))), &[]);
        check_errors(
            &validate_approval(&request(&json!([approved, denied])), &old),
            &["status.conditions: Invalid value"],
        );
        check_errors(
            &validate_approval(&request(&json!([])), &old),
            &["status.conditions: Forbidden: updates may not remove"],
        );
    }
}
