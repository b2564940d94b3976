//! One worker for each pod: compares what is wanted with what runs, and closes the gap.
//!
//! ```text
//!   observe (CRI) ──► plan (pure) ──► act ──┐      until there is nothing to do, then
//!      ▲                                    │      the status is told and the worker sleeps
//!      └────────────────────────────────────┘
//! ```
//!
//! Workers do not know one another. Each is woken when its pod changes, when the runtime or a probe has
//! news of it, and when a pause is over.

mod admission;
mod back_off;
mod cgroup;
mod end;
mod eviction;
mod failure;
mod files;
mod image;
mod making;
mod memory;
mod orphan;
mod past;
mod plan;
mod prune;
mod resize;
mod resizing;
mod room;
mod rotation;
mod start;
mod surroundings;
mod sysctl;
#[cfg(test)]
mod tests;
mod turn;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::error;
use waybill_core::id::PodUid;

pub use self::sysctl::SysctlPolicy;
use self::turn::Worker;
pub(crate) use self::{
    cgroup::{Cgroups, pids_of_all_pods},
    image::Images,
    making::Making,
    surroundings::Surroundings,
    users::UserRanges,
};
use crate::{
    cri::resources::{Qos, cpu_requests},
    pod::{Pod, PodOrigin},
};

/// Before the worker of a pod begins again.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// All workers of a node. Clones share them.
#[derive(Clone)]
pub(crate) struct Workers(Arc<Table>);

struct Table {
    around: Arc<Surroundings>,
    entries: Mutex<BTreeMap<PodUid, Entry>>,
    /// Pods that nobody wants and that are being removed.
    orphans: Mutex<BTreeSet<PodUid>>,
    /// Those of pods that nobody knew at the last look.
    cgroups_of_nobody: Mutex<Vec<PodUid>>,
    synced: Mutex<bool>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Entry {
    wanted: watch::Sender<Wanted>,
    wake: Arc<Notify>,
    /// Whether the node has found room for the pod, which its status may not say yet.
    is_taken: bool,
}

/// What a worker shall bring about.
#[derive(Clone, Debug)]
struct Wanted {
    pod: Arc<Pod>,
    end: Option<End>,
    /// Why the pod must not go on, if it was evicted.
    evicted: Option<Arc<str>>,
}

/// Why a pod that nobody deleted through the API server ends all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The node gives up all pods for now, each within this many seconds.
    Drain { grace: i64 },
    /// Its source does not have it any more.
    Gone,
}

impl Wanted {
    fn is_ending(&self) -> bool {
        self.end.is_some() || self.pod.is_deleted()
    }

    /// How long the containers may take to stop, in seconds.
    fn grace(&self) -> i64 {
        match self.end {
            Some(End::Drain { grace }) => grace.min(self.pod.grace()),
            // Deleted by force. As upstream says, such pods get a small grace period.
            Some(End::Gone) if self.pod.origin() == PodOrigin::ApiServer => {
                self.pod.grace().min(orphan::LONGEST_GRACE)
            }
            Some(End::Gone) | None => self.pod.grace(),
        }
    }
}

