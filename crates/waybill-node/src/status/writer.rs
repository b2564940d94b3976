//! Writes statuses to the API server.
//!
//! Nobody waits for it: the newest status of a pod replaces one that is not sent yet, pods are written
//! beside one another, and what fails is tried again. A status that the API server has already is not
//! sent. The order for one pod is kept: its statuses, then its deletion.

mod outcome;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Pod as PodObject, PodStatus};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};
use waybill_core::{
    chain::Chain,
    id::{PodUid, ResourceVersion},
};

use self::outcome::Outcome;
use super::patch;
use crate::{
    pod::{Pod, PodOrigin},
    retry::Pauses,
};

/// Requests at the same time.
const PARALLEL: usize = 16;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// After as many refusals the pod is taken for gone: our API server refuses a node what it no longer
/// has, instead of saying that it is not there.
const REFUSALS: u32 = 8;

/// Writes statuses. Clones share all.
#[derive(Clone)]
pub(crate) struct Writer {
    shared: Option<Arc<Shared>>,
}

struct Shared {
    client: Client,
    pods: Mutex<HashMap<PodUid, Entry>>,
    permits: Semaphore,
    idle: Notify,
    runtime: Handle,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What is known of one pod.
#[derive(Default)]
struct Entry {
    /// To be sent next.
    wanted: Option<Job>,
    /// To be deleted after that.
    delete: Option<Arc<Pod>>,
    standing: Standing,
    /// A task works on this pod.
    busy: bool,
    /// What that task does is of no use any more.
    forgotten: bool,
    /// A static pod's last status, for a mirror that is made later.
    last: Option<Job>,
}

#[derive(Clone)]
struct Job {
    pod: Arc<Pod>,
    fields: Arc<Map<String, Value>>,
    digest: Digest,
}

/// Stands for the fields of a status, so that they need not be kept.
type Digest = [u8; 32];

/// What the API server has from us.
#[derive(Default)]
enum Standing {
    /// What was seen with the pod.
    #[default]
    AsSeen,
    /// Nobody knows: a write is under way, or its answer did not arrive.
    Uncertain,
    /// These fields, since that version.
    Written { digest: Digest, version: Option<ResourceVersion> },
}

impl Writer {
    /// Prepares a writer; without a client it does nothing. Must be called inside a tokio runtime.
    pub(crate) fn new(
        client: Option<Client>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let shared = client.map(|client| {
            Arc::new(Shared {
                client,
                pods: Mutex::default(),
                permits: Semaphore::new(PARALLEL),
                idle: Notify::new(),
                runtime: Handle::current(),
                tasks: tasks.clone(),
                stop: stop.clone(),
            })
        });
        Self { shared }
    }

    /// The status of `pod` is now this one.
    pub(crate) fn set(&self, pod: Arc<Pod>, status: PodStatus) {
        let Some(shared) = &self.shared else { return };
        let job = match Job::new(pod, status) {
            Ok(job) => job,
            Err(error) => {
                warn!(%error, "a status cannot be written as JSON");
                return;
            }
        };
        let uid = job.pod.uid().clone();
        let mut pods = shared.lock();
        let entry = pods.entry(uid.clone()).or_default();
        entry.forgotten = false;
        entry.last = (job.pod.origin() == PodOrigin::File).then(|| job.clone());
        entry.wanted = (!entry.has(&job)).then_some(job);
        shared.work(uid, entry);
    }

    /// The pod has ended: its last status is written, then it is deleted for good.
    pub(crate) fn delete(&self, pod: Arc<Pod>) {
        let Some(shared) = &self.shared else { return };
        if pod.origin() == PodOrigin::File {
            return;
        }
        let uid = pod.uid().clone();
        let mut pods = shared.lock();
        let entry = pods.entry(uid.clone()).or_default();
        entry.forgotten = false;
        entry.delete = Some(pod);
        shared.work(uid, entry);
    }

    /// The pod is gone: nothing more is written about it.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let Some(shared) = &self.shared else { return };
        let mut pods = shared.lock();
        match pods.get_mut(uid) {
            // Its task finds nothing to do, and clears up.
            Some(entry) if entry.busy => {
                *entry = Entry { busy: true, forgotten: true, ..Entry::default() };
            }
            Some(_) => drop(pods.remove(uid)),
            None => {}
        }
    }

