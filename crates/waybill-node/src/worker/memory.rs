//! What a worker remembers between turns. Losing it costs patience, never correctness.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};

use super::back_off::BackOff;
use crate::{cri::resources::ContainerLimits, pod::Pod, status::Waiting};

/// A failed step is tried again after this, and after twice as long each time.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(10);
/// An image that cannot be pulled is tried again as slowly as a container that keeps ending.
const FIRST_PULL_RETRY: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_PULL_RETRY: SignedDuration = SignedDuration::from_secs(300);
/// Resources that could not be changed are tried again after this.
const RESIZE_RETRY: SignedDuration = SignedDuration::from_secs(30);
/// How long a failed pull is shown as an error before it is shown as a pause.
const PULL_ERROR_SHOWN: SignedDuration = SignedDuration::from_secs(1);

/// A container that keeps ending waits.
pub(crate) fn crash_loop(delay: SignedDuration, container: &str, pod: &Pod) -> Waiting {
    let message = format!(
        "back-off {} restarting failed container={container} pod={}",
        shown(delay),
        pod.shown()
    );
    Waiting { reason: "CrashLoopBackOff", message }
}

/// As people write durations: `10s`, `2m40s`.
fn shown(delay: SignedDuration) -> String {
    let seconds = delay.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

/// What probes have found out about one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// Its startup probe passed, or it has none.
    pub(crate) started: bool,
    pub(crate) startup_failed: bool,
    pub(crate) liveness_failed: bool,
}

/// A step that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    waiting: Waiting,
    /// What is shown instead after a moment.
    pause: Option<Waiting>,
    failed: Timestamp,
    delay: SignedDuration,
    retry: Timestamp,
}

