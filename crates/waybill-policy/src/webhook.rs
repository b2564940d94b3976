//! Webhooks: what a configuration says of one, and whether it is called.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;
use waybill_api::field::{ErrorList, FieldPath};

use crate::{
    cel::Bindings,
    conditions::{MatchConditions, Matched},
    config::{FailurePolicy, ServiceReference, WebhookSpec, read},
    policy::compile_conditions,
    request::{AdmissionRequest, Surroundings},
    review::ReviewVersion,
    rules::{MatchError, Rule, matches_namespace, matches_object},
    selector::LabelSelector,
};

/// How long a webhook may take when its configuration does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The port of a service when the configuration names none.
const DEFAULT_PORT: u16 = 443;

/// A webhook, ready to be called.
#[derive(Debug)]
pub struct Webhook {
    configuration: String,
    name: String,
    place: Place,
    ca_bundle: Vec<u8>,
    failure_policy: FailurePolicy,
    timeout: Duration,
    dry_run: bool,
    reinvoked: bool,
    exact: bool,
    version: Option<ReviewVersion>,
    rules: Vec<Rule>,
    namespace_selector: Option<LabelSelector>,
    object_selector: Option<LabelSelector>,
    conditions: MatchConditions,
    /// Why it cannot be used.
    broken: Option<String>,
}

/// Where a webhook is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a URL, always `https`.
    Url(String),
    /// Behind a service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The port of the service.
        port: u16,
        /// The path that is asked for.
        path: String,
    },
}

/// Whether a webhook is called.
#[derive(Debug, PartialEq, Eq)]
pub enum Called {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It cannot be said, and its failure policy refuses the request with this text.
    Refused(String),
}

impl Webhook {
    /// Reads the webhooks of a stored configuration, in their order.
    pub fn load_all(document: &Json) -> Result<Vec<Self>, serde_json::Error> {
        let configuration =
            document.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
        let written: Vec<WebhookSpec> = read(document, "/webhooks")?;
        Ok(written.into_iter().map(|spec| Self::load(configuration, spec)).collect())
    }

    fn load(configuration: &str, spec: WebhookSpec) -> Self {
        let mut errors = ErrorList::new();
        let path = FieldPath::new("matchConditions");
        let conditions = compile_conditions(&spec.match_conditions, false, &path, &mut errors);
        let mut broken = errors.first().map(ToString::to_string);
        let ca_bundle = spec.client_config.ca_bundle.as_deref().unwrap_or_default();
        let ca_bundle = STANDARD.decode(ca_bundle).unwrap_or_else(|_| {
            broken = Some("clientConfig.caBundle is not in base64".to_owned());
            Vec::new()
        });
        let place = match (spec.client_config.url, spec.client_config.service) {
            (_, Some(service)) => service_place(service),
            (url, None) => Place::Url(url.unwrap_or_default()),
        };
        let seconds = spec.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let dry_run = matches!(spec.side_effects.as_deref(), Some("None" | "NoneOnDryRun"));
        Self {
            configuration: configuration.to_owned(),
            name: spec.name,
            place,
            ca_bundle,
            failure_policy: FailurePolicy::read(spec.failure_policy.as_deref()),
            timeout: seconds
                .map_or(DEFAULT_TIMEOUT, |seconds| Duration::from_secs(seconds.clamp(1, 30))),
            dry_run,
            reinvoked: spec.reinvocation_policy.as_deref() == Some("IfNeeded"),
            exact: spec.match_policy.as_deref() == Some("Exact"),
            version: ReviewVersion::choose(&spec.admission_review_versions),
            rules: spec.rules,
            namespace_selector: spec.namespace_selector,
            object_selector: spec.object_selector,
            conditions,
            broken,
        }
    }

    /// The name of the configuration that it is in.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The authorities that its certificate may come from, in PEM; empty for those of the system.
    pub fn ca_bundle(&self) -> &[u8] {
        &self.ca_bundle
    }

    /// What follows when it cannot be reached.
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// How long it may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether it may be called for a request of which nothing is to be kept.
    pub fn supports_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether it is called again when others changed the object after it.
    pub fn is_reinvoked(&self) -> bool {
        self.reinvoked
    }

    /// Whether it is about no other form of the same objects than those that its rules name.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The version of reviews that it is sent, if we know one that it reads.
    pub fn version(&self) -> Option<ReviewVersion> {
        self.version
    }

    /// Why it cannot be used, if it cannot.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Whether it may be called for such a request, whatever its objects, its name and its namespace are.
    pub fn may_match(&self, request: &AdmissionRequest<'_>) -> bool {
        self.rules.iter().any(|rule| rule.may_match(request))
    }

    /// Whether the request is sent to it. `seen` is what expressions see of the request, made when needed.
    pub fn called(
        &self,
        request: &AdmissionRequest<'_>,
        seen: &mut Option<Json>,
        surroundings: &dyn Surroundings,
    ) -> Result<Called, MatchError> {
        if !self.rules.iter().any(|rule| rule.matches(request))
            || !matches_object(self.object_selector.as_ref(), request)
            || !matches_namespace(self.namespace_selector.as_ref(), request, surroundings)?
        {
            return Ok(Called::No);
        }
        if self.conditions.is_empty() {
            return Ok(Called::Yes);
        }
        let seen = seen.get_or_insert_with(|| request.for_expressions());
        let bindings = Bindings {
            object: request.object,
            old_object: request.old_object,
            request: Some(seen),
            authorizer: Some(surroundings),
            ..Bindings::default()
        };
        Ok(match (self.conditions.evaluate(bindings), self.failure_policy) {
            (Matched::Yes, _) => Called::Yes,
            (Matched::No(_), _) | (Matched::Unclear(_), FailurePolicy::Ignore) => Called::No,
            (Matched::Unclear(why), FailurePolicy::Fail) => Called::Refused(why),
        })
    }
}

fn service_place(service: ServiceReference) -> Place {
    let path = match service.path {
        Some(path) if path.starts_with('/') => path,
        Some(path) => format!("/{path}"),
        None => "/".to_owned(),
    };
    let port = service.port.and_then(|port| u16::try_from(port).ok()).unwrap_or(DEFAULT_PORT);
    Place::Service { namespace: service.namespace, name: service.name, port, path }
}

#[cfg(test)]
mod tests;
