//! What a plugin answered, ready for use.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::HeaderValue;
use jiff::{Timestamp, civil, tz::TimeZone};
use waybill_core::secret::SecretBytes;

use crate::{ApiVersion, ClientCertificate, DecodeError, PluginError, message};

/// Renewal begins when this part of a credential's life is left (CRED-48 allows one per cent).
const EARLY_PART: u32 = 100;

/// At least so early, so that a slow plugin is done in time.
const EARLY_LEAST: Duration = Duration::from_secs(5);

/// And no earlier, however long the credential lives.
const EARLY_MOST: Duration = Duration::from_mins(5);

/// A token, a certificate, or both, and until when a client uses them.
pub struct Credential {
    authorization: Option<HeaderValue>,
    certificate: Option<Arc<ClientCertificate>>,
    obtained: Timestamp,
    expires: Option<Timestamp>,
    /// When to ask for the next one in the background.
    due: Option<Timestamp>,
    /// It took the place of one that a server refused.
    pub(crate) after_refusal: bool,
    /// A server has let it pass.
    accepted: AtomicBool,
    /// Grows with each credential of a process, so that nobody goes back to an older one.
    pub(crate) sequence: u64,
}

impl Credential {
    /// Checks what a plugin printed.
    pub(crate) fn from_answer(
        stdout: &SecretBytes,
        version: ApiVersion,
        now: Timestamp,
    ) -> Result<Self, PluginError> {
        let status = message::answer(stdout, version)?;
        let expires = match status.expiration_timestamp.as_deref() {
            None => None,
            Some(text) => {
                let told = rfc3339(text).ok_or(PluginError::Decode(DecodeError::Expiration))?;
                (told != never()).then_some(told)
            }
        };
        let pair = (status.client_certificate_data.bytes(), status.client_key_data.bytes());
        let certificate = match pair {
            (None, None) if status.token.bytes().is_none() => {
                return Err(PluginError::NoCredential);
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(PluginError::HalfPair),
            (Some(certificate), Some(key)) => {
                let parsed = ClientCertificate::parse(certificate, key);
                Some(Arc::new(parsed.map_err(PluginError::Pair)?))
            }
        };
        let authorization = status.token.bytes().map(authorization).transpose()?;
        Ok(Self {
            authorization,
            certificate,
            obtained: now,
            expires,
            due: expires.map(|expires| due(now, expires)),
            after_refusal: false,
            accepted: AtomicBool::new(false),
            sequence: 0,
        })
    }

    /// The value of the header, marked as sensitive, if the plugin gave a token.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// The certificate, if the plugin gave one.
    pub fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.certificate.as_ref()
    }

    /// When it was obtained.
    pub fn obtained(&self) -> Timestamp {
        self.obtained
    }

    /// Until when it is used; for the life of the process if the plugin did not say.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// From when on the next one is asked for in the background.
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| now > expires)
    }

    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Whether a server would see no difference.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let certificates = match (&self.certificate, &other.certificate) {
            (Some(own), Some(other)) => own.is_same_as(other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        certificates && self.authorization == other.authorization
    }

    /// A server has let it pass. Most calls only read.
    pub(crate) fn note_accepted(&self) {
        if !self.was_accepted() {
            self.accepted.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn was_accepted(&self) -> bool {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("token", &self.authorization.is_some())
            .field("certificate", &self.certificate)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Shares its bytes with every request, and wipes them when the last is gone.
fn authorization(token: &SecretBytes) -> Result<HeaderValue, PluginError> {
    struct Wiped(SecretBytes);

    impl AsRef<[u8]> for Wiped {
        fn as_ref(&self) -> &[u8] {
            self.0.expose()
        }
    }

    let bytes = Wiped(SecretBytes::from([b"Bearer ", token.expose()].concat()));
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(bytes))
        .map_err(|_| PluginError::Decode(DecodeError::Token))?;
    value.set_sensitive(true);
    Ok(value)
}

/// jiff takes more than RFC 3339 does: a blank for the `T`, and a zone in brackets. It ends two days before the last year does, which
/// many write for a time that never comes.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let strict = text.as_bytes().get(10) == Some(&b'T') && !text.contains('[');
    let beyond = || {
        let local: civil::DateTime = text.strip_suffix('Z')?.parse().ok()?;
        (local.year() == 9999).then_some(Timestamp::MAX)
    };
    strict.then(|| text.parse().ok().or_else(beyond)).flatten()
}

/// What a plugin in Go prints that has no time to tell.
fn never() -> Timestamp {
    civil::date(1, 1, 1)
        .at(0, 0, 0, 0)
        .to_zoned(TimeZone::UTC)
        .map_or(Timestamp::MIN, |it| it.timestamp())
}

/// Shortly before the end, so that nobody waits for the plugin.
fn due(obtained: Timestamp, expires: Timestamp) -> Timestamp {
    let Ok(life) = Duration::try_from(expires.duration_since(obtained)) else {
        return expires;
    };
    let early = (life / EARLY_PART).max(EARLY_LEAST.min(life / 10)).min(EARLY_MOST);
    expires.checked_sub(early).unwrap_or(expires)
}

#[cfg(test)]
/// CRED-22..26, CRED-30, CRED-48.
mod tests;
