//! Sessions with backends: logins, credentials, tokens.
//!
//! They are made and replaced when a container needs them, because then there is a token of a pod to do
//! it with; nothing happens in the background.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{sync::OnceCell, time::Instant};

use crate::{
    cache::gives_way,
    driver::{Call, FetchError, PodToken},
};

/// How many are remembered; a node has fewer pods.
const SESSIONS: usize = 4096;

/// How soon a session is not made anew for a second time because the backend denies something.
const SECOND_TRY: Duration = Duration::from_secs(60);

/// For whom a session is good: whoever has the token that it was made with, and uses a class of one content.
///
/// Names are not enough. Whoever reaches the socket can say any, and an account that is deleted and made again
/// has the name of the one before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity<C> {
    pub(crate) class: C,
    namespace: String,
    service_account: String,
    token: [u8; 32],
}

impl<C> Identity<C> {
    pub(crate) fn of(call: &Call, class: C, token: &PodToken) -> Self {
        Self {
            class,
            namespace: call.pod.namespace.clone(),
            service_account: call.pod.service_account.clone(),
            token: Sha256::digest(token.token.expose()).into(),
        }
    }
}

/// Whose session it is under a key: a namespace, or nobody's if it serves all alike.
pub(crate) trait Owned {
    fn owner(&self) -> &str;
}

impl<C> Owned for Identity<C> {
    fn owner(&self) -> &str {
        &self.namespace
    }
}

/// A session, and until when it lasts.
pub(crate) struct Timed<S> {
    pub(crate) session: S,
    /// Zero if it does not end.
    pub(crate) duration: Duration,
    /// From when on it is better replaced.
    due: Option<Instant>,
    ends: Option<Instant>,
    made: Instant,
    /// It came after one that the backend refused.
    is_second: bool,
}

impl<S> Timed<S> {
    /// One that lasts for `duration` from now on.
    pub(crate) fn new(session: S, duration: Duration) -> Self {
        let now = Instant::now();
        let after = |time| if duration.is_zero() { None } else { now.checked_add(time) };
        // A backend may say any number.
        let (due, ends) = (after(duration / 3 * 2), after(duration));
        Self { session, duration, due, ends, made: now, is_second: false }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }
}

/// Filled by the first who needs it; those who come meanwhile wait for the same session.
type Place<S> = Arc<OnceCell<Timed<S>>>;

/// A session as one call uses it.
pub(crate) struct Held<S> {
    place: Place<S>,
    /// Whether it was made for this call.
    pub(crate) is_new: bool,
}

impl<S> Held<S> {
    /// The session.
    pub(crate) fn get(&self) -> Result<&Timed<S>, FetchError> {
        // It is filled before there is a `Held`.
        self.place.get().ok_or_else(|| FetchError::backend("there is no session"))
    }

    /// Whether another session may do what this one may not: it is not of this call, and not one that was
    /// made a moment ago for the same reason. A key that is denied for good must not make a session each time
    /// that somebody asks for it.
    pub(crate) fn may_be_replaced(&self) -> bool {
        let is_tried = |timed: &Timed<S>| timed.is_second && timed.made.elapsed() < SECOND_TRY;
        !self.is_new && !self.place.get().is_some_and(is_tried)
    }
}

/// All sessions with a kind of backend.
pub(crate) struct Sessions<K, S> {
    places: Mutex<HashMap<K, Place<S>>>,
}

