//! Calling webhooks: those that change the object one after the other, the others all at once.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;
use waybill_api::status::Status;
use waybill_policy::{
    config::FailurePolicy,
    request::AdmissionRequest,
    review::{ReviewAnswer, ReviewKind, review},
    webhook::{Called, Webhook},
};

use super::{
    super::{Admission, Attributes},
    client::CallError,
    enforcer::Enforcer,
    metrics::{CallOutcome, WebhookType},
    surroundings::{Around, Facts},
};
use crate::patch::{self, PatchType};

/// Keys of audit annotations, which upstream's users search for.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";
const FAILED_OPEN_MUTATION: &str = "failed-open.mutation.webhook.admission.k8s.io/";
const FAILED_OPEN_VALIDATION: &str = "failed-open.validating.webhook.admission.k8s.io/";

/// Why a call came to nothing good.
enum CallFailure {
    /// The webhook said no.
    Refused(Status),
    /// It could not be asked, or its answer makes no sense; its failure policy decides.
    Failed(String),
    /// It may not be asked, whatever its failure policy is.
    NotAllowed(Status),
}

impl Enforcer {
    /// Calls webhooks in their order, and once more those that want to see what others changed after
    /// them. True if the object was changed.
    pub(super) async fn call_mutating(
        &self,
        webhooks: &[Arc<Webhook>],
        attributes: &mut Attributes<'_>,
        admission: &Admission,
    ) -> Result<bool, Status> {
        if webhooks.is_empty() {
            return Ok(false);
        }
        let mut changed = false;
        // Those that were called and want to be called again, and those of them after which
        // something changed.
        let mut called = BTreeSet::new();
        let mut again = BTreeSet::new();
        for (place, webhook) in webhooks.iter().enumerate() {
            let Some(did) = self.mutate_by(webhook, (0, place), attributes, admission).await?
            else {
                continue;
            };
            if did {
                changed = true;
                again.append(&mut called);
            }
            if webhook.is_reinvoked() {
                called.insert(place);
            }
        }
        if changed {
            let before = attributes.object.clone();
            admission.mutate_built_in(attributes)?;
            if attributes.object != before {
                again.append(&mut called);
            }
        }
        for place in again {
            if let Some(webhook) = webhooks.get(place) {
                self.mutate_by(webhook, (1, place), attributes, admission).await?;
            }
        }
        Ok(changed)
    }

    /// Calls one webhook, if it is to be called; whether it changed the object.
    async fn mutate_by(
        &self,
        webhook: &Webhook,
        (round, place): (usize, usize),
        attributes: &mut Attributes<'_>,
        admission: &Admission,
    ) -> Result<Option<bool>, Status> {
        let facts = Facts::of(attributes);
        let around = Around { admission, user: attributes.user };
        let request = facts.request(attributes);
        if !is_called(webhook, &request, &mut None, &around)? {
            return Ok(None);
        }
        let key = |prefix: &str| format!("{prefix}round_{round}_index_{place}");
        let result = self.call(webhook, ReviewKind::Mutating, attributes, &request).await;
        let result = result.and_then(|answer| match answer.patch {
            None => Ok(None),
            Some(patch) => apply(webhook, &patch, &attributes.object).map(|new| Some((patch, new))),
        });
        let mut mutated = false;
        let outcome = match result {
            Ok(None) => Ok(()),
            Ok(Some((patch, new))) => {
                mutated = new != attributes.object;
                attributes.remarks.notes.add(key(PATCH), &patch_note(webhook, &patch));
                attributes.object = new;
                Ok(())
            }
            Err(failure) => self.failure(
                webhook,
                WebhookType::Mutating,
                failure,
                attributes,
                key(FAILED_OPEN_MUTATION),
            ),
        };
        let note = json!({
            "configuration": webhook.configuration(), "webhook": webhook.name(), "mutated": mutated
        });
        attributes.remarks.notes.add(key(MUTATION), &note.to_string());
        outcome.map(|()| Some(mutated))
    }

    /// Calls all webhooks at once; the first refusal, in their order, is told.
    pub(super) async fn call_validating(
        &self,
        webhooks: &[Arc<Webhook>],
        attributes: &Attributes<'_>,
        admission: &Admission,
    ) -> Result<(), Status> {
        if webhooks.is_empty() {
            return Ok(());
        }
        let facts = Facts::of(attributes);
        let around = Around { admission, user: attributes.user };
        let request = facts.request(attributes);
        let (mut seen, mut relevant) = (None, Vec::new());
        for webhook in webhooks {
            if is_called(webhook, &request, &mut seen, &around)? {
                relevant.push(webhook);
            }
        }
        let calls = relevant
            .iter()
            .map(|webhook| self.call(webhook, ReviewKind::Validating, attributes, &request));
        let results = join_all(calls).await;
        for (place, (webhook, result)) in relevant.iter().zip(results).enumerate() {
            if let Err(failure) = result {
                let note = format!("{FAILED_OPEN_VALIDATION}round_0_index_{place}");
                self.failure(webhook, WebhookType::Validating, failure, attributes, note)?;
            }
        }
        Ok(())
    }

