//! Bearer tokens of every kind.

use std::sync::Arc;

use http::{HeaderMap, header::AUTHORIZATION};
use jiff::Timestamp;

use super::{
    Authenticated, Via,
    local::{LocalTokenError, LocalTokens},
    service_account::{Objects, ServiceAccountTokens, TokenError, accepted},
    token_file::TokenFile,
};
use crate::request::User;

/// All that can recognize a token.
pub(crate) struct BearerTokens {
    pub(crate) file: TokenFile,
    pub(crate) local: Option<Arc<LocalTokens>>,
    pub(crate) service_accounts: ServiceAccountTokens,
    pub(crate) objects: Arc<dyn Objects>,
}

impl BearerTokens {
    /// Who has `token`, which must be meant for one of `audiences`.
    pub(crate) fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Authenticated, BearerError> {
        if let Some(user) = self.file.find(token) {
            return self.for_this_server(Arc::clone(user), Via::TokenFile, audiences);
        }
        if let Some(local) = &self.local {
            match local.verify(token, now) {
                Ok(user) => return self.for_this_server(user, Via::LocalToken, audiences),
                // Not signed by our key, so perhaps one of a service account.
                Err(LocalTokenError::Jwt(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (user, audiences) =
            self.service_accounts.verify(token, audiences, self.objects.as_ref(), now)?;
        Ok(Authenticated { user, audiences, via: Via::ServiceAccountToken })
    }

    /// The audiences that mean this API server.
    pub(crate) fn audiences(&self) -> &Arc<[String]> {
        self.service_accounts.audiences()
    }

    /// A token without audiences of its own is meant for this server and nobody else.
    fn for_this_server(
        &self,
        user: Arc<User>,
        via: Via,
        audiences: &[String],
    ) -> Result<Authenticated, BearerError> {
        let audiences = accepted(self.audiences(), audiences)?;
        Ok(Authenticated { user, audiences, via })
    }
}

/// Why a bearer token is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BearerError {
    #[error(transparent)]
    Local(#[from] LocalTokenError),
    #[error("the Authorization header is not text")]
    NotText,
    #[error(transparent)]
    ServiceAccount(#[from] TokenError),
}

/// The bearer token of a request; other schemes are nobody's credentials here.
pub(crate) fn token(headers: &HeaderMap) -> Result<Option<&str>, BearerError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let value = value.to_str().map_err(|_| BearerError::NotText)?.trim();
    let Some((scheme, token)) = value.split_once(' ') else { return Ok(None) };
    let token = token.trim();
    let bearer = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    Ok(bearer.then_some(token))
}
