//! Sandboxes and containers whose records cannot be understood, because a newer runtime wrote them or they are damaged.
//!
//! They are shown, so that nobody makes a second one of them, and left as they are: whatever is asked of one is refused. What is
//! shown is what can be told without understanding the record: fields that every version so far has had (ADR 0044).

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use waybill_proto::cri::{
    Container, ContainerMetadata, ContainerState, ContainerStatus, ContainerStatusResponse,
    PodSandbox, PodSandboxMetadata, PodSandboxState, PodSandboxStatus, PodSandboxStatusResponse,
};

use super::{
    error::CriError,
    record::{self, ContainerRecord},
};

/// What kubelets, and we, write on each container about its pod.
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";

/// A sandbox that is not understood.
#[derive(Debug)]
pub(crate) struct UnknownSandbox {
    pub(crate) shown: PodSandbox,
    reason: String,
}

/// A container that is not understood.
#[derive(Debug)]
pub(crate) struct UnknownContainer {
    pub(crate) shown: Container,
    reason: String,
}

impl UnknownSandbox {
    pub(crate) fn new(id: &str, directory: &Path, reason: String) -> Self {
        let found = look(directory);
        let metadata = found.pointer("/config/metadata").map(|it| PodSandboxMetadata {
            name: text(it, "name"),
            uid: text(it, "uid"),
            namespace: text(it, "namespace"),
            attempt: number(it, "attempt"),
        });
        let stopped = found.get("stopped").and_then(Value::as_bool).unwrap_or(false);
        let shown = PodSandbox {
            id: id.to_owned(),
            metadata,
            state: state(stopped).into(),
            created_at: time(&found),
            labels: map(&found, "/config/labels"),
            annotations: map(&found, "/config/annotations"),
            runtime_handler: text(&found, "runtime_handler"),
        };
        Self { shown, reason }
    }

    /// Takes the name of its pod from one of its containers, if its own record does not tell.
    pub(crate) fn or_named_by(mut self, container: Option<&ContainerRecord>) -> Self {
        let Some(labels) = container.map(|it| &it.config.labels) else { return self };
        if self.shown.metadata.is_none() {
            let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
            self.shown.metadata = Some(PodSandboxMetadata {
                name: label(POD_NAME),
                uid: label(POD_UID),
                namespace: label(POD_NAMESPACE),
                attempt: 0,
            });
            let about_pod = |(name, _): &(&String, &String)| {
                [POD_NAME, POD_NAMESPACE, POD_UID].contains(&name.as_str())
            };
            let about_pod = labels.iter().filter(about_pod);
            self.shown.labels.extend(about_pod.map(|(name, text)| (name.clone(), text.clone())));
        }
        self
    }

    pub(crate) fn error(&self) -> CriError {
        let (id, reason) = (self.shown.id.clone(), self.reason.clone());
        CriError::Unknown { kind: "sandbox", id, reason }
    }

    pub(crate) fn status(
        &self,
        containers_statuses: Vec<ContainerStatus>,
        timestamp: i64,
    ) -> PodSandboxStatusResponse {
        let PodSandbox { id, metadata, state, created_at, labels, annotations, runtime_handler } =
            self.shown.clone();
        let status = PodSandboxStatus {
            id,
            metadata,
            state,
            created_at,
            network: None,
            linux: None,
            labels,
            annotations,
            runtime_handler,
        };
        let info = [("unknown".to_owned(), self.reason.clone())].into();
        PodSandboxStatusResponse { status: Some(status), info, containers_statuses, timestamp }
    }
}

