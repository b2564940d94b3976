//! Records and states in CRI's terms.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use waybill_proto::cri::{
    Container, ContainerResources, ContainerState, ContainerStatus, ContainerUser, ImageSpec,
    LinuxContainerUser, LinuxPodSandboxStatus, Namespace, PodSandbox, PodSandboxState,
    PodSandboxStatus,
};

use super::{
    record::{ContainerRecord, SandboxRecord},
    signals,
};
use crate::engine::{Exit, ExitCause, State};

/// For a program that could not be started, as kubelets know it from containerd.
const START_ERROR_CODE: i32 = 128;

/// Where a container stands, as CRI tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: ContainerState,
    pub(crate) pid: Option<i32>,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Standing {
    fn new(state: ContainerState) -> Self {
        Self {
            state,
            pid: None,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: "",
            message: String::new(),
        }
    }

    /// `state` is what the engine says, if it knows the container.
    pub(crate) fn of(record: &ContainerRecord, state: Option<&State>) -> Self {
        if let Some(error) = &record.start_error {
            return Self {
                finished_at: error.at,
                exit_code: START_ERROR_CODE,
                reason: "StartError",
                message: error.message.clone(),
                ..Self::new(ContainerState::ContainerExited)
            };
        }
        match state {
            None => Self {
                exit_code: 255,
                reason: "Unknown",
                message: "the engine does not know the container".to_owned(),
                ..Self::new(ContainerState::ContainerUnknown)
            },
            Some(State::Created) => Self::new(ContainerState::ContainerCreated),
            Some(State::Running { pid, started_at }) => Self {
                pid: Some(*pid),
                started_at: nanoseconds(*started_at),
                ..Self::new(ContainerState::ContainerRunning)
            },
            Some(State::Exited(exit)) => Self::exited(exit),
            // It has not ended, and clients remove what is told to be unknown.
            Some(State::Silent) => Self {
                started_at: record.created_at,
                message: "its monitor has not told yet how far it is".to_owned(),
                ..Self::new(ContainerState::ContainerRunning)
            },
            Some(State::Unknown { reason }) => Self {
                reason: "Unknown",
                message: format!("the container is left as it is: {reason}"),
                ..Self::new(ContainerState::ContainerUnknown)
            },
        }
    }

    fn exited(exit: &Exit) -> Self {
        let (reason, message) = match exit.cause {
            ExitCause::OutOfMemory => ("OOMKilled", ""),
            ExitCause::MonitorLost => (
                "MonitorLost",
                "the container's monitor died, so the container was killed; how it would have \
                 ended is not known",
            ),
            ExitCause::Own if exit.code == 0 => ("Completed", ""),
            ExitCause::Own => ("Error", ""),
        };
        Self {
            started_at: exit.started_at.map_or(0, nanoseconds),
            finished_at: nanoseconds(exit.finished_at),
            exit_code: exit.code,
            reason,
            message: message.to_owned(),
            ..Self::new(ContainerState::ContainerExited)
        }
    }
}

pub(crate) fn container(record: &ContainerRecord, standing: &Standing) -> Container {
    Container {
        id: record.id.clone(),
        pod_sandbox_id: record.sandbox.clone(),
        metadata: record.config.metadata.clone(),
        image: Some(image_spec(record)),
        image_ref: record.image_ref.clone(),
        state: standing.state.into(),
        created_at: record.created_at,
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        image_id: record.image_id.clone(),
    }
}

pub(crate) fn container_status(record: &ContainerRecord, standing: Standing) -> ContainerStatus {
    let user = LinuxContainerUser {
        uid: record.user.uid.into(),
        gid: record.user.gid.into(),
        supplemental_groups: record.user.groups.iter().map(|&id| id.into()).collect(),
    };
    let resources = ContainerResources { linux: Some(record.resources.clone()), windows: None };
    ContainerStatus {
        id: record.id.clone(),
        metadata: record.config.metadata.clone(),
        state: standing.state.into(),
        created_at: record.created_at,
        started_at: standing.started_at,
        finished_at: standing.finished_at,
        exit_code: standing.exit_code,
        image: Some(image_spec(record)),
        image_ref: record.image_ref.clone(),
        reason: standing.reason.to_owned(),
        message: standing.message,
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        mounts: record.config.mounts.clone(),
        log_path: record.log.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        resources: Some(resources),
        image_id: record.image_id.clone(),
        user: Some(ContainerUser { linux: Some(user) }),
        stop_signal: signals::to_cri(record.stop_signal).into(),
    }
}

/// More than CRI has a field for. Variables are named and never shown.
pub(crate) fn container_info(record: &ContainerRecord, standing: &Standing) -> String {
    json!({
        "sandboxID": record.sandbox,
        "pid": standing.pid,
        "config": record.config,
        "envNames": record.env_names,
        "stopSignal": record.stop_signal,
        "logPath": record.log,
    })
    .to_string()
}

/// Kubelets ask for an image by its id, and show people the name that is told here.
fn image_spec(record: &ContainerRecord) -> ImageSpec {
    let asked = record.config.image.clone().unwrap_or_default();
    match &record.image_tag {
        Some(tag) => ImageSpec { image: tag.clone(), ..asked },
        None => asked,
    }
}

