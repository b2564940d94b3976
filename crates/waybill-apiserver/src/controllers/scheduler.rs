//! Carries changes to the scheduler and its decisions to the pods.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;
use waybill_api::status::Status;

use super::actor::Actor;
use crate::{
    cache::{Cache, CachedObject, ObjectChange, Watcher},
    document::{at, at_mut, items, put, time},
    kinds::{csi_node::CSI_NODES, node::NODES, pod::PODS},
    route::ResourceRoute,
    schedule::{Decision, PodCondition, PodKey, PodRef, Scheduler},
    write::Part,
};

/// The longest time without a step.
const ROUND: Duration = Duration::from_secs(60);

pub(super) async fn run(actor: Actor) {
    let (Some(pods), Some(nodes)) = (actor.cache(&PODS), actor.cache(&NODES)) else { return };
    let Some(csi_nodes) = actor.cache(&CSI_NODES) else { return };
    // Whoever falls behind starts over with a fresh picture.
    loop {
        let mut scheduler = Scheduler::default();
        let mut node_changes = begin(nodes, |node| note_node(&mut scheduler, node));
        let mut driver_changes =
            begin(csi_nodes, |node| scheduler.drivers_changed(&node.content()));
        let mut pod_changes = begin(pods, |pod| note_pod(&mut scheduler, pod));
        loop {
            for decision in scheduler.step(actor.now()) {
                carry_out(&actor, &mut scheduler, &decision).await;
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
                        Ok(node) => scheduler.drivers_changed(&node.content()),
                        Err(node) => scheduler.drivers_deleted(&node.key.name),
                    });
                }),
                () = tokio::time::sleep(wait(&scheduler, actor.now())) => Some(()),
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
    if let Err(error) = scheduler.pod_changed(&pod.content()) {
        tracing::warn!(pod = %pod.key.name, %error, "a pod cannot be scheduled");
    }
}

fn note_node(scheduler: &mut Scheduler, node: &CachedObject) {
    if let Err(error) = scheduler.node_changed(&node.content()) {
        tracing::warn!(node = %node.key.name, %error, "a node cannot be used");
    }
}

async fn carry_out(actor: &Actor, scheduler: &mut Scheduler, decision: &Decision) {
    if is_said(actor, decision) {
        return;
    }
    let result = match decision {
        Decision::Bind { pod, node } => bind(actor, pod, node).await,
        Decision::Unschedulable { .. } | Decision::Gated { .. } => say(actor, decision).await,
    };
    match (result, decision) {
        (Ok(()), _) => {
            if let Err(status) = record(actor, decision).await {
                tracing::debug!(message = status.message(), "an event was not recorded");
            }
        }
        (Err(status), Decision::Bind { pod, .. }) => {
            tracing::info!(pod = %pod.key, message = status.message(), "a binding failed");
            scheduler.bind_failed(pod, actor.now());
        }
        (Err(status), _) => {
            tracing::debug!(message = status.message(), "a condition was not set");
        }
    }
}

async fn bind(actor: &Actor, pod: &PodRef, node: &str) -> Result<(), Status> {
    let route = route(pod);
    let binding = json!({
        "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
        "target": {"kind": "Node", "name": node},
    });
    actor.bind(&route, binding).await
}

/// Whether the pod tells already why it waits. Who starts over decides on every pod anew.
fn is_said(actor: &Actor, decision: &Decision) -> bool {
    let Some(condition) = decision.condition() else { return false };
    let Some(pod) = actor.get(&route(decision.pod())) else {
        return false;
    };
    let pod = pod.content();
    let wanted = about(&condition, &pod);
    items(&pod, "/status/conditions").iter().any(|known| {
        ["/type", "/status", "/reason", "/message", "/observedGeneration"]
            .iter()
            .all(|field| at(known, field) == at(&wanted, field))
    })
}

/// The condition as one of `pod` as it is: it says which generation it is about.
fn about(condition: &PodCondition, pod: &Value) -> Value {
    let mut condition = serde_json::to_value(condition).unwrap_or_default();
    let generation = at(pod, "/metadata/generation");
    if !generation.is_null() {
        put(&mut condition, "/observedGeneration", generation.clone());
    }
    condition
}

/// Sets the condition that tells why a pod waits.
async fn say(actor: &Actor, decision: &Decision) -> Result<(), Status> {
    let Some(condition) = decision.condition() else { return Ok(()) };
    let route = route(decision.pod());
    let now = time(actor.now());
    let with_condition = |old: &Value| {
        let mut new = old.clone();
        let mut wanted = about(&condition, old);
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
    actor.update(&route, Part::Status, with_condition).await
}

async fn record(actor: &Actor, decision: &Decision) -> Result<(), Status> {
    let Some(content) = decision.event() else { return Ok(()) };
    let PodRef { key, uid } = decision.pod();
    let now = time(actor.now());
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
    actor.create_missing(event).await
}

fn route(pod: &PodRef) -> ResourceRoute {
    ResourceRoute::to(&PODS, &pod.key.namespace, &pod.key.name)
}
