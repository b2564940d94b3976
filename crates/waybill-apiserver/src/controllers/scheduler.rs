//! Carries changes to the scheduler and its decisions to the pods.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;
use waybill_api::status::Status;

use super::{basics::create_missing, system_user};
use crate::{
    api::Api,
    audit::AuditNotes,
    cache::{Cache, CachedObject, ObjectChange, Watcher},
    document::{at, at_mut, items, put, time},
    query::DryRun,
    registry::find,
    rest::{Change, Part},
    route::ResourceRoute,
    schedule::{Decision, PodKey, PodRef, Scheduler},
};

/// The longest time without a step.
const ROUND: Duration = Duration::from_secs(60);

const USER: &str = "system:kube-scheduler";

pub(super) async fn run(api: Arc<Api>) {
    let cache =
        |group, plural| find(group, "v1", plural).and_then(|it| api.reader.objects.cache(it));
    let (Some(pods), Some(nodes)) = (cache("", "pods"), cache("", "nodes")) else { return };
    let Some(csi_nodes) = cache("storage.k8s.io", "csinodes") else { return };
    // Whoever falls behind starts over with a fresh picture.
    loop {
        let mut scheduler = Scheduler::default();
        let mut node_changes = begin(nodes, |node| note_node(&mut scheduler, node));
        let mut driver_changes =
            begin(csi_nodes, |node| scheduler.drivers_changed(&node.document()));
        let mut pod_changes = begin(pods, |pod| note_pod(&mut scheduler, pod));
        loop {
            for decision in scheduler.step((api.clock)()) {
                carry_out(&api, &mut scheduler, &decision).await;
            }
            let heard = tokio::select! {
                change = pod_changes.next() => change.map(|told| {
                    follow(pods, &told.change, |gone| match gone {
                        Ok(pod) => note_pod(&mut scheduler, &pod),
                        Err(pod) => scheduler.pod_deleted(&PodKey {
                            namespace: pod.key.namespace.to_string(),
                            name: pod.key.name.to_string(),
                        }),
                    });
                }),
                change = node_changes.next() => change.map(|told| {
                    follow(nodes, &told.change, |gone| match gone {
                        Ok(node) => note_node(&mut scheduler, &node),
                        Err(node) => scheduler.node_deleted(&node.key.name),
                    });
                }),
                change = driver_changes.next() => change.map(|told| {
                    follow(csi_nodes, &told.change, |gone| match gone {
                        Ok(node) => scheduler.drivers_changed(&node.document()),
                        Err(node) => scheduler.drivers_deleted(&node.key.name),
                    });
                }),
                () = tokio::time::sleep(wait(&scheduler, (api.clock)())) => Some(()),
            };
            if heard.is_none() {
                break;
            }
        }
    }
}

/// Until the next pod whose binding failed is tried again.
fn wait(scheduler: &Scheduler, now: Timestamp) -> Duration {
    let due = scheduler.next_step().map(|due| due.duration_since(now));
    due.map_or(ROUND, |due| Duration::try_from(due).unwrap_or_default()).min(ROUND)
}

fn begin(cache: &Cache, mut note: impl FnMut(&CachedObject)) -> Watcher {
    let (listing, watcher) = cache.list_and_watch(|_| true);
    listing.objects.iter().for_each(|object| note(object));
    watcher
}

/// Tells what an object is now, or that it is gone.
fn follow(
    cache: &Cache,
    change: &ObjectChange,
    tell: impl FnOnce(Result<Arc<CachedObject>, &CachedObject>),
) {
    match cache.get(&change.object.key) {
        Some(object) => tell(Ok(object)),
        None => tell(Err(&change.object)),
    }
}

fn note_pod(scheduler: &mut Scheduler, pod: &CachedObject) {
    if let Err(error) = scheduler.pod_changed(&pod.document()) {
        tracing::warn!(pod = %pod.key.name, %error, "a pod cannot be scheduled");
    }
}

fn note_node(scheduler: &mut Scheduler, node: &CachedObject) {
    if let Err(error) = scheduler.node_changed(&node.document()) {
        tracing::warn!(node = %node.key.name, %error, "a node cannot be used");
    }
}