    /// The mirror of a static pod was made, and has no status yet.
    pub(crate) fn mirror_made(&self, uid: &PodUid) {
        let Some(shared) = &self.shared else { return };
        let mut pods = shared.lock();
        let Some(entry) = pods.get_mut(uid) else { return };
        entry.standing = Standing::Uncertain;
        entry.wanted = entry.last.clone();
        shared.work(uid.clone(), entry);
    }

    /// Returns when all is written.
    pub(crate) async fn flush(&self) {
        let Some(shared) = &self.shared else { return };
        loop {
            let idle = shared.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if !shared.lock().values().any(|entry| entry.busy) {
                return;
            }
            idle.await;
        }
    }
}

impl Job {
    fn new(pod: Arc<Pod>, status: PodStatus) -> Result<Self, serde_json::Error> {
        let fields = patch::fields(status)?;
        Ok(Self { pod, digest: digest(&fields)?, fields: Arc::new(fields) })
    }
}

impl Entry {
    /// Whether the API server has what `job` says.
    fn has(&self, job: &Job) -> bool {
        match &self.standing {
            Standing::AsSeen => matches_object(job),
            Standing::Uncertain => false,
            Standing::Written { digest, .. } if *digest != job.digest => false,
            Standing::Written { version, .. } => {
                // Somebody else may have changed what we wrote.
                let seen = job.pod.object().metadata.resource_version.as_deref();
                let seen = seen.and_then(|version| ResourceVersion::parse(version).ok());
                let is_newer = version.is_some() && seen > *version;
                !is_newer || job.pod.origin() == PodOrigin::File || matches_object(job)
            }
        }
    }
}

fn digest(fields: &Map<String, Value>) -> Result<Digest, serde_json::Error> {
    Ok(Sha256::digest(serde_json::to_vec(fields)?).into())
}

