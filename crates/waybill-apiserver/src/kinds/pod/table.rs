//! The row of a pod.
//!
//! Its status is one word for all containers, and the word that users know: phase, unless an init
//! container is under way, unless a container waits or has ended, unless the pod is on its way out.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table::{
    Table,
    age::since,
    cells::{age, name},
    columns::{self, Column},
    read::{condition_holds, flag, list, number, text, text_or, time},
};

pub(super) const TABLE: Table = Table {
    columns: &[
        columns::NAME,
        Column::new("Ready", "How many of the pod's containers are ready."),
        Column::new("Status", "What the containers of this pod are doing, in a word."),
        Column::new("Restarts", "How often the containers restarted, and when last."),
        columns::AGE,
        Column::new("IP", "Address of the pod.").wide(),
        Column::new("Node", "Node that the pod is bound to.").wide(),
        Column::new("Nominated Node", "Node where others make room for the pod.").wide(),
        Column::new("Readiness Gates", "How many of the pod's readiness gates are open.").wide(),
    ],
    cells,
    conditions: Some(row_conditions),
};

/// The cells of `pod`.
fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let address = match text(pod, "/status/podIPs/0/ip") {
        "" => text_or(pod, "/status/podIP", "<none>"),
        address => address,
    };
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.status.into(),
        summary.restarts.to_text(now).into(),
        age(pod, now),
        address.into(),
        text_or(pod, "/spec/nodeName", "<none>").into(),
        text_or(pod, "/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

/// The conditions of the row of a pod that has ended, by which clients filter.
fn row_conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([
        {"type": "Completed", "status": "True", "reason": reason, "message": message},
    ]))
}

struct Summary {
    ready: usize,
    total: usize,
    restarts: Restarts,
    status: String,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let sidecars = list(pod, "/spec/initContainers").iter().filter(|c| is_sidecar(c)).count();
        let init = InitProgress::of(pod);
        let mut summary = Self {
            ready: init.ready_sidecars,
            total: list(pod, "/spec/containers").len() + sidecars,
            restarts: init.restarts,
            status: phase_or_reason(pod).to_owned(),
        };
        let initialized = condition_holds(pod, "/status/conditions", "Initialized");
        if init.under_way.is_none() || initialized {
            summary.restarts = init.sidecar_restarts;
        }
        match init.under_way {
            Some(status) if !initialized => summary.status = status,
            Some(status) => {
                summary.status = status;
                summary.add_containers(pod);
            }
            None => summary.add_containers(pod),
        }
        if !text(pod, "/metadata/deletionTimestamp").is_empty() {
            if text(pod, "/status/reason") == "NodeLost" {
                summary.status = "Unknown".to_owned();
            } else if !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded") {
                summary.status = "Terminating".to_owned();
            }
        }
        summary
    }

    /// From the last container to the first, so that the first one with something to say wins.
    fn add_containers(&mut self, pod: &Value) {
        let mut running = false;
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                self.status = waiting.to_owned();
            } else if let Some(ended) = Ended::of(container) {
                self.status = ended.text();
            } else if flag(container, "/ready") && has_state(container, "running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && running {
            let ready = condition_holds(pod, "/status/conditions", "Ready");
            self.status = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
}

/// How far the init containers have come.
#[derive(Default)]
struct InitProgress {
    /// The status that the first unfinished one gives the pod.
    under_way: Option<String>,
    ready_sidecars: usize,
    /// Of all init containers up to there.
    restarts: Restarts,
    /// Of those that go on beside the containers.
    sidecar_restarts: Restarts,
}

impl InitProgress {
    fn of(pod: &Value) -> Self {
        let specs = list(pod, "/spec/initContainers");
        let mut progress = Self::default();
        for (position, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            let name = text(container, "/name");
            let spec = specs.iter().find(|spec| text(spec, "/name") == name);
            let sidecar = spec.is_some_and(is_sidecar);
            progress.restarts.add(container);
            if sidecar {
                progress.sidecar_restarts.add(container);
            }
            let ended = Ended::of(container);
            if ended.as_ref().is_some_and(|ended| ended.exit_code == 0) {
                continue;
            }
            if sidecar && flag(container, "/started") {
                progress.ready_sidecars += usize::from(flag(container, "/ready"));
                continue;
            }
            let what = match (ended, text(container, "/state/waiting/reason")) {
                (Some(ended), _) => ended.text(),
                (None, "" | "PodInitializing") => format!("{position}/{}", specs.len()),
                (None, waiting) => waiting.to_owned(),
            };
            progress.under_way = Some(format!("Init:{what}"));
            break;
        }
        progress
    }
}

/// How a container ended.
struct Ended<'a> {
    reason: &'a str,
    signal: i64,
    exit_code: i64,
}

impl<'a> Ended<'a> {
    fn of(container: &'a Value) -> Option<Self> {
        has_state(container, "terminated").then(|| Self {
            reason: text(container, "/state/terminated/reason"),
            signal: number(container, "/state/terminated/signal"),
            exit_code: number(container, "/state/terminated/exitCode"),
        })
    }

    fn text(&self) -> String {
        match self {
            Self { reason: "", signal: 0, exit_code } => format!("ExitCode:{exit_code}"),
            Self { reason: "", signal, .. } => format!("Signal:{signal}"),
            Self { reason, .. } => (*reason).to_owned(),
        }
    }
}

/// How often containers restarted, and when one did last.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(container, "/restartCount"));
        self.last = self.last.max(time(container, "/lastState/terminated/finishedAt"));
    }

    fn to_text(&self, now: Timestamp) -> String {
        match (self.count, self.last) {
            (count @ 1.., Some(last)) => format!("{count} ({} ago)", since(Some(last), now)),
            (count, _) => count.to_string(),
        }
    }
}

fn phase_or_reason(pod: &Value) -> &str {
    let gated = list(pod, "/status/conditions").iter().any(|condition| {
        text(condition, "/type") == "PodScheduled"
            && text(condition, "/reason") == "SchedulingGated"
    });
    if gated {
        return "SchedulingGated";
    }
    text_or(pod, "/status/reason", text(pod, "/status/phase"))
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    let open =
        |gate: &&Value| condition_holds(pod, "/status/conditions", text(gate, "/conditionType"));
    match gates {
        [] => "<none>".to_owned(),
        _ => format!("{}/{}", gates.iter().filter(open).count(), gates.len()),
    }
}

/// An init container that restarts always keeps running beside the others.
fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

fn has_state(container: &Value, state: &str) -> bool {
    container.get("state").and_then(|states| states.get(state)).is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests;
