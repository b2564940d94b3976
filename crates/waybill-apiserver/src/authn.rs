//! Who makes a request.
//!
//! Certificates are judged once for a connection ([`Authenticator::peer`]), everything else once for
//! a request ([`Authenticator::authenticate`]). Credentials that are wrong are refused: they never
//! make a request anonymous. No token appears in any error, log line or `Debug` output.

mod anonymous;
pub(crate) mod bearer;
mod cache;
pub(crate) mod certificate;
pub(crate) mod digest;
pub(crate) mod front_proxy;
pub(crate) mod impersonation;
pub(crate) mod jwt;
pub(crate) mod local;
pub(crate) mod review;
pub(crate) mod service_account;
pub(crate) mod token_file;
pub(crate) mod token_request;

use std::sync::Arc;

use http::HeaderMap;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;

pub(crate) use self::{
    anonymous::Anonymous,
    bearer::{BearerError, BearerTokens},
};
use self::{
    certificate::{CertificateFault, CertificateIdentity, ClientAuthorities},
    front_proxy::ProxyNames,
};
use crate::request::User;

/// Key of the extra that names a credential without being one.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const ALL_AUTHENTICATED: &str = "system:authenticated";

/// Finds out who makes a request.
pub(crate) struct Authenticator {
    pub(crate) clients: ClientAuthorities,
    pub(crate) front_proxies: ClientAuthorities,
    pub(crate) proxy_names: ProxyNames,
    pub(crate) tokens: BearerTokens,
    pub(crate) anonymous: Anonymous,
}

impl Authenticator {
    /// Judges the certificates that a peer presented when it connected; none is fine.
    pub(crate) fn peer(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Peer {
        if chain.is_empty() {
            return Peer::Unknown;
        }
        match self.front_proxies.verify(chain, now) {
            Ok(identity) if self.proxy_names.allow(&identity) => Peer::FrontProxy(identity),
            _ => match self.clients.verify(chain, now) {
                Ok(identity) => Peer::Client(identity),
                Err(fault) => Peer::Refused(fault),
            },
        }
    }

    /// Who makes the request with these headers on the connection of `peer`.
    ///
    /// The first that knows the user wins, in upstream's order: front proxy, certificate, token. A
    /// certificate that is no good is forgiven if the token is good.
    pub(crate) fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        path: &str,
        now: Timestamp,
    ) -> Result<Authenticated, AuthnError> {
        let certificate = match self.by_certificate(peer, headers, now) {
            Ok(Some(authenticated)) => return Ok(authenticated),
            Ok(None) => None,
            Err(fault) => Some(fault),
        };
        if let Some(token) = bearer::token(headers)? {
            return Ok(self.tokens.authenticate(token, self.tokens.audiences(), now)?);
        }
        match certificate {
            Some(fault) => Err(fault.into()),
            None if self.anonymous.allows(path) => Ok(Authenticated {
                user: Arc::new(anonymous::user()),
                audiences: Arc::default(),
                via: Via::Anonymous,
            }),
            None => Err(AuthnError::NoCredentials),
        }
    }

    fn by_certificate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Option<Authenticated>, CertificateFault> {
        let (identity, user, via) = match peer {
            Peer::Client(identity) => (identity, identity.client()?, Via::ClientCertificate),
            Peer::FrontProxy(identity) => {
                let user = front_proxy::user(headers).map(|user| Arc::new(among_all(user)));
                (identity, user, Via::FrontProxy)
            }
            Peer::Refused(fault) => return Err(fault.clone()),
            Peer::Unknown => return Ok(None),
        };
        identity.holds_at(now)?;
        let audiences = Arc::clone(self.tokens.audiences());
        Ok(user.map(|user| Authenticated { user, audiences, via }))
    }
}

/// Whom a connection comes from, as far as certificates tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Client(CertificateIdentity),
    FrontProxy(CertificateIdentity),
    /// A certificate was presented that nobody vouches for.
    Refused(CertificateFault),
    /// No certificate.
    Unknown,
}

impl Peer {
    /// Whether the peer may speak for others and choose audit ids (OP-11).
    pub(crate) fn is_trusted_proxy(&self, now: Timestamp) -> bool {
        matches!(self, Self::FrontProxy(identity) if identity.holds_at(now).is_ok())
    }
}

/// A user, and how we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    pub(crate) user: Arc<User>,
    /// Which of the audiences asked for the credential is meant for; empty for anonymous requests.
    pub(crate) audiences: Arc<[String]>,
    pub(crate) via: Via,
}

/// The user, in the group of all who said who they are.
fn among_all(mut user: User) -> User {
    let marked = |group: &String| group == ALL_AUTHENTICATED || group == "system:unauthenticated";
    // A front proxy may pass on an anonymous user.
    if user.name != anonymous::NAME && !user.groups.iter().any(marked) {
        user.groups.push(ALL_AUTHENTICATED.to_owned());
    }
    user
}

/// The kind of credential that named the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Anonymous,
    ClientCertificate,
    FrontProxy,
    LocalToken,
    ServiceAccountToken,
    TokenFile,
}

/// Why a request is answered 401; the text is for the log, clients read `Unauthorized`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthnError {
    #[error("invalid bearer token")]
    Bearer(#[from] BearerError),
    #[error("invalid client certificate")]
    Certificate(#[from] CertificateFault),
    #[error("no credentials")]
    NoCredentials,
}

/// A list as Go's `%q` prints it.
fn go_list(items: &[String]) -> String {
    let quoted: Vec<_> = items.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

/// A time as `metav1.Time` has it: in UTC, to the second.
fn rfc3339(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests;
