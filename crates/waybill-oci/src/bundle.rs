//! `config.json` of a bundle: whose container it is, and what is in its environment.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use waybill_api::stock::Engine;

/// The annotation in which we note the variables whose references became values. Names only.
pub(crate) const REFERENCES_ANNOTATION: &str = "dev.waybill.references";

/// The description of a container.
#[derive(Debug)]
pub(crate) struct Bundle {
    file: PathBuf,
    spec: Value,
}

/// Whose container it is, as containerd and CRI-O note it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    /// Empty for the sandbox itself.
    pub(crate) container: String,
}

/// Whose container it is, as far as its bundle tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A pod's.
    Pod(Identity),
    /// Nobody made it for a pod.
    Nobody,
    /// Nobody can tell.
    InDoubt,
}

impl Owner {
    /// The pod, if it is one's.
    pub(crate) fn pod(self) -> Option<Identity> {
        match self {
            Self::Pod(identity) => Some(identity),
            Self::Nobody | Self::InDoubt => None,
        }
    }
}

impl Bundle {
    /// Reads `config.json` in `directory`.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        let file = directory.join(CONFIG);
        let text = fs::read(&file)?;
        Self::parse(file, &text)
    }

    /// Reads it unless `word` is nowhere in it, which most bundles can be told by at no cost.
    pub(crate) fn read_if_it_has(directory: &Path, words: &[&str]) -> io::Result<Option<Self>> {
        let file = directory.join(CONFIG);
        let text = fs::read(&file)?;
        if words.iter().all(|word| memchr::memmem::find(&text, word.as_bytes()).is_none()) {
            return Ok(None);
        }
        Self::parse(file, &text).map(Some)
    }

    fn parse(file: PathBuf, text: &[u8]) -> io::Result<Self> {
        Ok(Self { file, spec: serde_json::from_slice(text)? })
    }

    /// Whose it is, as `engine` notes it. Pods bring annotations of their own, which may look like those of the other: where it is
    /// not known who made the bundle, and both seem to have, it is in doubt.
    pub(crate) fn owner(&self, engine: Option<Engine>) -> Owner {
        let engine = match (engine, self.has(CONTAINERD_KEYS), self.has(CRIO_KEYS)) {
            (Some(engine), ..) => engine,
            (None, true, false) => Engine::Containerd,
            (None, false, true) => Engine::Crio,
            (None, false, false) => return Owner::Nobody,
            (None, true, true) => return Owner::InDoubt,
        };
        let keys = match engine {
            Engine::Containerd => CONTAINERD_KEYS,
            Engine::Crio => CRIO_KEYS,
        };
        if !self.has(keys) {
            return Owner::Nobody;
        }
        self.identity(keys).map_or(Owner::InDoubt, Owner::Pod)
    }

    fn has(&self, [kind, ..]: [&str; 5]) -> bool {
        self.annotation(kind).is_some()
    }

    fn identity(&self, [kind, namespace, pod, uid, container]: [&str; 5]) -> Option<Identity> {
        let text = |key: &str| self.annotation(key).map(str::to_owned);
        let is_sandbox = self.annotation(kind) == Some("sandbox");
        Some(Identity {
            namespace: text(namespace)?,
            pod: text(pod)?,
            uid: text(uid)?,
            container: if is_sandbox { String::new() } else { text(container)? },
        })
    }

    /// Its description.
    pub(crate) fn spec(&self) -> &Value {
        &self.spec
    }

    /// Its variables, as `NAME=value`.
    pub(crate) fn env(&self) -> Vec<String> {
        texts(self.spec.pointer("/process/env"))
    }

    /// Gives it other variables.
    pub(crate) fn set_env(&mut self, env: Vec<String>) -> bool {
        let Some(process) = self.spec.get_mut("process").and_then(Value::as_object_mut) else {
            return false;
        };
        process.insert("env".to_owned(), env.into());
        true
    }

    /// The variables whose references became values when it was made.
    pub(crate) fn references(&self) -> Vec<String> {
        let noted = self.annotation(REFERENCES_ANNOTATION);
        noted.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Notes them.
    pub(crate) fn set_references(&mut self, names: &[String]) -> bool {
        let Some(spec) = self.spec.as_object_mut() else { return false };
        let annotations = spec.entry("annotations").or_insert_with(|| json!({}));
        let Some(annotations) = annotations.as_object_mut() else { return false };
        annotations.insert(REFERENCES_ANNOTATION.to_owned(), json!(names).to_string().into());
        true
    }

    /// Replaces the file in one step, for root's eyes only.
    pub(crate) fn write(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.spec)?;
        let beside = self.file.with_extension("json.waybill");
        // Of a call that was killed.
        let _ = fs::remove_file(&beside);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let written = file.write_all(&text).and_then(|()| fs::rename(&beside, &self.file));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.spec.get("annotations")?.get(key)?.as_str()
    }
}

