//! What is checked before a driver sees a call: whether it is whole, and whether the class serves this
//! pod and these keys (CSI-02, CSI-45).
//!
//! The API server and the node agent have checked the allow-lists before; a driver relies on neither
//! (OP-35). The texts are those of `waybill_core::provider`, the same at all three places.

mod request;
pub(crate) mod token;

use std::time::Duration;

use tonic::Status;
use waybill_core::{
    chain::Chain,
    duration::parse_duration,
    provider::{
        ALLOWED_FIELDS, ALLOWED_NAMESPACES, AllowListError, AllowedFields, AllowedNamespaces,
        KeyDenied, NamespaceDenied, is_misspelt,
    },
};

pub(crate) use self::request::{Request, RequestError};
use crate::{
    answer::shortened,
    driver::{Call, Query},
};

/// Parameter of a class: how long its values may be given out again, as Go writes durations; `0` for not
/// at all (CSI-47).
pub(crate) const CACHE_TTL: &str = "cacheTTL";

/// Nobody wants values of yesterday.
const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a call is not answered, and the driver not asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("ProviderClass {class:?}: {parameter} cannot be used")]
    AllowList {
        class: String,
        parameter: &'static str,
        #[source]
        source: AllowListError,
    },
    #[error(
        "ProviderClass {class:?}: cacheTTL must be called so, and be a duration up to 24h, such as 30s or 5m; 0 for none"
    )]
    CacheTtl { class: String },
    #[error(transparent)]
    Namespace(#[from] NamespaceDenied),
    #[error("{}", joined(.0))]
    Keys(Vec<KeyDenied>),
    #[error("namespace {namespace:?} asks too often; try again in a moment")]
    Rate { namespace: String },
    #[error(
        "the driver answers {limit} calls at the same time, and no more; try again in a moment"
    )]
    Busy { limit: u32 },
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let text = shortened(&Chain(&refusal).to_string());
        match refusal {
            Refusal::Request(_) | Refusal::AllowList { .. } | Refusal::CacheTtl { .. } => {
                Self::invalid_argument(text)
            }
            Refusal::Namespace(_) | Refusal::Keys(_) => Self::permission_denied(text),
            Refusal::Rate { .. } | Refusal::Busy { .. } => Self::resource_exhausted(text),
        }
    }
}

/// Refuses a pod whose namespace the class does not serve, and keys that it does not have.
pub(crate) fn check_lists(call: &Call, queries: &[Query]) -> Result<(), Refusal> {
    let unusable = |parameter| {
        let class = call.class.clone();
        move |source| Refusal::AllowList { class, parameter, source }
    };
    let all = || call.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let namespaces = AllowedNamespaces::of(all()).map_err(unusable(ALLOWED_NAMESPACES))?;
    let fields = AllowedFields::of(all()).map_err(unusable(ALLOWED_FIELDS))?;
    namespaces.check(&call.pod.namespace)?;
    let denied: Vec<_> =
        queries.iter().filter_map(|query| fields.check(&query.key).err()).collect();
    if denied.is_empty() { Ok(()) } else { Err(Refusal::Keys(denied)) }
}

/// How long values of the class are kept.
pub(crate) fn cache_ttl(call: &Call, of_driver: Duration) -> Result<Duration, Refusal> {
    let refused = || Refusal::CacheTtl { class: call.class.clone() };
    // A class that keeps values for a moment must not keep them for as long as the driver likes.
    if call.parameters.keys().any(|name| is_misspelt(name, CACHE_TTL)) {
        return Err(refused());
    }
    let Some(text) = call.parameter(CACHE_TTL) else { return Ok(of_driver) };
    let ttl = parse_duration(text).filter(|ttl| *ttl <= LONGEST_TTL);
    ttl.ok_or_else(refused)
}

fn joined(denied: &[KeyDenied]) -> String {
    denied.iter().map(KeyDenied::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::driver::PodIdentity;

    fn call(parameters: &[(&str, &str)]) -> Call {
        let text = |text: &str| text.to_owned();
        Call {
            class: text("class"),
            parameters: parameters.iter().map(|(key, value)| (text(key), text(value))).collect(),
            pod: PodIdentity {
                namespace: text("shop"),
                service_account: text("default"),
                name: text("pod"),
                uid: text("uid"),
                node: text("node"),
            },
            tokens: [].into(),
        }
    }

    #[track_caller]
    fn check(parameters: &[(&str, &str)], keys: &[&str], expected: Result<(), (Code, &str)>) {
        let query = |key: &&str| Query { key: (*key).to_owned(), parameters: [].into() };
        let queries: Vec<_> = keys.iter().map(query).collect();
        let found = check_lists(&call(parameters), &queries).map_err(Status::from);
        let found = found.as_ref().map_err(|status| (status.code(), status.message()));
        assert_eq!(found.copied(), expected);
    }

    /// CSI-45
    #[test]
    fn pods_of_other_namespaces_are_refused_csi_45() {
        check(&[("allowedNamespaces", "shop,bank")], &["a"], Ok(()));
        let denied = "Unauthorized: namespace not in allowedNamespaces";
        check(&[("allowedNamespaces", "bank")], &["a"], Err((Code::PermissionDenied, denied)));
        check(&[("allowedNamespaces", "")], &["a"], Err((Code::PermissionDenied, denied)));
    }

    /// CSI-45
    #[test]
    fn every_key_outside_the_list_is_named_csi_45() {
        let list = &[("allowedFields", "secret/data/app/*")];
        check(list, &["secret/data/app/a", "secret/data/app/b"], Ok(()));
        let one = "Key 'secret/data/db-creds' not in allowedFields pattern 'secret/data/app/*'";
        let denied = Err((Code::PermissionDenied, one));
        check(list, &["secret/data/app/a", "secret/data/db-creds"], denied);
        let two = "Key 'x' not in allowedFields pattern 'secret/data/app/*'; \
                   Key 'secret/data/app/../x' not in allowedFields pattern 'secret/data/app/*'";
        check(list, &["x", "secret/data/app/../x"], Err((Code::PermissionDenied, two)));
    }

    /// CSI-45
    #[test]
    fn a_list_that_is_not_understood_allows_nothing_csi_45() {
        let text = "ProviderClass \"class\": allowedNamespaces cannot be used: item 1 is empty";
        check(&[("allowedNamespaces", ",shop")], &["a"], Err((Code::InvalidArgument, text)));
        let text = "ProviderClass \"class\": allowedFields cannot be used: another parameter has \
                    almost this name, and nobody reads it: case and spelling count";
        check(&[("allowedfields", "a")], &["a"], Err((Code::InvalidArgument, text)));
    }

    /// CSI-47
    #[test]
    fn a_class_says_how_long_values_are_kept_csi_47() {
        let of_driver = Duration::from_secs(7);
        let ttl = |parameters: &[(&str, &str)]| cache_ttl(&call(parameters), of_driver).ok();
        assert_eq!(ttl(&[]), Some(of_driver));
        assert_eq!(ttl(&[("cacheTTL", "0")]), Some(Duration::ZERO));
        assert_eq!(ttl(&[("cacheTTL", "5m")]), Some(Duration::from_secs(300)));
        assert_eq!(ttl(&[("cacheTTL", "24h")]), Some(LONGEST_TTL));
        assert_eq!(ttl(&[("cacheTtl", "5m")]), None, "nobody would read it");
        for wrong in ["", "5", "24h1s", "-1s", "soon"] {
            assert_eq!(ttl(&[("cacheTTL", wrong)]), None, "{wrong:?}");
        }
    }
}