impl<K, S> Default for Sessions<K, S> {
    fn default() -> Self {
        Self { places: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash + Owned, S> Sessions<K, S> {
    /// The session of `key`: the one there is, or what `make` makes, of the old one if its time has
    /// come.
    pub(crate) async fn current(
        &self,
        key: &K,
        make: impl AsyncFnOnce(Option<&Timed<S>>) -> Result<Timed<S>, FetchError>,
    ) -> Result<Held<S>, FetchError> {
        let place = self.place(key);
        match place.get().filter(|timed| timed.is_due()) {
            Some(old) => fill(self.replace(key, &place), make(Some(old))).await,
            None => fill(place, make(None)).await,
        }
    }

    /// A session after `refused`, which the backend takes no more.
    pub(crate) async fn after(
        &self,
        refused: &Held<S>,
        key: &K,
        make: impl AsyncFnOnce(Option<&Timed<S>>) -> Result<Timed<S>, FetchError>,
    ) -> Result<Held<S>, FetchError> {
        let second = async { make(None).await.map(|made| Timed { is_second: true, ..made }) };
        fill(self.replace(key, &refused.place), second).await
    }

    /// Every session that has not ended; they are not used again.
    #[cfg(any(feature = "vault", test))]
    pub(crate) fn take_all(&self) -> Vec<(K, Held<S>)> {
        let places =
            std::mem::take(&mut *self.places.lock().unwrap_or_else(PoisonError::into_inner));
        let lasts = |place: &Place<S>| place.get().is_some_and(|timed| !timed.has_ended());
        let lasting = places.into_iter().filter(|(_, place)| lasts(place));
        lasting.map(|(key, place)| (key, Held { place, is_new: false })).collect()
    }

    fn place(&self, key: &K) -> Place<S> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(key) {
            return Arc::clone(place);
        }
        if places.len() >= SESSIONS {
            places.retain(|_, place| place.get().is_some_and(|timed| !timed.has_ended()));
        }
        if places.len() >= SESSIONS {
            make_room(&mut places, key.owner());
        }
        Arc::clone(places.entry(key.clone()).or_default())
    }

    /// The place after `old`: another call may have made it already.
    fn replace(&self, key: &K, old: &Place<S>) -> Place<S> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(key.clone()).or_default();
        if Arc::ptr_eq(place, old) {
            *place = Place::default();
        }
        Arc::clone(place)
    }
}

/// Drops the oldest session of the namespace that has most, which may be `newcomer`. It ends by itself.
fn make_room<K: Clone + Eq + Hash + Owned, S>(places: &mut HashMap<K, Place<S>>, newcomer: &str) {
    let mut counts = HashMap::<&str, usize>::new();
    places.keys().for_each(|key| *counts.entry(key.owner()).or_default() += 1);
    let own = counts.get(newcomer).copied().unwrap_or_default();
    let victim = gives_way(counts, newcomer, own + 1).to_owned();
    let of_victim = places.iter().filter(|(key, _)| key.owner() == victim);
    let oldest = of_victim.min_by_key(|(_, place)| place.get().map(|timed| timed.made));
    if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
        places.remove(&oldest);
    }
}

async fn fill<S>(
    place: Place<S>,
    make: impl Future<Output = Result<Timed<S>, FetchError>>,
) -> Result<Held<S>, FetchError> {
    let mut is_new = false;
    let made = async {
        is_new = true;
        make.await
    };
    place.get_or_try_init(|| made).await?;
    Ok(Held { place, is_new })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_may_last_for_longer_than_anybody_counts() {
        for seconds in [0, 1, 3600, u64::MAX / 2, u64::MAX] {
            let timed = Timed::new((), Duration::from_secs(seconds));
            assert!(!timed.has_ended() && !timed.is_due(), "{seconds}");
        }
    }

    impl Owned for &str {
        fn owner(&self) -> &str {
            self.split('/').next().unwrap_or_default()
        }
    }

    /// CSI-48: whoever has many pods must not end the sessions of others.
    #[tokio::test(start_paused = true)]
    async fn sessions_of_one_namespace_do_not_push_out_others_csi_48() {
        let sessions = Sessions::<&str, ()>::default();
        let make = async |_: Option<&Timed<()>>| Ok(Timed::new((), Duration::from_secs(3600)));
        sessions.current(&"modest/a", make).await.unwrap();
        for number in 0..SESSIONS + 10 {
            let key: &'static str = format!("greedy/{number}").leak();
            sessions.current(&key, make).await.unwrap();
            tokio::time::advance(Duration::from_micros(1)).await;
        }
        let mut left: Vec<_> = sessions.take_all().into_iter().map(|(key, _)| key).collect();
        left.sort_unstable();
        assert_eq!(left.len(), SESSIONS);
        assert!(left.contains(&"modest/a"), "it was there first");
        assert!(!left.contains(&"greedy/0") && left.contains(&"greedy/4105"));
    }

    /// A session for each try would be a flood of them.
    #[tokio::test(start_paused = true)]
    async fn what_stays_denied_makes_one_more_session_a_minute() {
        let sessions = Sessions::<&str, u32>::default();
        let long = Duration::from_secs(3600);
        let made = std::sync::atomic::AtomicU32::new(0);
        let make = async |_: Option<&Timed<u32>>| {
            let number = made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(Timed::new(number, long))
        };
        let first = sessions.current(&"key", make).await.unwrap();
        assert!(!first.may_be_replaced(), "it is new");
        let first = sessions.current(&"key", make).await.unwrap();
        assert!(first.may_be_replaced());
        let second = sessions.after(&first, &"key", make).await.unwrap();
        assert_eq!(second.get().unwrap().session, 1);
        for _ in 0..3 {
            let again = sessions.current(&"key", make).await.unwrap();
            assert!(!again.may_be_replaced());
        }
        tokio::time::advance(SECOND_TRY).await;
        assert!(sessions.current(&"key", make).await.unwrap().may_be_replaced());
        assert_eq!(made.load(std::sync::atomic::Ordering::SeqCst), 2);
    }
}
