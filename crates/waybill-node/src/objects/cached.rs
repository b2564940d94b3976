//! What one pod asks for several times while it starts is fetched once.
//!
//! Answers are kept for a moment, for the pod that asked: a new pod never sees what an older one read,
//! and a restarted container is never much behind. Failures and tokens are not kept. When its moment is over an answer is
//! wiped, whether somebody asks again or not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::time::sleep;
use waybill_core::id::PodUid;

use super::{Answer, ConfigMap, ObjectSource, Secret, Token, Wanted, WantedToken};

/// Long enough for the start of a pod, short enough for people who change a Secret and look.
const MOMENT: Duration = Duration::from_secs(1);

/// Asks `inner`, and remembers.
pub(crate) struct CachedObjects<S> {
    inner: S,
    config_maps: Kept<ConfigMap>,
    secrets: Kept<Secret>,
}

impl<S: ObjectSource> CachedObjects<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, config_maps: Kept::default(), secrets: Kept::default() }
    }
}

impl<S: ObjectSource> ObjectSource for CachedObjects<S> {
    fn config_map<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<ConfigMap>> {
        Box::pin(async move {
            if let Some(kept) = self.config_maps.get(wanted) {
                return Ok(kept);
            }
            let object = self.inner.config_map(wanted).await?;
            self.config_maps.keep(wanted, &object);
            Ok(object)
        })
    }

    fn secret<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<Secret>> {
        Box::pin(async move {
            if let Some(kept) = self.secrets.get(wanted) {
                return Ok(kept);
            }
            let object = self.inner.secret(wanted).await?;
            self.secrets.keep(wanted, &object);
            Ok(object)
        })
    }

    fn token<'a>(&'a self, wanted: WantedToken<'a>) -> Answer<'a, Token> {
        self.inner.token(wanted)
    }

    fn forget(&self, pod: &PodUid) {
        self.config_maps.forget(pod);
        self.secrets.forget(pod);
        self.inner.forget(pod);
    }
}

/// Pod, namespace and name of an object.
type Key = (PodUid, String, String);

/// Objects of one kind, and when each was read.
struct Kept<T>(Arc<Mutex<Table<T>>>);

type Table<T> = HashMap<Key, (Instant, Arc<T>)>;

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Kept<T> {
    fn get(&self, wanted: Wanted<'_>) -> Option<Arc<T>> {
        self.lock().get(&key(wanted)).map(|(_, object)| Arc::clone(object))
    }

    fn forget(&self, pod: &PodUid) {
        self.lock().retain(|(owner, _, _), _| owner != pod);
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>> {
        lock_at(&self.0, Instant::now())
    }
}

impl<T: Send + Sync + 'static> Kept<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends after a moment, and keeps nothing alive until then"
    )]
    fn keep(&self, wanted: Wanted<'_>, object: &Arc<T>) {
        self.lock().insert(key(wanted), (Instant::now(), Arc::clone(object)));
        let table = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            sleep(MOMENT).await;
            if let Some(table) = table.upgrade() {
                drop(lock_at(&table, Instant::now()));
            }
        });
    }
}

/// Every look throws away what is too old.
fn lock_at<T>(table: &Mutex<Table<T>>, now: Instant) -> MutexGuard<'_, Table<T>> {
    let mut kept = table.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|_, (read, _)| now.duration_since(*read) < MOMENT);
    kept
}

fn key(wanted: Wanted<'_>) -> Key {
    (wanted.pod.clone(), wanted.namespace.to_owned(), wanted.name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{super::testing::FakeObjects, *};

    fn uid(text: &str) -> PodUid {
        PodUid::parse(text).unwrap()
    }

    async fn ask(objects: &CachedObjects<FakeObjects>, pod: &str, name: &str) -> bool {
        let pod = uid(pod);
        objects.secret(Wanted { pod: &pod, namespace: "n", name }).await.is_ok()
    }

    #[tokio::test]
    async fn one_pod_reads_an_object_once_and_others_read_their_own() {
        let objects = CachedObjects::new(FakeObjects::default().with_secret("db", &[]));
        let asked = || objects.inner.asked.load(Ordering::Relaxed);
        for _ in 0..3 {
            assert!(ask(&objects, "one", "db").await);
        }
        assert_eq!(asked(), 1);
        assert!(ask(&objects, "two", "db").await);
        assert_eq!(asked(), 2, "a new pod sees what is there now");
        objects.forget(&uid("one"));
        assert!(ask(&objects, "one", "db").await);
        assert!(ask(&objects, "two", "db").await);
        assert_eq!(asked(), 3);
    }

    #[tokio::test]
    async fn failures_are_not_kept() {
        let objects = CachedObjects::new(FakeObjects::default());
        assert!(!ask(&objects, "one", "db").await);
        objects.inner.set_secret("db", &[]);
        assert!(ask(&objects, "one", "db").await);
    }

    #[tokio::test]
    async fn answers_are_kept_for_a_moment_only() {
        let kept = Kept::default();
        let pod = uid("one");
        let wanted = Wanted { pod: &pod, namespace: "n", name: "db" };
        kept.keep(wanted, &Arc::new(()));
        assert!(kept.get(wanted).is_some());
        let later = Instant::now() + MOMENT;
        assert!(lock_at(&kept.0, later).is_empty());
    }

    /// What a pod read when it started used to stay in memory until another pod read something.
    #[tokio::test]
    async fn nobody_needs_to_ask_again_for_an_answer_to_be_wiped() {
        let kept = Kept::default();
        let (pod, object) = (uid("one"), Arc::new(()));
        kept.keep(Wanted { pod: &pod, namespace: "n", name: "db" }, &object);
        let end = Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&object) > 1 {
            assert!(Instant::now() < end, "it is kept");
            sleep(Duration::from_millis(10)).await;
        }
    }
}
