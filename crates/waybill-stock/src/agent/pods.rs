//! The pods of this node, as the API server has them: what the wrapper is told of each, and which references are theirs.
//!
//! A reference counts only if it is, letter by letter, the value of a variable in the API's pod: an image, or whoever may
//! change what the kubelet asks for, cannot bring one in.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{EnvVar, ExecAction, Lifecycle, LifecycleHandler, Pod, Probe};
use waybill_api::stock::{ContainerFacts, Mode, PodFacts, Reference};
use waybill_core::env::{expand::expand, value::EnvValue};

/// A probe's command is never longer than what a process can be given.
const COMMAND_BYTES: usize = 2 << 20;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) service_account: String,
    /// Its containers of every kind.
    pub(super) containers: BTreeMap<String, KnownContainer>,
}

/// A container of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownContainer {
    pub(super) facts: ContainerFacts,
    /// By the name of the variable.
    pub(super) references: BTreeMap<String, Reference>,
}

impl KnownPod {
    /// Reads a pod; nothing for one that has no name yet.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref()?;
        let mut containers = BTreeMap::new();
        let usual = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        for container in usual {
            let probes =
                [&container.liveness_probe, &container.readiness_probe, &container.startup_probe];
            let known = known(container.env.as_deref(), probes, container.lifecycle.as_ref());
            containers.insert(container.name.clone(), known);
        }
        for container in spec.ephemeral_containers.iter().flatten() {
            let known = known(container.env.as_deref(), [&None, &None, &None], None);
            containers.insert(container.name.clone(), known);
        }
        let account = spec.service_account_name.clone().filter(|name| !name.is_empty());
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            service_account: account.unwrap_or_else(|| "default".to_owned()),
            containers,
        })
    }

    /// What the wrapper is told.
    pub(super) fn facts(&self, mode: Mode) -> PodFacts {
        let facts = |(name, known): (&String, &KnownContainer)| (name.clone(), known.facts.clone());
        PodFacts {
            version: PodFacts::VERSION,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            mode,
            containers: self.containers.iter().map(facts).collect(),
        }
    }

    /// Every reference of the pod once, in order.
    pub(super) fn references(&self) -> Vec<&Reference> {
        let mut all: Vec<_> =
            self.containers.values().flat_map(|container| container.references.values()).collect();
        all.sort_by_key(|reference| (reference.class().as_str(), reference.key()));
        all.dedup();
        all
    }
}

fn known(
    env: Option<&[EnvVar]>,
    probes: [&Option<Probe>; 3],
    lifecycle: Option<&Lifecycle>,
) -> KnownContainer {
    let env = env.unwrap_or_default();
    // Of several variables of one name the last counts, for the kubelet as well.
    let mut references = BTreeMap::new();
    for variable in env {
        let value = variable.value.as_deref().unwrap_or_default();
        match Reference::parse(value) {
            Ok(Some(reference)) => references.insert(variable.name.clone(), reference),
            Ok(None) | Err(_) => references.remove(&variable.name),
        };
    }
    let command = |exec: Option<&ExecAction>| exec.and_then(|exec| exec.command.clone());
    let probes = probes.into_iter().flatten();
    let probes = probes.filter_map(|probe| command(probe.exec.as_ref()));
    let hook = |handler: &LifecycleHandler| command(handler.exec.as_ref());
    let hooks = lifecycle.into_iter().flat_map(|it| [&it.post_start, &it.pre_stop]);
    let facts = ContainerFacts {
        probes: probes.filter_map(|command| expanded(env, &command)).collect(),
        hooks: hooks.flatten().filter_map(hook).collect(),
        references: references.keys().cloned().collect(),
    };
    KnownContainer { facts, references }
}

/// As the kubelet does it for probes: with the literal values alone; one from elsewhere counts as empty.
fn expanded(env: &[EnvVar], command: &[String]) -> Option<Vec<String>> {
    let mut values = HashMap::new();
    for variable in env {
        let value = variable.value.clone().unwrap_or_default();
        values.insert(variable.name.as_bytes(), EnvValue::plain(value.into_bytes()).ok()?);
    }
    let expand = |word: &String| {
        let expanded = expand(word.as_bytes(), |name| values.get(name), COMMAND_BYTES).ok()?;
        String::from_utf8(expanded.expose().to_vec()).ok()
    };
    command.iter().map(expand).collect()
}

/// All pods, and what their namespaces ask for.
pub(super) struct Pods {
    default: Mode,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pods: HashMap<String, KnownPod>,
    /// What namespaces ask for; nothing, for those without the label.
    modes: HashMap<String, Option<Mode>>,
    /// Whether all namespaces were listed once.
    listed: bool,
}

impl State {
    /// What a namespace asks for. One of which nothing is known yet may have asked for the stricter.
    fn mode(&self, namespace: &str, default: Mode) -> Mode {
        self.modes.get(namespace).map_or(Mode::Enforce, |mode| mode.unwrap_or(default))
    }
}

impl Pods {
    pub(super) fn new(default: Mode) -> Self {
        Self { default, state: Mutex::default() }
    }

    pub(super) fn find(&self, uid: &str) -> Option<KnownPod> {
        self.lock().pods.get(uid).cloned()
    }

