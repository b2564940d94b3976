//! A login with Vault, and how it is prolonged.

use http::HeaderValue;
use tokio::time::Instant;
use waybill_core::secret::SecretBytes;

use super::{api::VaultApi, class::VaultClass};
use crate::{
    driver::{FetchError, PodToken},
    drivers::sessions::{Identity, Sessions, Timed},
    http::sensitive,
};

/// What the backend gave for a token of a pod.
pub(super) struct Login {
    pub(super) token: SecretBytes,
    pub(super) is_renewable: bool,
    /// When a pod has to prove again who it is.
    pub(super) until: Instant,
}

impl Login {
    /// The credential, for a request.
    pub(super) fn header(&self) -> Result<HeaderValue, FetchError> {
        sensitive(&self.token)
            .ok_or_else(|| FetchError::backend("Vault's token cannot be sent back to it"))
    }
}

/// All logins.
pub(super) type Logins = Sessions<Identity<VaultClass>, Login>;

/// The login after `old`, or a first one.
pub(super) async fn log_in(
    api: &VaultApi<'_>,
    token: &PodToken,
    old: Option<&Timed<Login>>,
) -> Result<Timed<Login>, FetchError> {
    let renewable = old.filter(|old| old.session.is_renewable && !old.has_ended());
    if let Some(old) = renewable
        && let Ok(mut renewed) = api.renew(&old.session).await
    {
        // Near the end of what the role allows, renewals get shorter and shorter; then a login is better.
        renewed.session.is_renewable &= renewed.duration >= old.duration;
        return Ok(renewed);
    }
    let new = api.login(token).await?;
    // It would be valid for as long as the role says, and count there.
    if let Some(old) = old {
        api.revoke(&old.session).await;
    }
    Ok(new)
}
