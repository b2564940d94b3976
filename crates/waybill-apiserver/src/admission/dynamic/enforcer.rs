//! Webhooks and policies, in their places.

use std::{sync::Arc, time::Instant};

use futures_util::future::BoxFuture;
use waybill_api::status::Status;
use waybill_policy::policy::{ActivePolicy, judge};

use super::{
    super::{Admission, Attributes},
    DynamicAdmission,
    client::WebhookClient,
    forms,
    metrics::AdmissionMetrics,
    sources::{RULES_GROUP, RuleSources},
    surroundings::{Around, Facts},
};

/// Asks the rules that administrators have written.
pub(crate) struct Enforcer {
    pub(super) sources: Arc<RuleSources>,
    pub(super) client: WebhookClient,
    pub(super) metrics: AdmissionMetrics,
}

impl Enforcer {
    pub(crate) fn new(
        sources: Arc<RuleSources>,
        client: WebhookClient,
        metrics: AdmissionMetrics,
    ) -> Self {
        Self { sources, client, metrics }
    }

    fn judge(
        &self,
        policies: &[ActivePolicy],
        attributes: &Attributes<'_>,
        admission: &Admission,
    ) -> Result<(), Status> {
        if policies.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        let facts = Facts::of(attributes);
        let around = Around { admission, user: attributes.user };
        let outcome = judge(policies, &facts.request(attributes), &around);
        for warning in outcome.warnings {
            attributes.remarks.warnings.add(warning);
        }
        for (key, value) in outcome.annotations {
            attributes.remarks.notes.add(key, &value);
        }
        let denial = outcome.denials.first();
        self.metrics.judged(started.elapsed(), denial.is_some());
        match denial {
            None => Ok(()),
            Some(denial) => Err(attributes.denied(
                denial.reason.code(),
                denial.reason.as_str(),
                &denial.message,
            )),
        }
    }
}

impl DynamicAdmission for Enforcer {
    fn watches(&self, attributes: &Attributes<'_>) -> bool {
        let Some(rules) = self.sources.current() else { return false };
        if attributes.resource.group == RULES_GROUP {
            return false;
        }
        forms::watched(&rules, attributes)
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a mut Attributes<'_>,
        admission: &'a Admission,
    ) -> BoxFuture<'a, Result<bool, Status>> {
        Box::pin(async move {
            let Some(rules) = self.sources.current() else { return Ok(false) };
            let mut changed = self.call_mutating(&rules.mutating, attributes, admission).await?;
            let own = attributes.resource;
            for form in forms::others(own) {
                let rules = forms::rules_for(&rules, attributes, form);
                if rules.mutating.is_empty() {
                    continue;
                }
                let object = std::mem::take(&mut attributes.object);
                let object = forms::converted(own, form, object);
                let old = forms::converted(own, form, attributes.old.clone());
                let mut shown = Attributes { resource: form, object, old: &old, ..*attributes };
                changed |= self.call_mutating(&rules.mutating, &mut shown, admission).await?;
                let object = std::mem::take(&mut shown.object);
                attributes.object = forms::converted(form, own, object);
            }
            Ok(changed)
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        admission: &'a Admission,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(rules) = self.sources.current() else { return Ok(()) };
            self.judge(&rules.policies, attributes, admission)?;
            self.call_validating(&rules.validating, attributes, admission).await?;
            let own = attributes.resource;
            for form in forms::others(own) {
                let rules = forms::rules_for(&rules, attributes, form);
                if rules.policies.is_empty() && rules.validating.is_empty() {
                    continue;
                }
                let object = forms::converted(own, form, attributes.object.clone());
                let old = forms::converted(own, form, attributes.old.clone());
                let shown = Attributes { resource: form, object, old: &old, ..*attributes };
                self.judge(&rules.policies, &shown, admission)?;
                self.call_validating(&rules.validating, &shown, admission).await?;
            }
            Ok(())
        })
    }
}
