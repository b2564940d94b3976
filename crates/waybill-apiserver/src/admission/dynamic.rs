//! Where rules that come as objects of the API join in: webhooks and policies.

mod client;
mod enforcer;
mod forms;
mod metrics;
mod service;
mod sources;
mod surroundings;
mod tls;
mod webhooks;

use futures_util::future::BoxFuture;
use waybill_api::status::Status;

pub(crate) use self::{
    client::WebhookClient,
    enforcer::Enforcer,
    metrics::AdmissionMetrics,
    sources::{RULES_GROUP, RuleSources},
    tls::WebhookTls,
};
use super::{Admission, Attributes};

/// Rules that administrators add while the server runs. They come last in both phases, after everything
/// that is built in.
pub(crate) trait DynamicAdmission: Send + Sync {
    /// Whether some rule may be about such a write, judged by everything but the objects and the options.
    /// If not, nothing else is asked: most writes are watched by nobody and pay for this question only.
    fn watches(&self, attributes: &Attributes<'_>) -> bool;

    /// Changes the object or refuses the write; true if the object was changed. Objects are in the version of the
    /// request. Whoever changes one and wants the built-in rules to see that calls
    /// [`Admission::mutate_built_in`], and decides which of its own rules come a second time.
    fn mutate<'a>(
        &'a self,
        attributes: &'a mut Attributes<'_>,
        admission: &'a Admission,
    ) -> BoxFuture<'a, Result<bool, Status>>;

    /// Refuses the write, or lets it pass.
    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        admission: &'a Admission,
    ) -> BoxFuture<'a, Result<(), Status>>;
}
