//! `config.json` of a bundle: whose container it is, and what is in its environment.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

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

    /// Whose it is; `None` when neither containerd nor CRI-O made it for a pod, or both seem to have: CRI-O
    /// passes a pod's own annotations on, and they may look like containerd's.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let by_containerd = self.annotation(CONTAINERD_KEYS[0]);
        let by_crio = self.annotation(CRIO_KEYS[0]);
        let (kind, [_, namespace, pod, uid, container]) = match (by_containerd, by_crio) {
            (Some(kind), None) => (kind, CONTAINERD_KEYS),
            (None, Some(kind)) => (kind, CRIO_KEYS),
            (None, None) | (Some(_), Some(_)) => return None,
        };
        let text = |key: &str| self.annotation(key).map(str::to_owned);
        Some(Identity {
            namespace: text(namespace)?,
            pod: text(pod)?,
            uid: text(uid)?,
            container: if kind == "sandbox" { String::new() } else { text(container)? },
        })
    }

    /// Whether root inside could move processes between cgroups, so that a cgroup proves nothing: with
    /// CAP_SYS_ADMIN, with writable cgroups, or by a user namespace of its own when no filter forbids one.
    pub(crate) fn is_privileged(&self) -> bool {
        let bounding = self.spec.pointer("/process/capabilities/bounding");
        let has_admin = bounding
            .and_then(Value::as_array)
            .is_some_and(|list| list.iter().any(|capability| capability == "CAP_SYS_ADMIN"));
        let mounts = self.spec.get("mounts").and_then(Value::as_array);
        let is_writable = |mount: &Value| {
            let kind = mount.get("type").and_then(Value::as_str);
            let options = mount.get("options").and_then(Value::as_array);
            let read_only = options.is_some_and(|list| list.iter().any(|option| option == "ro"));
            matches!(kind, Some("cgroup" | "cgroup2")) && !read_only
        };
        let filtered =
            self.spec.pointer("/linux/seccomp").is_some_and(|seccomp| !seccomp.is_null());
        has_admin || mounts.is_some_and(|list| list.iter().any(is_writable)) || !filtered
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
        let expected = Identity {
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "main".to_owned(),
        };
        assert_eq!(containerd.identity(), Some(expected.clone()));
        assert_eq!(crio.identity(), Some(expected));
        assert_eq!(bundle(json!({})).identity(), None);
    }

    /// An annotation of a pod must not make it another pod.
    #[test]
    fn a_container_that_seems_to_be_of_both_is_nobodys() {
        let mut spec = json!({"annotations": {}});
        for key in CONTAINERD_KEYS.into_iter().chain(CRIO_KEYS) {
            spec["annotations"][key] = "x".into();
        }
        assert_eq!(bundle(spec).identity(), None);
    }

    #[test]
    fn a_container_that_could_move_processes_is_called_privileged() {
        let seccomp = json!({"defaultAction": "SCMP_ACT_ERRNO"});
        let spec = |capability: &str, option: &str| {
            bundle(json!({
            "process": {"capabilities": {"bounding": [capability]}},
            "mounts": [{"type": "cgroup", "options": [option]}], "linux": {"seccomp": seccomp.clone()}}))
        };
        assert!(!spec("CAP_CHOWN", "ro").is_privileged());
        assert!(spec("CAP_SYS_ADMIN", "ro").is_privileged());
        assert!(spec("CAP_CHOWN", "rw").is_privileged());
        assert!(bundle(json!({"linux": {}})).is_privileged());
    }

    #[test]
    fn references_are_noted_by_name() {
        let mut bundle = bundle(json!({"process": {"env": ["A=1"]}}));
        assert_eq!(bundle.references(), [""; 0]);
        assert!(bundle.set_references(&["A,B".to_owned(), "C".to_owned()]));
        assert_eq!(bundle.references(), ["A,B", "C"]);
    }
}