    /// Takes note of a pod; returns what the wrapper is to be told. Nothing, while nobody knows what namespaces ask for: what an
    /// agent before this one said counts until then.
    pub(super) fn insert(&self, pod: KnownPod) -> Option<PodFacts> {
        let mut state = self.lock();
        let facts = pod.facts(state.mode(&pod.namespace, self.default));
        state.pods.insert(pod.uid.clone(), pod);
        state.listed.then_some(facts)
    }

    pub(super) fn remove(&self, uid: &str) {
        self.lock().pods.remove(uid);
    }

    /// Forgets all pods but these; returns who is gone.
    pub(super) fn retain(&self, living: &[String]) -> Vec<String> {
        let mut state = self.lock();
        let gone =
            state.pods.keys().filter(|uid| !living.contains(uid)).cloned().collect::<Vec<_>>();
        gone.iter().for_each(|uid| drop(state.pods.remove(uid)));
        gone
    }

    /// Takes note of what a namespace asks for, if it has the label; returns the pods that hear of it.
    pub(super) fn set_mode(&self, namespace: &str, mode: Option<Mode>) -> Vec<(String, PodFacts)> {
        let mut state = self.lock();
        let before = state.modes.insert(namespace.to_owned(), mode);
        if before == Some(mode) || !state.listed {
            return Vec::new();
        }
        let mode = mode.unwrap_or(self.default);
        let pods = state.pods.values().filter(|pod| pod.namespace == namespace);
        pods.map(|pod| (pod.uid.clone(), pod.facts(mode))).collect()
    }

    /// These are all namespaces; returns the pods that hear of it.
    pub(super) fn listed(&self, living: &BTreeSet<String>) -> Vec<(String, PodFacts)> {
        let mut state = self.lock();
        state.modes.retain(|namespace, _| living.contains(namespace));
        if std::mem::replace(&mut state.listed, true) {
            return Vec::new();
        }
        let facts = |pod: &KnownPod| pod.facts(state.mode(&pod.namespace, self.default));
        state.pods.values().map(|pod| (pod.uid.clone(), facts(pod))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> KnownPod {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": {
                "containers": [{
                    "name": "main",
                    "env": [
                        {"name": "PORT", "value": "80"},
                        {"name": "PASSWORD", "value": "waybill{db/password}"},
                        {"name": "TWICE", "value": "waybill{db/old}"},
                        {"name": "TWICE", "value": "plain"},
                        {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "LITERAL", "value": "waybill{{db/password}"}
                    ],
                    "livenessProbe": {"exec": {"command": ["check", "$(PORT)", "$(FROM)x", "$(OTHER)", "$$(PORT)"]}},
                    "readinessProbe": {"httpGet": {"port": 80}},
                    "lifecycle": {"preStop": {"exec": {"command": ["stop", "$(PORT)"]}}}
                }],
                "initContainers": [{"name": "init", "env": [{"name": "A", "value": "waybill{db/password}"}]}],
                "ephemeralContainers": [{"name": "debug", "env": [{"name": "B", "value": "waybill{os/x}"}]}]
            }
        });
        KnownPod::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    #[test]
    fn probes_are_expanded_as_the_kubelet_does_and_hooks_are_not() {
        let main = &pod().containers["main"].facts;
        assert_eq!(main.probes, [["check", "80", "x", "$(OTHER)", "$(PORT)"]]);
        assert_eq!(main.hooks, [["stop", "$(PORT)"]]);
        assert_eq!(main.references, ["PASSWORD"]);
    }

    #[test]
    fn references_are_those_of_the_pod_once_each() {
        let pod = pod();
        let all: Vec<_> = pod.references().iter().map(|it| it.to_string()).collect();
        assert_eq!(all, ["waybill{db/password}", "waybill{os/x}"]);
        assert_eq!(pod.service_account, "default");
    }

    #[test]
    fn a_namespace_decides_and_its_pods_hear_of_it() {
        let pods = Pods::new(Mode::Record);
        let all = BTreeSet::from(["shop".to_owned()]);
        pods.set_mode("shop", None);
        assert!(pods.listed(&all).is_empty());
        assert_eq!(pods.insert(pod()).unwrap().mode, Mode::Record);
        let told = pods.set_mode("shop", Some(Mode::Enforce));
        assert_eq!((told.len(), told[0].1.mode), (1, Mode::Enforce));
        assert!(pods.set_mode("shop", Some(Mode::Enforce)).is_empty());
        assert_eq!(pods.insert(pod()).unwrap().mode, Mode::Enforce);
        assert_eq!(pods.set_mode("shop", None)[0].1.mode, Mode::Record);
        assert_eq!(pods.retain(&[]), ["u-1"]);
        assert!(pods.find("u-1").is_none());
    }

    /// A pod of an enforced namespace must not be open for a moment.
    #[test]
    fn what_is_not_known_of_a_namespace_is_taken_for_the_stricter() {
        let pods = Pods::new(Mode::Record);
        assert_eq!(pods.insert(pod()), None, "nobody knows yet what namespaces ask for");
        assert!(pods.set_mode("other", Some(Mode::Record)).is_empty());
        let told = pods.listed(&BTreeSet::from(["other".to_owned()]));
        assert_eq!((told.len(), told[0].1.mode), (1, Mode::Enforce), "a younger one");
        assert_eq!(pods.set_mode("shop", None)[0].1.mode, Mode::Record);
        // One that is gone, and comes back.
        assert!(pods.listed(&BTreeSet::new()).is_empty());
        assert_eq!(pods.insert(pod()).unwrap().mode, Mode::Enforce);
    }
}