/// What one worker remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// When the node first saw the pod, if its status does not say.
    pub(crate) started: Option<Timestamp>,
    /// Why the pod must not go on.
    pub(crate) evicted: Option<Arc<str>>,
    /// Whether the pod was judged when it came: pressure that comes later does not send it away.
    pub(crate) was_judged: bool,
    /// Why the node did not take the pod when it came, for pressure or want of room: reason and message.
    pub(crate) turned_away: Option<(&'static str, String)>,
    /// Why the node does not take the pod: reason and message.
    pub(crate) refused: Option<(&'static str, String)>,
    back_offs: BTreeMap<String, BackOff>,
    failures: BTreeMap<String, Failure>,
    /// Containers that run on values of drivers that are others by now.
    pub(crate) stale: BTreeSet<String>,
    /// Containers that we killed to start them again with a new spec.
    replaced: BTreeSet<String>,
    /// By container id.
    health: BTreeMap<String, Health>,
    /// What the runtime was told that containers may use, by their ids.
    resized: BTreeMap<String, ContainerLimits>,
    /// When it is told again, and why it did not do it, by the same.
    unresized: BTreeMap<String, (Timestamp, String)>,
}

impl Memory {
    pub(crate) fn health(&self, container_id: &str) -> Health {
        self.health.get(container_id).copied().unwrap_or(Health {
            started: false,
            startup_failed: false,
            liveness_failed: false,
        })
    }

    pub(crate) fn set_health(&mut self, health: BTreeMap<String, Health>) {
        self.health = health;
    }

    pub(crate) fn back_off(&self, name: &str) -> Option<BackOff> {
        self.back_offs.get(name).copied()
    }

    pub(crate) fn set_back_off(&mut self, name: &str, back_off: Option<BackOff>) {
        if let Some(back_off) = back_off {
            self.back_offs.insert(name.to_owned(), back_off);
        }
    }

    /// Whether a container was killed only to start again, whatever its restart policy says.
    pub(crate) fn replaces(&self, name: &str) -> bool {
        self.replaced.contains(name)
    }

    pub(crate) fn replace(&mut self, name: &str) {
        self.replaced.insert(name.to_owned());
    }

    /// Whether the runtime has done this, whatever it tells.
    pub(crate) fn was_resized(&self, id: &str, wanted: ContainerLimits) -> bool {
        self.resized.get(id) == Some(&wanted)
    }

    /// When a container whose resources could not be changed is tried again.
    pub(crate) fn resize_retry(&self, id: &str, now: Timestamp) -> Option<Timestamp> {
        self.unresized.get(id).map(|(retry, _)| *retry).filter(|retry| now < *retry)
    }

    /// Why resources of a container are not yet what they shall be.
    pub(crate) fn resize_error(&self) -> Option<&String> {
        self.unresized.values().next().map(|(_, message)| message)
    }

    /// A change of resources was tried.
    pub(crate) fn set_resized(
        &mut self,
        id: &str,
        wanted: ContainerLimits,
        done: Result<(), String>,
        now: Timestamp,
    ) {
        match done {
            Ok(()) => {
                self.resized.insert(id.to_owned(), wanted);
                self.unresized.remove(id);
            }
            Err(message) => {
                self.unresized.insert(id.to_owned(), (now + RESIZE_RETRY, message));
            }
        }
    }

    /// When a container may be tried again, and why it waits until then.
    pub(crate) fn not_before(&self, name: &str, now: Timestamp) -> Option<(Timestamp, Waiting)> {
        let failure = self.failures.get(name).filter(|failure| now < failure.retry)?;
        match &failure.pause {
            None => Some((failure.retry, failure.waiting.clone())),
            Some(pause) => {
                let error_until = failure.failed + PULL_ERROR_SHOWN;
                Some(if now < error_until {
                    (error_until, failure.waiting.clone())
                } else {
                    (failure.retry, pause.clone())
                })
            }
        }
    }

    /// Why the last try failed, if it did. It is shown until a try succeeds, as the kubelet does: who looks while a
    /// container is tried again still learns what is wrong.
    pub(crate) fn last_failure(&self, name: &str) -> Option<&Waiting> {
        let failure = self.failures.get(name)?;
        Some(failure.pause.as_ref().unwrap_or(&failure.waiting))
    }

    /// Whether the last try failed, too.
    pub(crate) fn has_failed(&self, name: &str) -> bool {
        self.failures.contains_key(name)
    }

    /// A step for a container failed.
    pub(crate) fn failed(&mut self, name: &str, waiting: Waiting, now: Timestamp) {
        let delay = self
            .failures
            .get(name)
            .filter(|failure| failure.pause.is_none())
            .map_or(FIRST_RETRY, |failure| (failure.delay * 2).min(LONGEST_RETRY));
        let failure = Failure { waiting, pause: None, failed: now, delay, retry: now + delay };
        self.failures.insert(name.to_owned(), failure);
    }

    /// The image of a container could not be pulled.
    pub(crate) fn pull_failed(
        &mut self,
        name: &str,
        waiting: Waiting,
        image: &str,
        now: Timestamp,
    ) {
        let delay = self
            .failures
            .get(name)
            .filter(|failure| failure.pause.is_some())
            .map_or(FIRST_PULL_RETRY, |failure| (failure.delay * 2).min(LONGEST_PULL_RETRY));
        let message =
            format!("Back-off pulling image {image:?}: {}: {}", waiting.reason, waiting.message);
        let pause = Some(Waiting { reason: "ImagePullBackOff", message });
        let failure = Failure { waiting, pause, failed: now, delay, retry: now + delay };
        self.failures.insert(name.to_owned(), failure);
    }

    /// A container started, so its earlier failures do not matter.
    pub(crate) fn succeeded(&mut self, name: &str) {
        self.replaced.remove(name);
        self.failures.remove(name);
    }

    /// A new spec deserves a new try at once.
    pub(crate) fn forgive(&mut self) {
        self.failures.clear();
        self.unresized.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millisecond: i64) -> Timestamp {
        Timestamp::from_millisecond(millisecond).unwrap()
    }

    fn waiting(reason: &'static str) -> Waiting {
        Waiting { reason, message: "why".into() }
    }

    #[test]
    fn a_step_that_fails_is_tried_again_ever_more_slowly() {
        let mut memory = Memory::default();
        let mut now = at(0);
        for seconds in [1, 2, 4, 8, 10, 10] {
            memory.failed("a", waiting("CreateContainerError"), now);
            let retry = now + SignedDuration::from_secs(seconds);
            assert_eq!(memory.not_before("a", now), Some((retry, waiting("CreateContainerError"))));
            assert_eq!(memory.not_before("a", retry), None);
            now = retry;
        }
        memory.succeeded("a");
        memory.failed("a", waiting("CreateContainerError"), now);
        assert_eq!(memory.not_before("a", now).unwrap().0, now + FIRST_RETRY);
    }

    #[test]
    fn a_failed_pull_shows_its_error_and_then_its_pause() {
        let mut memory = Memory::default();
        memory.pull_failed("a", waiting("ErrImagePull"), "x:1", at(0));
        assert_eq!(memory.not_before("a", at(0)), Some((at(1000), waiting("ErrImagePull"))));
        let (until, pause) = memory.not_before("a", at(1000)).unwrap();
        assert_eq!((until, pause.reason), (at(10_000), "ImagePullBackOff"));
        assert_eq!(pause.message, "Back-off pulling image \"x:1\": ErrImagePull: why");
        memory.pull_failed("a", waiting("ErrImagePull"), "x:1", at(10_000));
        assert_eq!(memory.not_before("a", at(12_000)).unwrap().0, at(30_000));
    }

    #[test]
    fn delays_are_written_as_people_write_them() {
        for (seconds, text) in [(10, "10s"), (60, "1m0s"), (160, "2m40s"), (300, "5m0s")] {
            assert_eq!(shown(SignedDuration::from_secs(seconds)), text);
        }
    }
}
