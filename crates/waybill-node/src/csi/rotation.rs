//! Values that change while a container runs on the old ones.
//!
//! A pod that asks for it has its drivers asked again, as often as the class says. What is kept to
//! compare with is a hash under a key of the container, in memory alone; no value is (CSI-30). A driver that
//! fails meanwhile says nothing about a value, so nothing restarts for it.

mod record;
mod resume;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{sync::Notify, time::Instant};
use waybill_api::pod::{Container, ContainerKind};
use waybill_core::id::PodUid;

use self::record::{ClassRecord, Hash, Key, Record, Records};
use super::{Asker, Checked, Csi, CsiVariable, Given, Group, groups};
use crate::{
    directories::Directories,
    event::Kind,
    pod::{ContainerRef, Pod, RestartPolicy},
};

/// The annotation of a pod whose containers restart when a value changed: `"true"`.
const RESTART_ON_ROTATION: &str = "waybill.dev/restart-on-rotation";

/// What containers of this node run on.
pub(crate) struct Rotations {
    /// By it refreshes are spread.
    key: Key,
    running: Mutex<HashMap<(PodUid, String), Running>>,
    /// Pods that this process has looked at.
    looked_at: Mutex<HashSet<PodUid>>,
    records: Records,
    /// There is something new to wait for.
    changed: Notify,
}

/// The values of one container, as far as they may change.
struct Running {
    key: Key,
    /// Of each class: when it is asked again, and what it gave.
    classes: BTreeMap<String, Known>,
    /// Variables whose value is another by now.
    stale: BTreeSet<String>,
    /// It was started by a node before this one, which left nothing to compare with.
    is_unknown: bool,
}

struct Known {
    interval: Duration,
    due: Instant,
    /// Nothing until a container that is taken over was asked for once.
    hashes: Option<BTreeMap<String, Hash>>,
}

/// A class that is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Due {
    pod: PodUid,
    container: String,
    class: String,
}

impl Rotations {
    /// With `directories` a node that is started again knows what containers run on.
    pub(crate) fn new(directories: Option<Directories>) -> Self {
        Self {
            key: Key::random(),
            running: Mutex::default(),
            looked_at: Mutex::default(),
            records: Records(directories),
            changed: Notify::new(),
        }
    }

    /// Containers of a pod that run on old values.
    pub(crate) fn stale(&self, pod: &PodUid) -> BTreeSet<String> {
        let running = self.lock();
        let stale = running.iter().filter(|((uid, _), it)| uid == pod && !it.stale.is_empty());
        stale.map(|((_, container), _)| container.clone()).collect()
    }

    /// Variables of a container that have other values by now.
    pub(crate) fn stale_variables(&self, pod: &PodUid, container: &str) -> BTreeSet<String> {
        let running = self.lock();
        let found = running.get(&(pod.clone(), container.to_owned()));
        found.map(|it| it.stale.clone()).unwrap_or_default()
    }

    /// Whether nobody knows what the container was started with.
    pub(crate) fn is_unknown(&self, pod: &PodUid, container: &str) -> bool {
        let running = self.lock();
        running.get(&(pod.clone(), container.to_owned())).is_some_and(|it| it.is_unknown)
    }

