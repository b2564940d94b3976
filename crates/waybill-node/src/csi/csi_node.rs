//! The CSINode object: which drivers this node has, for the scheduler and for whoever looks.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::Node,
        storage::v1::{CSINode, CSINodeDriver, CSINodeSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::watch, time::timeout};
use tracing::{debug, info, warn};
use waybill_api::node::ENV_DRIVERS;
use waybill_core::{chain::Chain, id::DriverName};

use super::drivers::Registered;
use crate::retry::Pauses;

/// The API server is near, or it is tried again.
const LONGEST: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often it is looked whether the object still says what was written. Nodes may not watch it.
pub(super) const LOOK: Duration = Duration::from_secs(30);

/// Keeps the object of one node.
pub(crate) struct CsiNodeKeeper {
    client: Client,
    node: String,
    drivers: watch::Receiver<BTreeMap<DriverName, Registered>>,
    look: Duration,
}

impl CsiNodeKeeper {
    pub(super) fn new(
        client: Client,
        node: &str,
        drivers: watch::Receiver<BTreeMap<DriverName, Registered>>,
        look: Duration,
    ) -> Self {
        Self { client, node: node.to_owned(), drivers, look }
    }

    /// Writes what there is, each change, and all of it again if somebody deletes or changes the object.
    pub(crate) async fn run(mut self) {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let drivers = self.drivers.borrow_and_update().clone();
            match timeout(LONGEST, self.write(&drivers)).await {
                Ok(Ok(())) => {
                    info!(drivers = drivers.len(), "CSINode says which drivers there are");
                    pauses.reset();
                    if self.outdated(&drivers).await.is_err() {
                        return;
                    }
                }
                // The node's own object may not be there yet, nor an API server that has the kind.
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    debug!(error = %status.message, "CSINode cannot be written yet");
                    self.pause(&mut pauses).await;
                }
                Ok(Err(error)) => {
                    warn!(error = %Chain(&error), "CSINode cannot be written, and is tried again");
                    self.pause(&mut pauses).await;
                }
                Err(_) => {
                    let limit = LONGEST.as_secs();
                    warn!(limit, "CSINode cannot be written in time, and is tried again");
                    self.pause(&mut pauses).await;
                }
            }
        }
    }

    /// Waits until there is something to write; fails when the node ends.
    async fn outdated(
        &mut self,
        written: &BTreeMap<DriverName, Registered>,
    ) -> Result<(), watch::error::RecvError> {
        let objects: Api<CSINode> = Api::all(self.client.clone());
        loop {
            if let Ok(changed) = timeout(self.look, self.drivers.changed()).await {
                return changed;
            }
            match timeout(LONGEST, objects.get_opt(&self.node)).await {
                Ok(Ok(Some(found))) if says(&found, written) => {}
                Ok(Ok(_)) => {
                    info!("CSINode is not as it was written, and is written again");
                    return Ok(());
                }
                // Who cannot be asked cannot be told either.
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }

    /// What changes meanwhile may be what was in the way.
    async fn pause(&mut self, pauses: &mut Pauses) {
        let _ = timeout(pauses.next(), self.drivers.changed()).await;
    }

    async fn write(&self, drivers: &BTreeMap<DriverName, Registered>) -> Result<(), kube::Error> {
        let objects: Api<CSINode> = Api::all(self.client.clone());
        let (list, injecting) = (list(drivers), env_drivers(drivers));
        match self.patch(&objects, &list, &injecting).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            // An entry cannot change: it has to go before it comes again.
            Err(kube::Error::Api(status)) if status.code == 422 => {
                let stored = objects.get(&self.node).await?.spec.drivers;
                let same = |driver: &CSINodeDriver| stored.iter().any(|it| is_same(it, driver));
                let staying: Vec<_> = list.iter().filter(|it| same(it)).cloned().collect();
                self.patch(&objects, &staying, &injecting).await?;
                return self.patch(&objects, &list, &injecting).await;
            }
            other => return other,
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let owner = nodes.get(&self.node).await?;
        let object = CSINode {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                annotations: Some([(ENV_DRIVERS.to_owned(), injecting)].into()),
                // It goes with the node.
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: self.node.clone(),
                    uid: owner.metadata.uid.unwrap_or_default(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: CSINodeSpec { drivers: list },
            ..CSINode::default()
        };
        objects.create(&PostParams::default(), &object).await.map(drop)
    }

    async fn patch(
        &self,
        objects: &Api<CSINode>,
        list: &[CSINodeDriver],
        injecting: &str,
    ) -> Result<(), kube::Error> {
        let patch = json!({
            "metadata": {"annotations": {ENV_DRIVERS: injecting}},
            "spec": {"drivers": list},
        });
        let params = PatchParams::default();
        objects.patch(&self.node, &params, &Patch::Merge(patch)).await.map(drop)
    }
}

/// Whether the object says which drivers there are.
fn says(object: &CSINode, drivers: &BTreeMap<DriverName, Registered>) -> bool {
    let (wanted, found) = (list(drivers), &object.spec.drivers);
    let annotations = object.metadata.annotations.as_ref();
    let injecting = annotations.and_then(|all| all.get(ENV_DRIVERS));
    wanted.len() == found.len()
        && wanted.iter().all(|wanted| found.iter().any(|found| is_same(wanted, found)))
        && injecting.is_some_and(|it| *it == env_drivers(drivers))
}

/// Whether an entry may stay as it is.
fn is_same(left: &CSINodeDriver, right: &CSINodeDriver) -> bool {
    left.name == right.name
        && left.node_id == right.node_id
        && left.topology_keys == right.topology_keys
}

fn list(drivers: &BTreeMap<DriverName, Registered>) -> Vec<CSINodeDriver> {
    let driver = |(name, driver): (&DriverName, &Registered)| CSINodeDriver {
        name: name.to_string(),
        node_id: driver.node_id.clone(),
        topology_keys: Some(driver.topology_keys.clone()).filter(|keys| !keys.is_empty()),
        ..CSINodeDriver::default()
    };
    drivers.iter().map(driver).collect()
}

fn env_drivers(drivers: &BTreeMap<DriverName, Registered>) -> String {
    let injecting = drivers.iter().filter(|(_, driver)| driver.injects);
    injecting.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
