//! What a driver is: keys in, values out.

use std::{collections::BTreeMap, fmt, time::Duration};

use waybill_core::secret::SecretBytes;

use crate::identity::{Asserted, IdentityCheck};

/// Where values come from.
///
/// Only calls that may be answered reach a driver: the request was whole, the class serves the pod's
/// namespace and every key, and the namespace is within its rate. A driver reads and changes nothing,
/// so that a call may be repeated (CSI-08).
pub trait Driver: Send + Sync + 'static {
    /// The name under which it registers: a domain name of at most 63 characters.
    fn name(&self) -> &str;

    /// The kind of backend, a label of its metrics (CSI-55).
    fn backend(&self) -> &'static str;

    /// Its version, which callers send back with each call (OP-41).
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// What callers should keep to.
    fn hints(&self) -> Hints {
        Hints::default()
    }

    /// Who may be given a value that was read for somebody else.
    fn sharing(&self) -> Sharing {
        Sharing::Identity
    }

    /// How long values may be given out again if a class does not say so itself, with its parameter
    /// `cacheTTL`; zero keeps none.
    fn cache_ttl(&self) -> Duration {
        Duration::ZERO
    }

    /// How it is known that the pod is who the kubelet says it is (CSI-46). Asked before each answer,
    /// also one out of the cache. A backend that takes the pod's own token checks that itself.
    fn identity(&self) -> impl IdentityCheck {
        Asserted
    }

    /// The values of `queries`, one answer for each and in their order. An error in place of the
    /// answers is one that all of them have in common.
    fn fetch(
        &self,
        call: &Call,
        queries: &[Query],
    ) -> impl Future<Output = Result<Vec<Answer>, FetchError>> + Send;

    /// Gives back what the driver holds at its backend, such as logins. Called once, when the driver stops and
    /// answers no more calls; it has four seconds.
    fn release(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The value of one query, as it will stand in the environment.
pub type Answer = Result<SecretBytes, FetchError>;

/// On whose behalf values are read.
///
/// `Debug` shows names only: parameters may tell where secrets are.
pub struct Call {
    /// The ProviderClass.
    pub class: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// The pod whose container starts.
    pub pod: PodIdentity,
    /// Tokens of the pod's service account by audience, if the driver asked for any.
    pub tokens: BTreeMap<String, PodToken>,
}

impl Call {
    /// A parameter of the class.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// A parameter that the class must have.
    pub fn required(&self, name: &'static str) -> Result<&str, FetchError> {
        self.parameter(name).filter(|text| !text.is_empty()).ok_or_else(|| {
            FetchError::invalid(format!(
                "ProviderClass {:?} lacks the parameter {name}",
                self.class
            ))
        })
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("class", &self.class)
            .field("parameters", &self.parameters.keys())
            .field("pod", &self.pod)
            .field("tokens", &self.tokens.keys())
            .finish()
    }
}

/// Which pod asks, as the kubelet says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodIdentity {
    /// Its namespace.
    pub namespace: String,
    /// Its service account.
    pub service_account: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The node it runs on.
    pub node: String,
}

/// A token of the pod's service account, bound to the pod.
pub struct PodToken {
    /// The token.
    pub token: SecretBytes,
    /// When it ends, in RFC 3339, as the kubelet wrote it.
    pub expires: String,
}

/// One variable that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// What to read, in the driver's own words.
    pub key: String,
    /// Parameters of this variable alone.
    pub parameters: BTreeMap<String, String>,
}

/// What callers should keep to; nothing where the driver has no opinion (OP-30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Most bytes over all values of one answer.
    pub max_payload_bytes: Option<u32>,
    /// Most bytes in one value.
    pub max_value_bytes: Option<u32>,
    /// Longest time for one call.
    pub rpc_timeout: Option<Duration>,
    /// Most calls at the same time. One more is refused with `ResourceExhausted`, and callers try again.
    pub max_in_flight: Option<u32>,
}

/// Who may be given a value that was read for somebody else, out of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody: the backend decides by the pod.
    Pod,
    /// Pods of the same namespace and service account: the backend decides by the account.
    Identity,
    /// Whoever may use the class: the backend does not ask who reads.
    Class,
}

/// Why there is no value. The text goes into events and logs, so it never holds one (CSI-49).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What, where, and what to do about it.
    pub message: String,
}

/// Kinds of failure, each a gRPC code (CSI-44).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// There is no such key. Terminal.
    NotFound,
    /// The backend, or the class, refuses this pod. Terminal, also for optional variables.
    Denied,
    /// The key or a parameter makes no sense. Terminal.
    Invalid,
    /// The backend cannot be reached or asks to come again. Callers try again.
    Unavailable,
    /// The backend failed. Callers try again.
    Backend,
}

impl FetchError {
    /// There is no such key.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::NotFound, message: message.into() }
    }

    /// Refused.
    pub fn denied(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Denied, message: message.into() }
    }

    /// The key or a parameter makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Invalid, message: message.into() }
    }

    /// The backend cannot be reached.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Unavailable, message: message.into() }
    }

    /// The backend failed.
    pub fn backend(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Backend, message: message.into() }
    }
}