    /// Waits until classes are to be asked again, and says which.
    async fn due(&self) -> Vec<Due> {
        loop {
            let changed = self.changed.notified();
            let next = self.next();
            match next {
                Some(next) if next <= Instant::now() => return self.take_due(Instant::now()),
                Some(next) => tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    pub(super) fn forget(&self, pod: &PodUid) {
        self.lock().retain(|(uid, _), _| uid != pod);
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).remove(pod);
    }

    fn is_first_look(&self, pod: &PodUid) -> bool {
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.clone())
    }

    /// Another container begins under that name.
    async fn begin(&self, pod: &PodUid, container: &str, record: Record) {
        let place = (pod.clone(), container.to_owned());
        if record.classes.is_empty() {
            self.lock().remove(&place);
            self.records.remove(pod, container).await;
            return;
        }
        self.records.write(pod, container, &record).await;
        let now = Instant::now();
        let known = |(class, ClassRecord { interval, hashes }): (String, ClassRecord)| {
            let due = now + self.spread(pod, container, &class, interval);
            (class, Known { interval, due, hashes: Some(hashes) })
        };
        let classes = record.classes.into_iter().map(known).collect();
        let running =
            Running { key: record.key, classes, stale: BTreeSet::new(), is_unknown: false };
        self.lock().insert(place, running);
        self.changed.notify_one();
    }

    /// Up to a fifth later than the class says, so that pods that started together do not restart so.
    fn spread(&self, pod: &PodUid, container: &str, class: &str, interval: Duration) -> Duration {
        let hash = self.key.hash(&[pod.as_str(), container, class].map(str::as_bytes));
        let part = u32::from(u16::from_be_bytes([hash[0], hash[1]]));
        interval + interval / 5 * part / u32::from(u16::MAX)
    }

    fn next(&self) -> Option<Instant> {
        let running = self.lock();
        running.values().flat_map(|it| it.classes.values()).map(|known| known.due).min()
    }

    fn take_due(&self, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        for ((pod, container), running) in self.lock().iter_mut() {
            for (class, known) in running.classes.iter_mut().filter(|(_, known)| known.due <= now) {
                let (pod, container, class) = (pod.clone(), container.clone(), class.clone());
                known.due = now + self.spread(&pod, &container, &class, known.interval);
                due.push(Due { pod, container, class });
            }
        }
        due
    }

    /// The variables whose values are not those that the container was made with. None of them is new if
    /// that is known already. A container of which nothing is known is compared from now on, as often as
    /// `interval` says.
    fn compare(
        &self,
        due: &Due,
        interval: Option<Duration>,
        hashes: impl Fn(&Key) -> BTreeMap<String, Hash>,
    ) -> Vec<String> {
        let mut running = self.lock();
        let place = (due.pod.clone(), due.container.clone());
        let Some(running) = running.get_mut(&place) else { return Vec::new() };
        let Some(known) = running.classes.get_mut(&due.class) else { return Vec::new() };
        // By the key of the container as it is now: it may have been started again while we asked.
        let hashes = hashes(&running.key);
        let Some(before) = &known.hashes else {
            match interval {
                Some(interval) => {
                    known.interval = interval;
                    known.due = Instant::now()
                        + self.spread(&due.pod, &due.container, &due.class, interval);
                    known.hashes = Some(hashes);
                }
                None => drop(running.classes.remove(&due.class)),
            }
            return Vec::new();
        };
        let names = before.keys().chain(hashes.keys());
        let differs = |name: &&String| before.get(*name) != hashes.get(*name);
        let changed: BTreeSet<String> = names.filter(differs).cloned().collect();
        changed.into_iter().filter(|name| running.stale.insert(name.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(PodUid, String), Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Csi {
    /// Remembers what a container is made with, if its pod wants to hear of changes.
    pub(super) async fn remember(&self, asker: Asker<'_>, given: &[(&Group<'_>, Given)]) {
        let container = asker.pod.container(&asker.container.name);
        if !container.is_some_and(is_followed) || !wants_restart(asker.pod) {
            return;
        }
        let key = Key::random();
        let classes = given.iter().filter_map(|(group, given)| {
            let interval = given.refresh_interval?;
            let hashes = hashes(&key, group, given);
            Some((group.class.to_owned(), ClassRecord { interval, hashes }))
        });
        let classes = classes.collect();
        let record = Record::new(key, classes);
        self.rotations.begin(asker.pod.uid(), &asker.container.name, record).await;
    }

    /// Asks what is due, for ever, and wakes the pods whose workers have to look. None waits for another:
    /// a driver that hangs holds up its own values alone. How many calls a driver has at once is limited
    /// where they are made (CSI-42).
    pub(crate) async fn follow_rotations(
        &self,
        pod: impl Fn(&PodUid) -> Option<Arc<Pod>>,
        wake: impl Fn(&PodUid),
    ) {
        let refresh = async |due: Due| {
            if let Some(pod) = pod(&due.pod)
                && self.refresh(&pod, &due).await
            {
                wake(&due.pod);
            }
            due
        };
        let (mut asking, mut under_way) = (FuturesUnordered::new(), HashSet::new());
        loop {
            tokio::select! {
                all = self.rotations.due() => {
                    let free = all.into_iter().filter(|due| under_way.insert(due.clone()));
                    asking.extend(free.map(&refresh));
                }
                Some(done) = asking.next() => {
                    under_way.remove(&done);
                }
            }
        }
    }

    /// Asks a class again for a container that runs. True if the worker of the pod has to look.
    async fn refresh(&self, pod: &Pod, due: &Due) -> bool {
        let container = pod.container(&due.container);
        let Some(found) = container.and_then(|it| pod.environment_of(it.kind, it.name())) else {
            return false;
        };
        let variables = variables(found);
        let groups = groups(&variables);
        let Some(group) = groups.iter().find(|group| group.class == due.class) else {
            return false;
        };
        let asker = Asker { pod, container: found };
        let metrics = self.metrics.csi();
        let count = |result| metrics.rotation(group.driver(), group.class, result);
        let asked = match self.check(asker, group).await {
            // Nobody waits for it, and it comes again by itself.
            Ok(checked) => self.ask(asker, group, &Checked { retries: 0, ..checked }).await,
            Err(error) => Err(error),
        };
        // An optional value that is missing now may be missing because its backend is.
        let Some(given) = asked.ok().filter(|given| given.omitted.is_empty()) else {
            count("failed");
            return false;
        };
        let changed =
            self.rotations.compare(due, given.refresh_interval, |key| hashes(key, group, &given));
        if changed.is_empty() {
            count("unchanged");
            return false;
        }
        let never = container.is_some_and(|it| it.restart_policy(pod) == RestartPolicy::Never);
        count(if never { "kept" } else { "restarted" });
        self.tell_rotation(pod, due, group, &changed, never);
        !never
    }

    fn tell_rotation(
        &self,
        pod: &Pod,
        due: &Due,
        group: &Group<'_>,
        changed: &[String],
        never: bool,
    ) {
        let what = if never {
            "the container keeps the old values, since its restart policy is Never"
        } else {
            "the container is restarted"
        };
        let message = format!(
            "Values of {changed:?} changed: driver {:?}, ProviderClass {:?}, pod {}/{}: {what}",
            group.driver(),
            group.class,
            pod.namespace(),
            pod.name()
        );
        self.recorder.container(pod, &due.container, Kind::Normal, "EnvVarRotated", &message);
    }
}

fn hashes(key: &Key, group: &Group<'_>, given: &Given) -> BTreeMap<String, Hash> {
    let name = |position: usize| {
        let found = group.variables.iter().find(|variable| variable.position == position);
        found.map(|variable| variable.name.to_owned())
    };
    let values = given.values.iter();
    values.filter_map(|(position, value)| Some((name(*position)?, key.hash_value(value)))).collect()
}

/// Others run once.
fn is_followed(container: ContainerRef<'_>) -> bool {
    container.kind == ContainerKind::Regular || container.is_sidecar()
}

fn wants_restart(pod: &Pod) -> bool {
    let annotations = pod.object().metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(RESTART_ON_ROTATION)).is_some_and(|text| text == "true")
}

/// The variables of a container that come from drivers.
fn variables(container: &Container) -> Vec<CsiVariable<'_>> {
    let variables = container.env.iter().enumerate();
    let variables = variables.filter(|(_, variable)| variable.value.is_empty());
    variables
        .filter_map(|(position, variable)| {
            let selector = variable.value_from.as_ref()?.csi_secret_ref.as_ref()?;
            Some(CsiVariable { position, name: &variable.name, selector })
        })
        .collect()
}

#[cfg(test)]
mod tests;
