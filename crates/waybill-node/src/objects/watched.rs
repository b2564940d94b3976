//! Objects of the cluster that many pods refer to, each watched by its name for as long as a pod needs
//! it: a node may not list them all (D11), and does not ask for one at each start (CSI-18).

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use kube::{
    Api, Client, Resource,
    runtime::{watcher, watcher::Event},
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::{debug, warn};
use waybill_core::{chain::Chain, id::PodUid};

use crate::retry::Pauses;

/// The API server is near, or the pod is tried again.
const LONGEST: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The objects of one kind that pods of this node need.
pub(crate) struct WatchedObjects<T> {
    /// Nobody to ask in standalone mode.
    objects: Option<Api<T>>,
    entries: Mutex<HashMap<String, Entry<T>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Why it is not known whether there is an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WatchedError {
    #[error("the API server does not have this kind of object")]
    NoSuchKind,
    #[error("{0}")]
    Refused(String),
    #[error("no answer from the API server in {LONGEST:?}")]
    Silence,
    #[error("there is no API server in standalone mode")]
    Standalone,
}

struct Entry<T> {
    state: watch::Receiver<State<T>>,
    users: HashSet<PodUid>,
    /// Ends the watch.
    _watching: DropGuard,
}

#[derive(Clone, Debug)]
enum State<T> {
    Asked,
    Known(Option<Arc<T>>),
    /// The first answer was a refusal. The watch has ended.
    Failed(WatchedError),
}

impl<T> WatchedObjects<T>
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    pub(crate) fn new(
        client: Option<Client>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        Self {
            objects: client.map(Api::all),
            entries: Mutex::default(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        }
    }

    /// The object as the watch last showed it; nothing if there is none.
    pub(crate) async fn get(
        &self,
        pod: &PodUid,
        name: &str,
    ) -> Result<Option<Arc<T>>, WatchedError> {
        let mut state = self.follow(pod, name)?;
        let known = state.wait_for(|state| !matches!(state, State::Asked));
        let known = match timeout(LONGEST, known).await {
            Ok(Ok(known)) => known.clone(),
            // The node stops.
            Ok(Err(_)) => State::Failed(WatchedError::Silence),
            Err(_) => return Err(WatchedError::Silence),
        };
        match known {
            State::Known(object) => Ok(object),
            State::Asked => Err(WatchedError::Silence),
            State::Failed(error) => Err(error),
        }
    }

    /// Called when a pod is gone.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.lock().retain(|_, entry| {
            entry.users.remove(pod);
            !entry.users.is_empty()
        });
    }

    /// The watch of an object, begun if there is none.
    fn follow(&self, pod: &PodUid, name: &str) -> Result<watch::Receiver<State<T>>, WatchedError> {
        let objects = self.objects.as_ref().ok_or(WatchedError::Standalone)?;
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(name)
            && !matches!(*entry.state.borrow(), State::Failed(_))
        {
            entry.users.insert(pod.clone());
            return Ok(entry.state.clone());
        }
        let (sender, state) = watch::channel(State::Asked);
        let end = self.stop.child_token();
        let following = follow(objects.clone(), name.to_owned(), sender);
        self.tasks.spawn(end.clone().run_until_cancelled_owned(following));
        let mut users = entries.remove(name).map(|entry| entry.users).unwrap_or_default();
        users.insert(pod.clone());
        let entry = Entry { state: state.clone(), users, _watching: end.drop_guard() };
        entries.insert(name.to_owned(), entry);
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches one object until the first answer is a refusal, or until nobody wants to know.
async fn follow<T>(objects: Api<T>, name: String, state: watch::Sender<State<T>>)
where
    T: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(objects, config));
    let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut listed = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                pauses.reset();
                match event {
                    Event::Init => listed = None,
                    Event::InitApply(object) => listed = Some(Arc::new(object)),
                    Event::InitDone => drop(state.send(State::Known(listed.take()))),
                    Event::Apply(object) => drop(state.send(State::Known(Some(Arc::new(object))))),
                    Event::Delete(_) => drop(state.send(State::Known(None))),
                }
            }
            Err(error) if matches!(*state.borrow(), State::Asked) => {
                debug!(name, error = %Chain(&error), "an object cannot be watched");
                let _ = state.send(State::Failed(told(&error)));
                return;
            }
            Err(error) => {
                warn!(name, error = %Chain(&error), "the watch of an object is interrupted");
                sleep(pauses.next()).await;
            }
        }
    }
}

fn told(error: &watcher::Error) -> WatchedError {
    let source = match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => source,
        watcher::Error::WatchError(status) => {
            return WatchedError::Refused(status.message.clone());
        }
        watcher::Error::NoResourceVersion => return WatchedError::Refused(error.to_string()),
    };
    match source {
        kube::Error::Api(status) if status.code == 404 => WatchedError::NoSuchKind,
        kube::Error::Api(status) => WatchedError::Refused(status.message.clone()),
        other => WatchedError::Refused(Chain(other).to_string()),
    }
}