    /// One call: what is said beside the answer is told, whatever the answer is.
    async fn call(
        &self,
        webhook: &Webhook,
        kind: ReviewKind,
        attributes: &Attributes<'_>,
        request: &AdmissionRequest<'_>,
    ) -> Result<ReviewAnswer, CallFailure> {
        let started = Instant::now();
        let result = self.ask(webhook, kind, request).await;
        let outcome = match &result {
            Ok(answer) if answer.allowed => CallOutcome::Allowed,
            Ok(_) => CallOutcome::Refused,
            Err(_) => CallOutcome::Failed,
        };
        let kind = match kind {
            ReviewKind::Mutating => WebhookType::Mutating,
            ReviewKind::Validating => WebhookType::Validating,
        };
        self.metrics.called(kind, request.operation.as_str(), outcome, started.elapsed());
        let answer = result?;
        for (key, value) in &answer.audit_annotations {
            attributes.remarks.notes.add(format!("{}/{key}", webhook.name()), value);
        }
        for warning in &answer.warnings {
            attributes.remarks.warnings.add(warning.as_str());
        }
        match answer.allowed {
            true => Ok(answer),
            false => Err(CallFailure::Refused(answer.refusal(webhook.name()))),
        }
    }

    async fn ask(
        &self,
        webhook: &Webhook,
        kind: ReviewKind,
        request: &AdmissionRequest<'_>,
    ) -> Result<ReviewAnswer, CallFailure> {
        if request.dry_run && !webhook.supports_dry_run() {
            let name = webhook.name();
            let text = format!("admission webhook {name:?} does not support dry run");
            return Err(CallFailure::NotAllowed(Status::bad_request(text)));
        }
        if let Some(why) = webhook.broken() {
            return Err(CallFailure::Failed(why.to_owned()));
        }
        let Some(version) = webhook.version() else {
            let text = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(CallFailure::Failed(text.to_owned()));
        };
        let uid = Uuid::new_v4().to_string();
        let body = review(version, &uid, request).to_string();
        let failed =
            |error: CallError| CallFailure::Failed(format!("failed to call webhook: {error}"));
        let answer = self.client.post(webhook, body).await.map_err(failed)?;
        ReviewAnswer::read(&answer, version, kind, &uid).map_err(|error| {
            CallFailure::Failed(format!("received invalid webhook response: {error}"))
        })
    }

    /// What follows of a call that came to nothing good.
    fn failure(
        &self,
        webhook: &Webhook,
        kind: WebhookType,
        failure: CallFailure,
        attributes: &Attributes<'_>,
        failed_open: String,
    ) -> Result<(), Status> {
        match (failure, webhook.failure_policy()) {
            (CallFailure::Refused(status) | CallFailure::NotAllowed(status), _) => Err(status),
            (CallFailure::Failed(error), FailurePolicy::Ignore) => {
                let name = webhook.name();
                tracing::warn!(name, error, "failed calling webhook, failing open");
                self.metrics.failed_open(kind);
                attributes.remarks.notes.add(failed_open, name);
                Ok(())
            }
            (CallFailure::Failed(error), FailurePolicy::Fail) => {
                let name = webhook.name();
                tracing::warn!(name, error, "failed calling webhook, failing closed");
                Err(Status::internal(format!("failed calling webhook {name:?}: {error}")))
            }
        }
    }
}

fn is_called(
    webhook: &Webhook,
    request: &AdmissionRequest<'_>,
    seen: &mut Option<Value>,
    around: &Around<'_>,
) -> Result<bool, Status> {
    match webhook.called(request, seen, around) {
        Ok(Called::Yes) => Ok(true),
        Ok(Called::No) => Ok(false),
        Ok(Called::Refused(why)) => {
            Err(Status::internal(format!("failed calling webhook {:?}: {why}", webhook.name())))
        }
        // The namespace went away in the meantime.
        Err(error) => Err(Status::not_found_message(error.to_string())),
    }
}

/// The object with the changes of a webhook.
fn apply(webhook: &Webhook, patch: &Value, object: &Value) -> Result<Value, CallFailure> {
    let internal = |why: String| CallFailure::NotAllowed(Status::internal(why));
    let name = webhook.name();
    if object.is_null() {
        return Err(internal(format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        )));
    }
    let bytes = patch.to_string();
    patch::apply(PatchType::Json, bytes.as_bytes(), object, patch::schema::PLAIN).map_err(|error| {
        internal(format!("admission webhook {name:?} sent a patch that does not apply: {error}"))
    })
}

/// Which paths a webhook changed. Values stay out: upstream tells them at level Request only.
fn patch_note(webhook: &Webhook, patch: &Value) -> String {
    let operations = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    let told: Vec<_> = operations
        .iter()
        .map(|operation| json!({"op": operation["op"], "path": operation["path"]}))
        .collect();
    json!({
        "configuration": webhook.configuration(),
        "webhook": webhook.name(),
        "patch": told,
        "patchType": "JSONPatch",
    })
    .to_string()
}
