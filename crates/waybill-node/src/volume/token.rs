//! Tokens of service accounts: asked for once, kept in memory, renewed in good time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ServiceAccountTokenProjection;
use waybill_core::id::PodUid;

use crate::{
    Clock,
    objects::{ObjectError, ObjectSource, Token, WantedToken},
    pod::Pod,
};

/// How long a token is good for if the pod does not say, as in the API.
const DEFAULT_SECONDS: i64 = 3600;

/// A token is renewed when this part of its life is over, in percent, and at the latest at this age.
const RENEW_AT_PERCENT: i64 = 80;
const RENEW_AT_AGE: SignedDuration = SignedDuration::from_hours(24);

/// The tokens of all pods.
pub(super) struct Tokens {
    clock: Clock,
    held: Mutex<HashMap<Key, Arc<Held>>>,
}

/// Pod, audience and life of a token.
type Key = (PodUid, String, i64);

/// A token, and when it was issued.
pub(super) struct Held {
    token: Token,
    issued: Timestamp,
}

impl Tokens {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, held: Mutex::default() }
    }

    /// The token that is to stand in the volume now. If it cannot be renewed, the old one is good until
    /// its end.
    pub(super) async fn token(
        &self,
        objects: &dyn ObjectSource,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
    ) -> Result<Arc<Held>, ObjectError> {
        let audience = source.audience.as_deref().unwrap_or_default();
        let seconds = source.expiration_seconds.unwrap_or(DEFAULT_SECONDS);
        let key = (pod.uid().clone(), audience.to_owned(), seconds);
        let now = (self.clock)();
        let held = self.lock().get(&key).cloned();
        if let Some(held) = &held
            && !held.is_due(now)
        {
            return Ok(Arc::clone(held));
        }
        let account = pod.spec().service_account_name.as_deref();
        let asked = objects.token(WantedToken {
            pod: pod.uid(),
            pod_name: pod.name(),
            namespace: pod.namespace(),
            service_account: account.filter(|name| !name.is_empty()).unwrap_or("default"),
            audience,
            expiration_seconds: seconds,
        });
        match (asked.await, held) {
            (Ok(token), _) => {
                let held = Arc::new(Held { token, issued: now });
                self.lock().insert(key, Arc::clone(&held));
                Ok(held)
            }
            (Err(error), Some(held)) if now < held.token.expires => {
                let pod = pod.uid().as_str();
                tracing::warn!(pod, %error, "a token could not be renewed and will be tried again");
                Ok(held)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Called when a pod is gone.
    pub(super) fn forget(&self, pod: &PodUid) {
        self.lock().retain(|(owner, _, _), _| owner != pod);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The token itself.
    pub(super) fn expose(&self) -> &[u8] {
        self.token.text.expose()
    }

    fn is_due(&self, now: Timestamp) -> bool {
        is_due(self.issued, self.token.expires, now)
    }
}

/// Whether a token that was issued and expires then is to be renewed.
fn is_due(issued: Timestamp, expires: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(issued);
    let life = expires.duration_since(issued);
    let spent = age.as_millis().saturating_mul(100);
    age > RENEW_AT_AGE || spent >= life.as_millis().saturating_mul(i128::from(RENEW_AT_PERCENT))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(life: i64, age: i64, expected: bool) {
        let at = |seconds| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
        assert_eq!(is_due(at(0), at(life), at(age)), expected, "{age} of {life}");
    }

    #[test]
    fn tokens_are_renewed_when_a_fifth_of_their_life_is_left() {
        check(1000, 0, false);
        check(1000, 799, false);
        check(1000, 800, true);
        check(1000, 5000, true);
        check(3607, 2885, false);
        check(3607, 2886, true);
    }

    #[test]
    fn tokens_are_renewed_after_a_day_however_long_they_live() {
        let day = 24 * 60 * 60;
        check(30 * day, day, false);
        check(30 * day, day + 1, true);
    }

    proptest! {
        /// Once due, a token stays due, and it is due before it ends.
        #[test]
        fn due_comes_before_the_end_and_stays(life in 1..10_000_000_i64, age in 0..10_000_000_i64) {
            let at = |seconds| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
            let due = |age| is_due(at(0), at(life), at(age));
            prop_assert!(!due(age) || due(age + 1));
            prop_assert!(due(life));
        }
    }
}