const CONFIG: &str = "config.json";

/// Kind, namespace, pod, life of the pod, container.
const CONTAINERD_KEYS: [&str; 5] = [
    "io.kubernetes.cri.container-type",
    "io.kubernetes.cri.sandbox-namespace",
    "io.kubernetes.cri.sandbox-name",
    "io.kubernetes.cri.sandbox-uid",
    "io.kubernetes.cri.container-name",
];

/// The same for CRI-O.
const CRIO_KEYS: [&str; 5] = [
    "io.kubernetes.cri-o.ContainerType",
    "io.kubernetes.pod.namespace",
    "io.kubernetes.pod.name",
    "io.kubernetes.pod.uid",
    "io.kubernetes.container.name",
];

/// The texts of a list; nothing for anything else.
pub(crate) fn texts(list: Option<&Value>) -> Vec<String> {
    let texts = list.and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(spec: Value) -> Bundle {
        Bundle { file: PathBuf::from("/none"), spec }
    }

    #[test]
    fn containerd_and_cri_o_say_whose_a_container_is() {
        let containerd = bundle(json!({"annotations": {
            "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.container-name": "main",
            "io.kubernetes.cri.sandbox-uid": "u", "io.kubernetes.cri.sandbox-name": "web",
            "io.kubernetes.cri.sandbox-namespace": "ns"}}));
        let crio = bundle(json!({"annotations": {
            "io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.container.name": "main",
            "io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "ns"}}));
        let expected = Owner::Pod(Identity {
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "main".to_owned(),
        });
        for engine in [None, Some(Engine::Containerd)] {
            assert_eq!(containerd.owner(engine), expected);
        }
        for engine in [None, Some(Engine::Crio)] {
            assert_eq!(crio.owner(engine), expected);
        }
        assert_eq!(containerd.owner(Some(Engine::Crio)), Owner::Nobody);
        assert_eq!(bundle(json!({})).owner(None), Owner::Nobody);
    }

    /// An annotation of a pod must not make it another pod, nor nobody's.
    #[test]
    fn annotations_that_a_pod_brings_count_for_nothing() {
        let mut spec = json!({"annotations": {}});
        for (keys, value) in [(CONTAINERD_KEYS, "brought"), (CRIO_KEYS, "made")] {
            keys.iter().for_each(|key| spec["annotations"][key] = value.into());
        }
        assert_eq!(bundle(spec.clone()).owner(None), Owner::InDoubt);
        let owner = bundle(spec.clone()).owner(Some(Engine::Crio)).pod().unwrap();
        assert_eq!((owner.pod, owner.uid), ("made".to_owned(), "made".to_owned()));
        let owner = bundle(spec).owner(Some(Engine::Containerd)).pod().unwrap();
        assert_eq!(owner.pod, "brought");
        let half = bundle(json!({"annotations": {CRIO_KEYS[0]: "container"}}));
        assert_eq!(half.owner(Some(Engine::Crio)), Owner::InDoubt);
    }

    #[test]
    fn references_are_noted_by_name() {
        let mut bundle = bundle(json!({"process": {"env": ["A=1"]}}));
        assert_eq!(bundle.references(), [""; 0]);
        assert!(bundle.set_references(&["A,B".to_owned(), "C".to_owned()]));
        assert_eq!(bundle.references(), ["A,B", "C"]);
    }
}