pub(crate) fn sandbox_state(record: &SandboxRecord) -> PodSandboxState {
    if record.stopped { PodSandboxState::SandboxNotready } else { PodSandboxState::SandboxReady }
}

pub(crate) fn sandbox(record: &SandboxRecord) -> PodSandbox {
    PodSandbox {
        id: record.id.clone(),
        metadata: record.config.metadata.clone(),
        state: sandbox_state(record).into(),
        created_at: record.created_at,
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        runtime_handler: record.runtime_handler.clone(),
    }
}

pub(crate) fn sandbox_status(record: &SandboxRecord) -> PodSandboxStatus {
    let options = record.namespace_options();
    PodSandboxStatus {
        id: record.id.clone(),
        metadata: record.config.metadata.clone(),
        state: sandbox_state(record).into(),
        created_at: record.created_at,
        // A network of its own has a loopback device only, so there is no address to tell. None is told rather than an
        // empty one: kubelets take that for a sandbox that lost its network, and make another.
        network: None,
        linux: Some(LinuxPodSandboxStatus {
            namespaces: Some(Namespace { options: Some(options) }),
        }),
        labels: record.config.labels.clone(),
        annotations: record.config.annotations.clone(),
        runtime_handler: record.runtime_handler.clone(),
    }
}

pub(crate) fn sandbox_info(record: &SandboxRecord) -> String {
    json!({
        "config": record.config,
        "namespaces": record.namespaces,
        "cgroupParent": record.cgroup_parent,
        "runtimeHandler": record.runtime_handler,
    })
    .to_string()
}

/// Nanoseconds since 1970; a clock that stands before that is taken for 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use waybill_proto::cri::{ContainerConfig, KeyValue, LinuxContainerResources};

    use super::*;
    use crate::cri::record::{RecordedUser, StartError};

    fn record() -> ContainerRecord {
        ContainerRecord {
            id: "c".into(),
            sandbox: "s".into(),
            created_at: 1,
            config: ContainerConfig {
                envs: vec![KeyValue { key: "HIDDEN".into(), value: b"hunter2".to_vec() }],
                ..ContainerConfig::default()
            },
            env_names: vec!["PATH".into()],
            image_id: String::new(),
            image_ref: String::new(),
            image_tag: None,
            log: None,
            user: RecordedUser { uid: 1, gid: 2, groups: vec![2] },
            resources: LinuxContainerResources::default(),
            stop_signal: 15,
            start_error: None,
            removing: false,
        }
    }

    /// Kubelets ask for `sha256:…`, and `kubectl describe` shows what is told here.
    #[test]
    fn a_container_is_told_with_the_name_of_its_image() {
        let asked = ImageSpec { image: "sha256:1".into(), ..ImageSpec::default() };
        let config = ContainerConfig { image: Some(asked), ..ContainerConfig::default() };
        let nameless = ContainerRecord { config, ..record() };
        assert_eq!(image_spec(&nameless).image, "sha256:1");
        let named = ContainerRecord { image_tag: Some("example.com/a:1".into()), ..nameless };
        assert_eq!(image_spec(&named).image, "example.com/a:1");
    }

    fn exit(code: i32, cause: ExitCause) -> State {
        let finished_at = UNIX_EPOCH + Duration::from_secs(2);
        State::Exited(Exit { code, cause, started_at: Some(UNIX_EPOCH), finished_at })
    }

    #[track_caller]
    fn check(state: Option<&State>, expected: (ContainerState, i32, &str)) {
        let standing = Standing::of(&record(), state);
        assert_eq!((standing.state, standing.exit_code, standing.reason), expected);
    }

    #[test]
    fn the_reason_says_how_it_ended() {
        let exited = ContainerState::ContainerExited;
        check(Some(&exit(0, ExitCause::Own)), (exited, 0, "Completed"));
        check(Some(&exit(3, ExitCause::Own)), (exited, 3, "Error"));
        check(Some(&exit(137, ExitCause::OutOfMemory)), (exited, 137, "OOMKilled"));
        check(Some(&exit(255, ExitCause::MonitorLost)), (exited, 255, "MonitorLost"));
        check(Some(&State::Created), (ContainerState::ContainerCreated, 0, ""));
        check(None, (ContainerState::ContainerUnknown, 255, "Unknown"));
        let running = State::Running { pid: 5, started_at: UNIX_EPOCH };
        check(Some(&running), (ContainerState::ContainerRunning, 0, ""));
    }

    #[test]
    fn a_failed_start_is_an_end() {
        let error = StartError { at: 9, message: "no such file".into() };
        let record = ContainerRecord { start_error: Some(error), ..record() };
        let standing = Standing::of(&record, Some(&State::Created));
        assert_eq!(standing.state, ContainerState::ContainerExited);
        let told = (standing.finished_at, standing.exit_code, standing.reason);
        assert_eq!(told, (9, 128, "StartError"));
    }

    /// D9: the verbose status names variables, shows no value, and is silent about hidden names.
    #[test]
    fn verbose_status_shows_no_value() {
        let info = container_info(&record(), &Standing::of(&record(), None));
        assert!(info.contains("PATH"));
        assert!(!info.contains("HIDDEN") && !info.contains("hunter2"), "{info}");
    }
}
