//! Logins, one for each account that a class lets in.
//!
//! They are made and prolonged when a container needs them, because then there is a token of a pod to
//! do it with; nothing happens in the background.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::HeaderValue;
use tokio::{sync::OnceCell, time::Instant};
use waybill_core::secret::SecretBytes;

use super::{api::VaultApi, class::VaultClass};
use crate::{
    driver::{Call, FetchError, PodToken},
    http::sensitive,
};

/// How many logins are remembered; a node has fewer accounts.
const LOGINS: usize = 4096;

/// For whom a login is good.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    /// Where, and as which role.
    class: VaultClass,
    namespace: String,
    service_account: String,
}

impl Identity {
    pub(super) fn of(call: &Call, class: &VaultClass) -> Self {
        Self {
            class: class.clone(),
            namespace: call.pod.namespace.clone(),
            service_account: call.pod.service_account.clone(),
        }
    }
}

/// What the backend gave for a token of a pod.
pub(super) struct Lease {
    pub(super) token: SecretBytes,
    /// Zero if it does not end.
    pub(super) duration: Duration,
    pub(super) is_renewable: bool,
}

/// A lease with its times.
struct Held {
    lease: Lease,
    /// From when on it is prolonged or replaced.
    due: Option<Instant>,
    ends: Option<Instant>,
}

impl Held {
    fn new(lease: Lease) -> Self {
        let now = Instant::now();
        let after = |time| if lease.duration.is_zero() { None } else { now.checked_add(time) };
        let (due, ends) = (after(lease.duration * 2 / 3), after(lease.duration));
        Self { lease, due, ends }
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }

    fn has_ended(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }
}

/// Filled by the first who needs it; those who come meanwhile wait for the same login.
type Place = Arc<OnceCell<Held>>;

/// A login as one call uses it.
pub(super) struct Login {
    place: Place,
    /// Whether it was made for this call.
    pub(super) is_new: bool,
}

impl Login {
    /// The credential, for a request.
    pub(super) fn header(&self) -> Result<HeaderValue, FetchError> {
        let held = self.place.get();
        let header = held.and_then(|held| sensitive(&held.lease.token));
        header.ok_or_else(|| FetchError::backend("Vault's token cannot be sent back to it"))
    }
}

/// All logins.
#[derive(Default)]
pub(super) struct Logins {
    places: Mutex<HashMap<Identity, Place>>,
}

impl Logins {
    /// The login of `identity`: the one there is, prolonged if it is time, or a new one.
    pub(super) async fn current(
        &self,
        identity: &Identity,
        api: &VaultApi<'_>,
        token: &PodToken,
    ) -> Result<Login, FetchError> {
        let place = self.place(identity);
        if place.get().is_some_and(Held::is_due) {
            let next = self.replace(identity, &place);
            let old = Login { place, is_new: false };
            return fill(next, prolong(&old, api, token)).await;
        }
        fill(place, async { api.login(token).await.map(Held::new) }).await
    }

    /// A login after `refused`, which the backend takes no more.
    pub(super) async fn after(
        &self,
        refused: &Login,
        identity: &Identity,
        api: &VaultApi<'_>,
        token: &PodToken,
    ) -> Result<Login, FetchError> {
        let next = self.replace(identity, &refused.place);
        fill(next, async { api.login(token).await.map(Held::new) }).await
    }

    fn place(&self, identity: &Identity) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(identity) {
            return Arc::clone(place);
        }
        if places.len() >= LOGINS {
            places.retain(|_, place| place.get().is_some_and(|held| !held.has_ended()));
        }
        if places.len() >= LOGINS {
            places.clear();
        }
        Arc::clone(places.entry(identity.clone()).or_default())
    }

    /// The place after `old`: another call may have made it already.
    fn replace(&self, identity: &Identity, old: &Place) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(identity.clone()).or_default();
        if Arc::ptr_eq(place, old) {
            *place = Place::default();
        }
        Arc::clone(place)
    }
}

async fn fill(
    place: Place,
    make: impl Future<Output = Result<Held, FetchError>>,
) -> Result<Login, FetchError> {
    let mut is_new = false;
    let made = async {
        is_new = true;
        make.await
    };
    place.get_or_try_init(|| made).await?;
    Ok(Login { place, is_new })
}

async fn prolong(old: &Login, api: &VaultApi<'_>, token: &PodToken) -> Result<Held, FetchError> {
    let held = old.place.get();
    let renewable = held.filter(|held| held.lease.is_renewable && !held.has_ended());
    if let Some(held) = renewable
        && let Ok(mut lease) = api.renew(old).await
    {
        // Near the end of what the role allows, renewals get shorter and shorter; then a login is better.
        lease.is_renewable &= lease.duration >= held.lease.duration;
        return Ok(Held::new(lease));
    }
    api.login(token).await.map(Held::new)
}