impl Workers {
    pub(crate) fn new(around: Surroundings) -> Self {
        Self(Arc::new(Table {
            around: Arc::new(around),
            entries: Mutex::default(),
            orphans: Mutex::default(),
            cgroups_of_nobody: Mutex::default(),
            synced: Mutex::new(false),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// The pod shall be as this object says.
    pub(crate) fn set(&self, pod: Arc<Pod>) {
        if self.0.stop.is_cancelled() {
            return;
        }
        let mut entries = lock(&self.0.entries);
        if let Some(entry) = entries.get(pod.uid()) {
            entry.wanted.send_modify(|wanted| {
                wanted.pod = pod;
                // A static pod may come back as it was.
                wanted.end = wanted.end.filter(|end| *end != End::Gone);
            });
            return;
        }
        let uid = pod.uid().clone();
        let (wanted, receiver) = watch::channel(Wanted { pod, end: None, evicted: None });
        let wake = Arc::new(Notify::new());
        let working = self.clone().work(receiver, Arc::clone(&wake));
        entries.insert(uid, Entry { wanted, wake, is_taken: false });
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = working => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// A pod whose worker panicked could not be deleted any more. Since workers keep no state that the
    /// runtime does not have, the next one takes over.
    async fn work(self, wanted: watch::Receiver<Wanted>, wake: Arc<Notify>) {
        loop {
            let worker = Worker::new(self.clone(), wanted.clone(), Arc::clone(&wake));
            if AssertUnwindSafe(worker.run()).catch_unwind().await.is_ok() {
                return;
            }
            let uid = wanted.borrow().pod.uid().clone();
            error!(%uid, "the worker of a pod panicked, which is a bug; another takes over");
            sleep(AFTER_PANIC).await;
        }
    }

    /// Nobody wants the pod any more.
    pub(crate) fn gone(&self, uid: &PodUid) {
        if let Some(entry) = lock(&self.0.entries).get(uid) {
            entry.wanted.send_modify(|wanted| wanted.end = wanted.end.or(Some(End::Gone)));
        }
    }

    /// The pod fails, and does not run again.
    fn evict(&self, uid: &PodUid, message: &str) {
        if let Some(entry) = lock(&self.0.entries).get(uid) {
            entry.wanted.send_if_modified(|wanted| {
                let is_new = wanted.evicted.is_none();
                wanted.evicted.get_or_insert_with(|| message.into());
                is_new
            });
        }
    }

    /// Evicts pods that take more of the disk than they may, or of memory that is short, until the workers end.
    pub(crate) async fn watch_sizes(self) {
        let stop = self.0.stop.clone();
        stop.run_until_cancelled(eviction::run(self)).await;
    }

    /// All pods that there are have been set, so whatever else runs is nobody's.
    pub(crate) fn synced(&self) {
        *lock(&self.0.synced) = true;
    }

    /// Something happened to the pod.
    pub(crate) fn wake(&self, uid: &PodUid) {
        if let Some(entry) = lock(&self.0.entries).get(uid) {
            entry.wake.notify_one();
        }
    }

    /// These pods of ours are in the runtime, or have a directory. What nobody wants is removed.
    pub(crate) fn seen(&self, uids: impl IntoIterator<Item = PodUid>) {
        if !*lock(&self.0.synced) || self.0.stop.is_cancelled() {
            return;
        }
        for uid in uids {
            let known = lock(&self.0.entries).contains_key(&uid);
            if !known && lock(&self.0.orphans).insert(uid.clone()) {
                let workers = self.clone();
                self.0.tasks.spawn(async move {
                    let stop = workers.0.stop.clone();
                    tokio::select! {
                        () = orphan::remove(&workers.0.around, &uid) => {}
                        () = stop.cancelled() => {}
                    }
                    lock(&workers.0.orphans).remove(&uid);
                });
            }
        }
    }

    /// Pods that ask for some of the processors get their share, and cgroups of pods that are gone go too.
    pub(crate) fn settle_cgroups(&self) {
        let pods = self.all();
        let burstable = pods.iter().filter(|pod| Qos::of(pod) == Qos::Burstable);
        let running = burstable.filter(|pod| !pod.has_ended());
        let asked = running.map(|pod| cpu_requests(pod)).fold(0, i64::saturating_add);
        self.0.around.cgroups.share_with_burstable(asked);
        if !*lock(&self.0.synced) || self.0.stop.is_cancelled() {
            return;
        }
        let mut unknown = self.0.around.cgroups.pods();
        unknown.retain(|uid| {
            !lock(&self.0.entries).contains_key(uid) && !lock(&self.0.orphans).contains(uid)
        });
        let before = std::mem::replace(&mut *lock(&self.0.cgroups_of_nobody), unknown.clone());
        // Twice in a row, since a cgroup is made before anything is in it, and others make some, too.
        for uid in unknown.iter().filter(|uid| before.contains(uid)) {
            self.0.around.cgroups.remove_if_unused(uid);
        }
    }

    /// Ends all pods, each within `grace` at most, and keeps their objects for the next start.
    pub(crate) async fn drain(&self, grace: Duration) {
        let grace = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        self.0.tasks.close();
        for entry in lock(&self.0.entries).values() {
            entry.wanted.send_modify(|wanted| wanted.end = Some(End::Drain { grace }));
        }
        self.0.tasks.wait().await;
        self.0.around.cgroups.remove_root();
    }

    /// Ends the workers. Containers go on.
    pub(crate) async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Every pod that the node knows.
    pub(crate) fn all(&self) -> Vec<Arc<Pod>> {
        let entries = lock(&self.0.entries);
        entries.values().map(|entry| Arc::clone(&entry.wanted.borrow().pod)).collect()
    }

    /// One pod by its name, and by its uid if somebody insists on it.
    pub(crate) fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<Pod>> {
        self.all().into_iter().find(|pod| {
            pod.namespace() == namespace
                && pod.name() == name
                && uid.is_none_or(|uid| pod.uid().as_str() == uid)
        })
    }

    /// Forgets a pod that is gone, unless it came back in the meantime.
    fn leave(&self, uid: &PodUid) -> bool {
        let mut entries = lock(&self.0.entries);
        let stays = entries.get(uid).is_some_and(|entry| entry.wanted.borrow().end.is_none());
        if !stays {
            entries.remove(uid);
        }
        !stays
    }
}

/// A panic elsewhere must not take all pods with it; the maps are whole between statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
