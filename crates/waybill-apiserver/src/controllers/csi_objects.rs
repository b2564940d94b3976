//! Objects about CSI drivers that follow others: a CSINode goes with its node, and a driver that gives
//! variables on some node has a CSIDriver for as long.
//!
//! Nodes may not write CSIDrivers, and one of them can only have a driver shown that it says to have. Whoever
//! needs more of a CSIDriver, such as tokens, applies their own over it; what was changed stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};
use waybill_api::{
    node::{AUTOMATIC_DRIVER, ENV_DRIVERS},
    status::Status,
};
use waybill_core::id::DriverName;

use super::actor::{Actor, route_of};
use crate::{
    cache::{Cache, ChangeKind, Watcher},
    document::{at, items, text},
    kinds::{csi_driver::CSI_DRIVERS, csi_node::CSI_NODES, node::NODES},
    write::DeleteOptions,
};

/// No cluster has more kinds of drivers; a node that makes up names is not to fill the store.
const DRIVERS: usize = 100;

/// Before something that failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// What there is to do.
#[derive(Debug, PartialEq)]
enum Act {
    Create(Value),
    Delete(Value),
}

/// Who writes the objects.
pub(super) struct Actors {
    pub(super) drivers: Actor,
    pub(super) garbage: Actor,
}

pub(super) async fn run(actors: Actors) {
    let Some(nodes) = actors.drivers.cache(&NODES) else { return };
    let Some(csi_nodes) = actors.drivers.cache(&CSI_NODES) else { return };
    let Some(drivers) = actors.drivers.cache(&CSI_DRIVERS) else { return };
    // Whoever falls behind starts over with a fresh picture.
    loop {
        let mut changes = [nodes, csi_nodes, drivers].map(|it| it.list_and_watch(|_| false).1);
        loop {
            let failed = round(&actors, nodes, csi_nodes, drivers).await;
            let heard = tokio::select! {
                heard = change(&mut changes) => heard,
                () = tokio::time::sleep(AGAIN), if failed => Some(()),
            };
            if heard.is_none() {
                break;
            }
        }
    }
}

/// Waits for something that matters. A node that only says that it lives does not.
async fn change([nodes, csi_nodes, drivers]: &mut [Watcher; 3]) -> Option<()> {
    loop {
        tokio::select! {
            told = nodes.next() => {
                if told?.change.kind == ChangeKind::Modified {
                    continue;
                }
            }
            told = csi_nodes.next() => drop(told?),
            told = drivers.next() => drop(told?),
        }
        return Some(());
    }
}

/// True if something could not be done.
async fn round(actors: &Actors, nodes: &Cache, csi_nodes: &Cache, drivers: &Cache) -> bool {
    let documents = |cache: &Cache| -> Vec<Value> {
        let all = cache.list("", None, usize::MAX, |_| true).objects;
        all.iter().map(|object| object.document()).collect()
    };
    // The objects that depend on others first: what they name is in the lists that follow.
    let (csi_nodes, drivers) = (documents(csi_nodes), documents(drivers));
    let mut failed = false;
    for act in plan(&documents(nodes), &csi_nodes, &drivers) {
        if let Err(status) = carry_out(actors, act).await {
            tracing::info!(
                message = status.message(),
                "an object about a driver is not as it should"
            );
            failed = true;
        }
    }
    failed
}

async fn carry_out(actors: &Actors, act: Act) -> Result<(), Status> {
    match act {
        Act::Create(object) => actors.drivers.create_missing(object).await,
        Act::Delete(object) => {
            let route = route_of(&object)?;
            // Of the one that was judged, and not of another that has its name by now.
            let options = DeleteOptions {
                uid: text(&object, "/metadata/uid").to_owned(),
                resource_version: text(&object, "/metadata/resourceVersion").to_owned(),
                ..DeleteOptions::default()
            };
            actors.garbage.delete(&route, &options).await
        }
    }
}

fn plan(nodes: &[Value], csi_nodes: &[Value], drivers: &[Value]) -> Vec<Act> {
    let uids: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/metadata/uid")).collect();
    let (orphans, kept): (Vec<_>, Vec<_>) =
        csi_nodes.iter().partition(|object| is_orphan(object, &uids));
    let registered: BTreeSet<&str> = kept.into_iter().flat_map(env_drivers).collect();
    let known: BTreeMap<&str, &Value> =
        drivers.iter().map(|driver| (text(driver, "/metadata/name"), driver)).collect();
    let free = DRIVERS.saturating_sub(known.len());
    let missing = registered.iter().filter(|name| !known.contains_key(*name));
    let over = known
        .iter()
        .filter(|(name, driver)| !registered.contains(*name) && is_untouched(driver))
        .map(|(_, driver)| Act::Delete((*driver).clone()));
    let orphans = orphans.into_iter().map(|object| Act::Delete(object.clone()));
    orphans.chain(missing.take(free).map(|name| Act::Create(driver(name)))).chain(over).collect()
}

/// Whether all of its owners are nodes that are gone, as garbage collectors see it.
fn is_orphan(csi_node: &Value, nodes: &BTreeSet<&str>) -> bool {
    let owners = items(csi_node, "/metadata/ownerReferences");
    let is_gone =
        |owner: &Value| text(owner, "/kind") == "Node" && !nodes.contains(text(owner, "/uid"));
    !owners.is_empty() && owners.iter().all(is_gone)
}

/// Drivers that a node has and that fetch variables.
fn env_drivers(csi_node: &Value) -> Vec<&str> {
    let annotation = at(csi_node, "/metadata/annotations").get(ENV_DRIVERS);
    let able = annotation.and_then(Value::as_str).unwrap_or_default();
    let able: BTreeSet<&str> = able.split(',').map(str::trim).collect();
    let names = items(csi_node, "/spec/drivers").iter().map(|driver| text(driver, "/name"));
    names.filter(|name| able.contains(name) && DriverName::parse(name).is_ok()).collect()
}

fn driver(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name, "annotations": {AUTOMATIC_DRIVER: "true"}},
        // There is nothing to attach, and who says so later must not be refused.
        "spec": {"attachRequired": false},
    })
}

/// Whether it is ours, and nobody has changed what it says.
fn is_untouched(driver: &Value) -> bool {
    at(driver, "/metadata/annotations").get(AUTOMATIC_DRIVER).is_some_and(|it| it == "true")
        && at(driver, "/metadata/generation") == 1
        && items(driver, "/metadata/ownerReferences").is_empty()
}

#[cfg(test)]
mod tests;