async fn carry_out(api: &Arc<Api>, scheduler: &mut Scheduler, decision: &Decision) {
    if is_said(api, decision) {
        return;
    }
    let result = match decision {
        Decision::Bind { pod, node } => bind(api, pod, node).await,
        Decision::Unschedulable { .. } | Decision::Gated { .. } => say(api, decision).await,
    };
    match (result, decision) {
        (Ok(()), _) => {
            if let Err(status) = record(api, decision).await {
                tracing::debug!(message = status.message(), "an event was not recorded");
            }
        }
        (Err(status), Decision::Bind { pod, .. }) => {
            tracing::info!(pod = %pod.key, message = status.message(), "a binding failed");
            scheduler.bind_failed(pod, (api.clock)());
        }
        (Err(status), _) => {
            tracing::debug!(message = status.message(), "a condition was not set");
        }
    }
}

async fn bind(api: &Arc<Api>, pod: &PodRef, node: &str) -> Result<(), Status> {
    let route = route(pod)?;
    let binding = json!({
        "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
        "target": {"kind": "Node", "name": node},
    });
    api.bind_pod(&route, &system_user(USER), &binding, DryRun::No).await
}

/// Whether the pod tells already why it waits. Who starts over decides on every pod anew.
fn is_said(api: &Arc<Api>, decision: &Decision) -> bool {
    let Some(condition) = decision.condition() else { return false };
    let Ok(pod) = route(decision.pod()).and_then(|route| api.reader.get(&route)) else {
        return false;
    };
    let wanted = serde_json::to_value(&condition).unwrap_or_default();
    items(&pod.document(), "/status/conditions").iter().any(|known| {
        ["/type", "/status", "/reason", "/message"]
            .iter()
            .all(|field| at(known, field) == at(&wanted, field))
    })
}

/// Sets the condition that tells why a pod waits.
async fn say(api: &Arc<Api>, decision: &Decision) -> Result<(), Status> {
    let Some(condition) = decision.condition() else { return Ok(()) };
    let route = route(decision.pod())?;
    let user = system_user(USER);
    let change =
        Change { route: &route, user: &user, dry_run: DryRun::No, notes: &AuditNotes::default() };
    let now = time((api.clock)());
    let with_condition = |old: &Value| {
        let mut new = old.clone();
        let mut wanted = serde_json::to_value(&condition).unwrap_or_default();
        put(&mut wanted, "/lastTransitionTime", now.as_str());
        let conditions = at_mut(&mut new, "/status/conditions");
        let Some(list) = conditions.as_array_mut() else {
            *conditions = json!([wanted]);
            return Ok(new);
        };
        match list.iter_mut().find(|known| at(known, "/type") == at(&wanted, "/type")) {
            Some(known) => {
                if at(known, "/status") == at(&wanted, "/status") {
                    put(
                        &mut wanted,
                        "/lastTransitionTime",
                        at(known, "/lastTransitionTime").clone(),
                    );
                }
                *known = wanted;
            }
            None => list.push(wanted),
        }
        Ok(new)
    };
    api.rest.update(change, Part::Status, with_condition).await.map(drop)
}

async fn record(api: &Arc<Api>, decision: &Decision) -> Result<(), Status> {
    let Some(content) = decision.event() else { return Ok(()) };
    let PodRef { key, uid } = decision.pod();
    let now = time((api.clock)());
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{}", key.name, Uuid::new_v4().simple()),
            "namespace": key.namespace,
        },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": key.name, "namespace": key.namespace, "uid": uid,
        },
        "type": content.kind,
        "reason": content.reason,
        "action": content.action,
        "message": content.message,
        "source": {"component": "default-scheduler"},
        "reportingComponent": "default-scheduler",
        "reportingInstance": "waybill",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    });
    create_missing(api, event).await
}

fn route(pod: &PodRef) -> Result<ResourceRoute, Status> {
    Ok(ResourceRoute {
        resource: find("", "v1", "pods").ok_or_else(Status::no_such_path)?,
        namespace: pod.key.namespace.clone(),
        name: pod.key.name.clone(),
        subresource: String::new(),
    })
}
