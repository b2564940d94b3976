//! Values of pods that are published to this node: in memory, wiped when the pod's volume goes, and given only for what
//! the API's pod says.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use waybill_api::stock::{Answer, AnsweredValue, AskedValues};
use waybill_core::secret::SecretBytes;

use super::{
    fetch::{Values, key_of},
    pods::KnownPod,
};

/// The kubelet comes again and again; drivers are asked again after this.
const FRESH: Duration = Duration::from_secs(300);

/// What is held, by the UID of the pod.
#[derive(Default)]
pub(super) struct HeldValues {
    pods: Mutex<HashMap<String, Held>>,
}

struct Held {
    volume: String,
    values: Arc<Values>,
    fetched: Instant,
}

impl HeldValues {
    /// Keeps values for as long as the volume is there.
    pub(super) fn insert(&self, uid: &str, volume: &str, values: Values, now: Instant) {
        let held = Held { volume: volume.to_owned(), values: Arc::new(values), fetched: now };
        self.lock().insert(uid.to_owned(), held);
    }

    /// Wipes what came with a volume.
    pub(super) fn forget_volume(&self, volume: &str) {
        self.lock().retain(|_, held| held.volume != volume);
    }

    /// Wipes what a pod has.
    pub(super) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Whether there is nothing to ask drivers for: every reference has a value, and not for long.
    pub(super) fn is_fresh(&self, pod: &KnownPod, now: Instant) -> bool {
        let pods = self.lock();
        pods.get(&pod.uid).is_some_and(|held| {
            now.saturating_duration_since(held.fetched) < FRESH && has_all(&held.values, pod)
        })
    }

    /// Whether every reference has a value, however old.
    pub(super) fn is_complete(&self, pod: &KnownPod) -> bool {
        self.lock().get(&pod.uid).is_some_and(|held| has_all(&held.values, pod))
    }

    /// What the wrapper gets. `pod` is the API's.
    pub(super) fn answer(&self, asked: &AskedValues, pod: Option<&KnownPod>) -> Answer {
        let refused = |error: &str, retry| Answer::Refused { error: error.to_owned(), retry };
        let Some(pod) = pod else {
            return refused("the pod is not known to the agent yet", true);
        };
        let Some(container) = pod.containers.get(&asked.container) else {
            return refused("the pod has no such container", true);
        };
        let values = self.lock().get(&asked.uid).map(|held| Arc::clone(&held.values));
        let Some(values) = values else {
            return refused("the values of the pod are not here yet", true);
        };
        let mut answered = Vec::new();
        for reference in &asked.references {
            let key = (reference.class.clone(), reference.key.clone());
            let declared = container.references.get(&reference.name).map(key_of);
            if declared.as_ref() != Some(&key) {
                return refused("the pod does not have this reference", false);
            }
            let Some(value) = values.get(&key) else {
                return refused("the values of the pod are not here yet", true);
            };
            let value = SecretBytes::copy_of(value.expose());
            answered.push(AnsweredValue { name: reference.name.clone(), value });
        }
        Answer::Values(answered)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_all(values: &Values, pod: &KnownPod) -> bool {
    pod.references().into_iter().all(|reference| values.contains_key(&key_of(reference)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use waybill_api::stock::AskedReference;

    use super::*;

    fn pod() -> KnownPod {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": {"containers": [
                {"name": "main", "env": [{"name": "PASSWORD", "value": "waybill{db/password}"}]},
                {"name": "other", "env": [{"name": "TOKEN", "value": "waybill{db/token}"}]}
            ]}
        });
        KnownPod::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn asked(container: &str, name: &str, key: &str) -> AskedValues {
        let class = "db".to_owned();
        AskedValues {
            version: AskedValues::VERSION,
            uid: "u-1".to_owned(),
            container: container.to_owned(),
            attempt: None,
            references: vec![AskedReference { name: name.to_owned(), class, key: key.to_owned() }],
        }
    }

    fn held() -> HeldValues {
        let held = HeldValues::default();
        let value = |key: &str, value: &[u8]| {
            (("db".to_owned(), key.to_owned()), SecretBytes::copy_of(value))
        };
        let values = Values::from([value("password", b"hunter2"), value("token", b"t")]);
        held.insert("u-1", "v-1", values, Instant::now());
        held
    }

    #[track_caller]
    fn refusal(answer: &Answer) -> (&str, bool) {
        match answer {
            Answer::Refused { error, retry } => (error, *retry),
            Answer::Values(_) => panic!("there are values"),
        }
    }

    #[test]
    fn a_value_is_given_for_the_variable_that_the_pod_has_it_in() {
        let held = held();
        match held.answer(&asked("main", "PASSWORD", "password"), Some(&pod())) {
            Answer::Values(values) => assert!(values[0].value.constant_time_eq(b"hunter2")),
            refused @ Answer::Refused { .. } => panic!("{refused:?}"),
        }
        // An image brought it, or another container has it, or another variable.
        for asked in [
            asked("main", "SMUGGLED", "password"),
            asked("main", "PASSWORD", "token"),
            asked("main", "TOKEN", "token"),
            asked("other", "PASSWORD", "password"),
        ] {
            let answer = held.answer(&asked, Some(&pod()));
            assert_eq!(refusal(&answer), ("the pod does not have this reference", false));
        }
    }

    #[test]
    fn what_is_not_here_yet_may_come() {
        let held = held();
        let question = asked("main", "PASSWORD", "password");
        assert!(refusal(&held.answer(&question, None)).1);
        held.forget_volume("v-2");
        assert!(held.is_complete(&pod()) && held.is_fresh(&pod(), Instant::now()));
        assert!(!held.is_fresh(&pod(), Instant::now() + FRESH));
        held.forget_volume("v-1");
        assert!(refusal(&held.answer(&question, Some(&pod()))).1);
        assert!(!held.is_complete(&pod()));
    }
}