impl UnknownContainer {
    pub(crate) fn new(id: &str, directory: &Path, reason: String) -> Self {
        let found = look(directory);
        let metadata = found
            .pointer("/config/metadata")
            .map(|it| ContainerMetadata { name: text(it, "name"), attempt: number(it, "attempt") });
        let shown = Container {
            id: id.to_owned(),
            pod_sandbox_id: text(&found, "sandbox"),
            metadata,
            image: None,
            image_ref: text(&found, "image_ref"),
            state: ContainerState::ContainerUnknown.into(),
            created_at: time(&found),
            labels: map(&found, "/config/labels"),
            annotations: map(&found, "/config/annotations"),
            image_id: text(&found, "image_id"),
        };
        Self { shown, reason }
    }

    pub(crate) fn error(&self) -> CriError {
        let (id, reason) = (self.shown.id.clone(), self.reason.clone());
        CriError::Unknown { kind: "container", id, reason }
    }

    pub(crate) fn status(&self) -> ContainerStatus {
        let shown = self.shown.clone();
        ContainerStatus {
            id: shown.id,
            metadata: shown.metadata,
            state: shown.state,
            created_at: shown.created_at,
            image: shown.image,
            image_ref: shown.image_ref,
            image_id: shown.image_id,
            reason: "Unknown".to_owned(),
            message: format!("the container is left as it is: {}", self.reason),
            labels: shown.labels,
            annotations: shown.annotations,
            ..ContainerStatus::default()
        }
    }

    pub(crate) fn status_response(&self) -> ContainerStatusResponse {
        ContainerStatusResponse { status: Some(self.status()), info: BTreeMap::new() }
    }
}

/// A sandbox that is not known to be stopped counts as ready: clients make another in place of one that is not.
fn state(stopped: bool) -> PodSandboxState {
    if stopped { PodSandboxState::SandboxNotready } else { PodSandboxState::SandboxReady }
}

/// Whatever can be seen in the record of `directory`.
fn look(directory: &Path) -> Value {
    let text = fs::read(record::file(directory)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn text(found: &Value, field: &str) -> String {
    found.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(found: &Value, field: &str) -> u32 {
    let number = found.get(field).and_then(Value::as_u64).unwrap_or(0);
    u32::try_from(number).unwrap_or(0)
}

fn time(found: &Value) -> i64 {
    found.get("created_at").and_then(Value::as_i64).unwrap_or(0)
}

fn map<M: FromIterator<(String, String)>>(found: &Value, pointer: &str) -> M {
    let pairs = found.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    pairs.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::write(record::file(directory.path()), text).unwrap();
        directory
    }

    /// D15
    #[test]
    fn a_record_of_tomorrow_shows_what_it_shares_with_today() {
        let record = written(
            r#"{"version":9,"id":"c","sandbox":"s","created_at":5,"config":
                {"metadata":{"name":"app","attempt":2},"labels":{"a":"b","n":1}},"new":{}}"#,
        );
        let unknown = UnknownContainer::new("c", record.path(), "it is newer".into());
        let shown = &unknown.shown;
        assert_eq!((shown.pod_sandbox_id.as_str(), shown.created_at), ("s", 5));
        assert_eq!(
            shown.metadata.as_ref().map(|it| (it.name.as_str(), it.attempt)),
            Some(("app", 2))
        );
        assert_eq!(shown.labels.len(), 1);
        let status = unknown.status();
        assert_eq!(status.state(), ContainerState::ContainerUnknown);
        assert!(status.message.ends_with("it is newer"), "{}", status.message);
    }

    #[test]
    fn a_damaged_record_of_a_sandbox_is_named_by_a_container() {
        let record = written("{");
        let mut container = ContainerRecord::plain();
        container.config.labels = [(POD_NAME.to_owned(), "web".to_owned())].into();
        let unknown = UnknownSandbox::new("s", record.path(), "it is damaged".into());
        assert_eq!(unknown.shown.metadata, None);
        let unknown = unknown.or_named_by(Some(&container));
        assert_eq!(unknown.shown.metadata.as_ref().map(|it| it.name.as_str()), Some("web"));
        assert_eq!(unknown.shown.state(), PodSandboxState::SandboxReady);
    }
}
