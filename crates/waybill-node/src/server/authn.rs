//! Who asks: the holder of a client certificate, or of a token that the API server vouches for.
//! Nobody is anonymous.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{HeaderMap, header::AUTHORIZATION};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::{Api, Client, api::PostParams};
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use x509_parser::{certificate::X509Certificate, prelude::FromDer, x509::AttributeTypeAndValue};

use super::{
    answer::Refusal,
    cache::{Cache, Lifetime},
};
use crate::Clock;

/// How long the API server may take for a review.
pub(super) const REVIEW_LIMIT: Duration = Duration::from_secs(10);

/// How many different tokens, and how many different rights, are remembered.
pub(super) const REMEMBERED: usize = 4_096;

/// Somebody whom we know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// What the certificate of a connection says; the handshake has verified it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    user: Arc<User>,
    not_after: Timestamp,
}

impl Peer {
    /// The common name is the user, the organizations are the groups. `None` if it names nobody.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
        let text =
            |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        // Upstream's language takes the last one.
        let name = leaf.subject().iter_common_name().filter_map(text).last()?;
        if name.is_empty() {
            return None;
        }
        let groups = leaf.subject().iter_organization().filter_map(text);
        let groups = groups.chain([AUTHENTICATED.to_owned()]).collect();
        let user = User { name, groups, ..User::default() };
        let not_after = Timestamp::from_second(leaf.validity().not_after.timestamp()).ok()?;
        Some(Self { user: Arc::new(user), not_after })
    }
}

/// The group of everybody who is known.
const AUTHENTICATED: &str = "system:authenticated";

/// Knows callers.
pub(super) struct Authenticator {
    /// Without an API server there are no tokens.
    tokens: Option<Tokens>,
    clock: Clock,
}

impl Authenticator {
    pub(super) fn new(cluster: Option<Client>, clock: Clock) -> Self {
        let tokens = cluster.map(|client| Tokens { client, known: Cache::new(REMEMBERED) });
        Self { tokens, clock }
    }

    /// The certificate counts before the token. A certificate is checked against the clock each time,
    /// because a connection may outlive it.
    pub(super) async fn authenticate(
        &self,
        peer: Option<&Peer>,
        headers: &HeaderMap,
    ) -> Result<Arc<User>, Refusal> {
        if let Some(peer) = peer
            && (self.clock)() <= peer.not_after
        {
            return Ok(Arc::clone(&peer.user));
        }
        match (&self.tokens, bearer(headers)) {
            (Some(tokens), Some(token)) => tokens.review(token).await,
            _ => Err(Refusal::Unauthorized),
        }
    }
}

struct Tokens {
    client: Client,
    /// By the hash of the token; the token itself is never kept.
    known: Cache<[u8; 32], Verdict>,
}

impl Tokens {
    async fn review(&self, token: &str) -> Result<Arc<User>, Refusal> {
        let digest = Sha256::digest(token.as_bytes()).into();
        match self.known.get(&digest, self.ask(token)).await {
            Verdict::Known(user) => Ok(user),
            Verdict::Unknown => Err(Refusal::Unauthorized),
            Verdict::Failed(fault) => {
                let what = "the API server could not be asked who holds this token";
                Err(Refusal::Review { what, fault: fault.to_string() })
            }
        }
    }

    async fn ask(&self, token: &str) -> Verdict {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let status = match timeout(REVIEW_LIMIT, api.create(&PostParams::default(), &review)).await
        {
            Ok(Ok(review)) => review.status.unwrap_or_default(),
            Ok(Err(error)) => return Verdict::Failed(error.to_string().into()),
            Err(_) => return Verdict::Failed("it did not answer in time".into()),
        };
        match (status.authenticated, status.user) {
            (Some(true), Some(user)) => Verdict::Known(Arc::new(user.into())),
            _ => Verdict::Unknown,
        }
    }
}

/// What the API server says about a token.
#[derive(Clone)]
enum Verdict {
    Known(Arc<User>),
    Unknown,
    Failed(Arc<str>),
}

impl Lifetime for Verdict {
    /// As kubelets have it for those who are known; the others may become known soon.
    fn lifetime(&self) -> Duration {
        match self {
            Self::Known(_) => Duration::from_secs(120),
            Self::Unknown => Duration::from_secs(10),
            Self::Failed(_) => Duration::from_secs(1),
        }
    }
}

impl From<UserInfo> for User {
    fn from(user: UserInfo) -> Self {
        Self {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn tokens_are_read_as_kubernetes_reads_them() {
        #[track_caller]
        fn check(value: &'static str, expected: Option<&str>) {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            assert_eq!(bearer(&headers), expected, "{value}");
        }
        check("Bearer abc", Some("abc"));
        check("bearer  abc ", Some("abc"));
        check("Bearer", None);
        check("Bearer  ", None);
        check("Basic abc", None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn what_is_not_a_certificate_is_nobody() {
        assert!(Peer::of(&[]).is_none());
        assert!(Peer::of(&[CertificateDer::from(vec![0x30, 0x00])]).is_none());
    }
}
