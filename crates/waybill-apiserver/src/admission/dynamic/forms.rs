//! Objects that are served in several forms: a rule about one is a rule about all, unless it says `Exact`.

use std::sync::Arc;

use serde_json::Value;
use waybill_policy::{policy::ActivePolicy, request::AdmissionRequest, webhook::Webhook};

use super::{sources::Rules, surroundings::outline};
use crate::{
    admission::Attributes,
    convert,
    registry::{RESOURCES, Resource},
};

/// A webhook or policy, as far as it is about requests.
trait Rule {
    fn may_match(&self, request: &AdmissionRequest<'_>) -> bool;

    fn is_exact(&self) -> bool;

    /// Whether it is asked about a request of `own` in the form of `other`: not if it was asked already.
    fn is_about(&self, own: &AdmissionRequest<'_>, other: &AdmissionRequest<'_>) -> bool {
        !self.is_exact() && !self.may_match(own) && self.may_match(other)
    }
}

impl Rule for Arc<Webhook> {
    fn may_match(&self, request: &AdmissionRequest<'_>) -> bool {
        Webhook::may_match(self, request)
    }

    fn is_exact(&self) -> bool {
        Webhook::is_exact(self)
    }
}

impl Rule for ActivePolicy {
    fn may_match(&self, request: &AdmissionRequest<'_>) -> bool {
        self.policy.may_match(request)
    }

    fn is_exact(&self) -> bool {
        self.policy.is_exact()
    }
}

/// The other forms of the objects of a resource; most have none.
pub(super) fn others(resource: &'static Resource) -> impl Iterator<Item = &'static Resource> {
    let is_other =
        move |form: &&'static Resource| form.is(resource) && !std::ptr::eq(*form, resource);
    RESOURCES.iter().copied().filter(is_other)
}

/// Whether some rule may be about such a write, in whatever form.
pub(super) fn watched(rules: &Rules, attributes: &Attributes<'_>) -> bool {
    let own = outline(attributes);
    let webhooks = || rules.mutating.iter().chain(&rules.validating);
    if webhooks().any(|webhook| webhook.may_match(&own))
        || rules.policies.iter().any(|policy| policy.may_match(&own))
    {
        return true;
    }
    others(attributes.resource).any(|form| {
        let other = named(form, &own);
        webhooks().any(|webhook| webhook.is_about(&own, &other))
            || rules.policies.iter().any(|policy| policy.is_about(&own, &other))
    })
}

/// The rules that are asked about a write in another form than that of the request.
pub(super) fn rules_for(
    rules: &Rules,
    attributes: &Attributes<'_>,
    form: &'static Resource,
) -> Rules {
    let own = outline(attributes);
    let other = named(form, &own);
    let webhooks = |all: &[Arc<Webhook>]| {
        all.iter().filter(|webhook| webhook.is_about(&own, &other)).cloned().collect()
    };
    let policies = rules.policies.iter().filter(|policy| policy.is_about(&own, &other));
    Rules {
        mutating: webhooks(&rules.mutating),
        validating: webhooks(&rules.validating),
        policies: policies.cloned().collect(),
    }
}

/// An object of `from` as one of `to`.
pub(super) fn converted(from: &'static Resource, to: &'static Resource, object: Value) -> Value {
    convert::from_storage(to, convert::to_storage(from, object))
}

fn named<'a>(form: &'static Resource, request: &AdmissionRequest<'a>) -> AdmissionRequest<'a> {
    let mut other = *request;
    other.resource.group = form.group;
    other.resource.version = form.version;
    other.resource.resource = form.plural;
    other.kind.group = form.group;
    other.kind.version = form.version;
    other.kind.kind = form.kind;
    other
}
