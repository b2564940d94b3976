//! What `kubectl get pods` makes of a status: the columns READY, STATUS and RESTARTS.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodStatus};

use crate::pod::{ContainerRef, Pod};

/// The three columns.
pub(super) fn row(pod: &Pod, status: &PodStatus) -> String {
    let sidecars = pod.containers().filter(ContainerRef::is_sidecar).count();
    let total = pod.spec().containers.len() + sidecars;
    let mut row = Row { ready: 0, restarts: 0, text: status.phase.clone().unwrap_or_default() };
    if let Some(reason) = &status.reason {
        row.text.clone_from(reason);
    }
    let is_initializing = row.add_init(pod, status);
    if !is_initializing || has(status, "Initialized") {
        row.add_regular(status);
    }
    let is_terminal = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
    if pod.is_deleted() && !is_terminal {
        row.text = "Terminating".to_owned();
    }
    format!("{}/{total} {} {}", row.ready, row.text, row.restarts)
}

struct Row {
    ready: usize,
    restarts: i32,
    text: String,
}

impl Row {
    fn add_init(&mut self, pod: &Pod, status: &PodStatus) -> bool {
        let init: Vec<_> = status.init_container_statuses.iter().flatten().collect();
        for (at, status) in init.iter().enumerate() {
            self.restarts += status.restart_count;
            let state = state(status);
            let is_sidecar = pod.containers().any(|c| c.is_sidecar() && c.name() == status.name);
            if state.terminated.as_ref().is_some_and(|end| end.exit_code == 0) {
                continue;
            }
            if is_sidecar && status.started == Some(true) {
                self.ready += usize::from(status.ready);
                continue;
            }
            let waiting = state.waiting.and_then(|waiting| waiting.reason);
            let waiting = waiting.filter(|reason| reason != "PodInitializing");
            self.text = match state.terminated {
                Some(end) => format!("Init:{}", end.reason.unwrap_or("ExitCode".to_owned())),
                None => match waiting {
                    Some(reason) => format!("Init:{reason}"),
                    None => format!("Init:{at}/{}", init.len()),
                },
            };
            return true;
        }
        false
    }

    fn add_regular(&mut self, status: &PodStatus) {
        let mut runs_any = false;
        for status in status.container_statuses.iter().flatten().rev() {
            self.restarts += status.restart_count;
            let state = state(status);
            if let Some(reason) = state.waiting.and_then(|waiting| waiting.reason) {
                self.text = reason;
            } else if let Some(end) = state.terminated {
                self.text = end.reason.unwrap_or("ExitCode".to_owned());
            } else if status.ready && state.running.is_some() {
                runs_any = true;
                self.ready += 1;
            }
        }
        if self.text == "Completed" && runs_any {
            self.text = if has(status, "Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }
}

fn state(status: &ContainerStatus) -> ContainerState {
    status.state.clone().unwrap_or_default()
}

fn has(status: &PodStatus, kind: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}