/// Whether the object had this status when it was last seen.
fn matches_object(job: &Job) -> bool {
    let status = job.pod.object().status.as_ref();
    status.and_then(|status| patch::fields(status).ok()).is_some_and(|seen| seen == *job.fields)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Entry>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that a task works on the pod.
    fn work(self: &Arc<Self>, uid: PodUid, entry: &mut Entry) {
        if std::mem::replace(&mut entry.busy, true) {
            return;
        }
        let shared = Arc::clone(self);
        let work = async move {
            let stop = shared.stop.clone();
            stop.run_until_cancelled(shared.write_all(&uid)).await;
            shared.idle.notify_waiters();
        };
        self.tasks.spawn_on(work, &self.runtime);
    }

    async fn write_all(&self, uid: &PodUid) {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut refusals = 0;
        while let Some(task) = self.next(uid) {
            let outcome = {
                let Ok(_permit) = self.permits.acquire().await else { return };
                match &task {
                    Task::Write(job) => self.write(job).await,
                    Task::Delete(pod) => self.delete(pod).await,
                }
            };
            refusals = if matches!(outcome, Outcome::Refused) { refusals + 1 } else { 0 };
            match outcome {
                Outcome::Done(version) => {
                    self.done(uid, &task, version);
                    pauses.reset();
                }
                Outcome::Gone => self.abandon(uid),
                Outcome::Refused if refusals >= REFUSALS => self.abandon(uid),
                Outcome::Invalid => self.give_up(uid, &task),
                Outcome::Refused | Outcome::Failed => {
                    self.put_back(uid, task);
                    sleep(pauses.next()).await;
                }
            }
        }
    }

    /// What to do next for a pod; if nothing, the pod has no task any more.
    fn next(&self, uid: &PodUid) -> Option<Task> {
        let mut pods = self.lock();
        let entry = pods.get_mut(uid)?;
        if let Some(job) = entry.wanted.take() {
            entry.standing = Standing::Uncertain;
            return Some(Task::Write(job));
        }
        if let Some(pod) = entry.delete.take() {
            return Some(Task::Delete(pod));
        }
        entry.busy = false;
        if matches!(entry.standing, Standing::AsSeen) && entry.last.is_none() {
            pods.remove(uid);
        }
        None
    }

    fn done(&self, uid: &PodUid, task: &Task, version: Option<ResourceVersion>) {
        let mut pods = self.lock();
        let Some(entry) = pods.get_mut(uid).filter(|entry| !entry.forgotten) else { return };
        match task {
            Task::Write(job) => {
                entry.standing = Standing::Written { digest: job.digest, version };
                // What was set meanwhile may be the same again.
                entry.wanted.take_if(|wanted| wanted.digest == job.digest);
            }
            Task::Delete(_) => entry.standing = Standing::AsSeen,
        }
    }

    /// The same would fail again; something else may not.
    fn give_up(&self, uid: &PodUid, task: &Task) {
        if let Task::Write(job) = task
            && let Some(entry) = self.lock().get_mut(uid).filter(|entry| !entry.forgotten)
        {
            entry.standing = Standing::Written { digest: job.digest, version: None };
        }
    }

    /// The pod is not there; nothing needs to be written.
    fn abandon(&self, uid: &PodUid) {
        if let Some(entry) = self.lock().get_mut(uid) {
            let last = entry.last.take();
            *entry = Entry { busy: true, last, ..Entry::default() };
        }
    }

    /// To be tried again, unless there is something newer.
    fn put_back(&self, uid: &PodUid, task: Task) {
        let mut pods = self.lock();
        let Some(entry) = pods.get_mut(uid).filter(|entry| !entry.forgotten) else { return };
        match task {
            Task::Write(job) => drop(entry.wanted.get_or_insert(job)),
            Task::Delete(pod) => drop(entry.delete.get_or_insert(pod)),
        }
    }

    async fn write(&self, job: &Job) -> Outcome {
        let pod = &job.pod;
        // A mirror has a uid of its own.
        let uid = (pod.origin() == PodOrigin::ApiServer).then(|| pod.uid().as_str());
        let body = patch::body((*job.fields).clone(), uid);
        let parameters = PatchParams::default();
        let written =
            self.api(pod).patch_status(pod.name(), &parameters, &Patch::Strategic(body)).await;
        match written {
            Ok(object) => {
                debug!(namespace = pod.namespace(), pod = pod.name(), "status written");
                let version = object.metadata.resource_version.as_deref();
                Outcome::Done(version.and_then(|version| ResourceVersion::parse(version).ok()))
            }
            Err(error) => self.judge(pod, "status", &error).await,
        }
    }

    async fn delete(&self, pod: &Pod) -> Outcome {
        let preconditions =
            Preconditions { uid: Some(pod.uid().to_string()), resource_version: None };
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self.api(pod).delete(pod.name(), &parameters).await {
            Ok(_) => Outcome::Done(None),
            Err(error) => self.judge(pod, "deletion", &error).await,
        }
    }

    async fn judge(&self, pod: &Pod, what: &'static str, error: &kube::Error) -> Outcome {
        let outcome = match outcome::of(error) {
            // Another pod of that name, or a change that came between.
            None => self.look(pod).await,
            Some(outcome) => outcome,
        };
        let (namespace, name) = (pod.namespace(), pod.name());
        match outcome {
            Outcome::Gone => debug!(namespace, pod = name, what, "the pod is gone"),
            _ => warn!(namespace, pod = name, what, error = %Chain(error), "not written"),
        }
        outcome
    }

    /// Whether the pod of this name is the one that is meant.
    async fn look(&self, pod: &Pod) -> Outcome {
        match self.api(pod).get_metadata_opt(pod.name()).await {
            Ok(None) => Outcome::Gone,
            Ok(Some(found))
                if pod.origin() == PodOrigin::ApiServer
                    && found.metadata.uid.as_deref() != Some(pod.uid().as_str()) =>
            {
                Outcome::Gone
            }
            Ok(Some(_)) | Err(_) => Outcome::Failed,
        }
    }

    fn api(&self, pod: &Pod) -> Api<PodObject> {
        Api::namespaced(self.client.clone(), pod.namespace())
    }
}

enum Task {
    Write(Job),
    Delete(Arc<Pod>),
}

#[cfg(test)]
mod tests;
