//! The node towards the API server: its object, its status and its lease.
//!
//! The lease says every ten seconds that the node lives, and is all that is sent as long as nothing
//! changes; the status follows at once when something does, and every five minutes. Taints and what
//! others write into the object are left alone. In standalone mode only the facts are found out.

mod condition;
mod lease;
mod machine;
mod object;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ContainerImage, Node, NodeCondition, NodeStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};
use waybill_core::chain::Chain;
use waybill_proto::cri::{ListImagesRequest, StatusRequest, VersionRequest};

use self::{
    condition::{Health, RuntimeHealth},
    lease::LeaseKeeper,
    machine::Machine,
    object::{Abilities, Description},
};
use crate::{
    Clock,
    cri::Runtime,
    event::{Kind, Recorder},
    pressure::Pressure,
    retry::Pauses,
};

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(10);

/// Between two looks at a runtime that is not ready.
const IMPATIENT_BEAT: Duration = Duration::from_secs(1);

/// A status that does not change is sent again after this.
const REPEAT: Duration = Duration::from_mins(5);

/// A call to the runtime may take this long.
const CALL: Duration = Duration::from_secs(5);

/// A runtime that was just started gets this long to answer.
const RUNTIME_START: Duration = Duration::from_secs(60);

/// Images that are named in the status; the largest ones, as kubelets do.
const MOST_IMAGES: usize = 50;

/// What is told of the node.
pub(crate) struct Options {
    pub(crate) name: String,
    /// Where the API server reaches the node.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) max_pods: u32,
    /// Its file system is the one whose space counts.
    pub(crate) state: PathBuf,
    pub(crate) pressure: Pressure,
    pub(crate) runtime: Runtime,
    pub(crate) client: Option<Client>,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

/// What others need to know of the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    /// Such as `waybill` or `containerd`: what stands before `://` in the ids of containers.
    pub(crate) runtime_name: String,
    pub(crate) runtime_version: String,
    pub(crate) capacity: BTreeMap<String, Quantity>,
    /// What pods can have of it.
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    pub(crate) ips: Vec<IpAddr>,
}

/// Why nothing is known of the node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error("the container runtime does not answer")]
    Runtime(#[source] Box<tonic::Status>),
    #[error("cannot find out what the machine has")]
    Machine(#[source] machine::MachineError),
}

/// Finds out about the node, and keeps the API server informed from then on.
pub(crate) async fn start(
    options: Options,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Facts, RegisterError> {
    let machine = Machine::read(&options.state).map_err(RegisterError::Machine)?;
    let version = runtime_version(&options.runtime).await?;
    let facts = Facts {
        runtime_name: version.0,
        runtime_version: version.1,
        capacity: machine.capacity(options.max_pods),
        allocatable: machine.allocatable(options.max_pods, options.pressure.thresholds()),
        ips: vec![options.address],
    };
    if let Some(client) = options.client.clone() {
        let registrar = Registrar {
            nodes: Api::all(client.clone()),
            lease: LeaseKeeper::new(client, &options.name),
            description: Description::new(&options, &facts, &machine),
            options,
            sent: None,
            images: Vec::new(),
            abilities: Abilities::default(),
        };
        tasks.spawn(stop.clone().run_until_cancelled_owned(registrar.run()));
    }
    Ok(facts)
}

/// The name and version of the runtime, which may still be starting.
async fn runtime_version(runtime: &Runtime) -> Result<(String, String), RegisterError> {
    let mut pauses = Pauses::new(Duration::from_millis(50), Duration::from_secs(2));
    let started = Instant::now();
    loop {
        let mut client = runtime.containers();
        let call = client.version(VersionRequest { version: "0.1.0".to_owned() });
        let answer = timeout(CALL, call).await;
        let status = match answer {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                return Ok((answer.runtime_name, answer.runtime_version));
            }
            Ok(Err(status)) => status,
            Err(_) => tonic::Status::deadline_exceeded("no answer in time"),
        };
        if started.elapsed() > RUNTIME_START {
            return Err(RegisterError::Runtime(Box::new(status)));
        }
        sleep(pauses.next()).await;
    }
}

struct Registrar {
    options: Options,
    nodes: Api<Node>,
    lease: LeaseKeeper,
    description: Description,
    sent: Option<Sent>,
    images: Vec<ContainerImage>,
    /// As the runtime told them last.
    abilities: Abilities,
}

/// What the API server has.
struct Sent {
    status: NodeStatus,
    at: Instant,
    uid: String,
}

impl Sent {
    fn says(&self, status: &NodeStatus) -> bool {
        condition::is_same(&self.status, status)
    }
}

impl Registrar {
    async fn run(mut self) {
        let mut pauses = Pauses::new(Duration::from_millis(200), BEAT);
        self.options.recorder.node(Kind::Normal, "Starting", "the node is starting");
        loop {
            let health = self.health().await;
            let pause = match self.beat(&health).await {
                Ok(()) => {
                    pauses.reset();
                    if health.is_ready() { BEAT } else { IMPATIENT_BEAT }
                }
                Err(error) => {
                    let code = error_code(&error);
                    warn!(code, error = %Chain(&error), "the API server does not hear of the node");
                    pauses.next()
                }
            };
            sleep(pause).await;
        }
    }

    async fn beat(&mut self, health: &Health) -> Result<(), kube::Error> {
        let now = (self.options.clock)();
        if self.sent.is_none() {
            self.register(health, now).await?;
        }
        let Some(sent) = &self.sent else { return Ok(()) };
        let uid = sent.uid.clone();
        self.lease.renew(now, &uid).await?;
        self.send_if_changed(health, now).await
    }

    /// Makes the object, or brings the one that is there up to date.
    async fn register(&mut self, health: &Health, now: Timestamp) -> Result<(), kube::Error> {
        let name = self.options.name.clone();
        let found = match self.nodes.get_opt(&name).await? {
            Some(found) => found,
            None => {
                let status = self.status(health, &[], now).await;
                let node = self.description.node(status);
                match self.nodes.create(&PostParams::default(), &node).await {
                    Ok(made) => {
                        info!(node = name, "registered");
                        made
                    }
                    // Somebody was quicker; the next beat finds it.
                    Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        let missing = self.description.missing_labels(&found);
        if !missing.is_empty() {
            let change = json!({"metadata": {"labels": missing}});
            self.nodes.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await?;
        }
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let status = NodeStatus { conditions: Some(conditions), ..NodeStatus::default() };
        let uid = found.metadata.uid.unwrap_or_default();
        // What was found may be of an earlier life, so that all of it is sent.
        self.sent = Some(Sent { status, at: Instant::now(), uid });
        Ok(())
    }

    async fn send_if_changed(
        &mut self,
        health: &Health,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let Some(sent) = &self.sent else { return Ok(()) };
        let old: Vec<NodeCondition> = sent.status.conditions.clone().unwrap_or_default();
        let is_due = sent.at.elapsed() >= REPEAT;
        let status = self.status(health, &old, now).await;
        if !is_due && self.sent.as_ref().is_some_and(|sent| sent.says(&status)) {
            return Ok(());
        }
        let body = object::patch(&status).map_err(kube::Error::SerdeError)?;
        let parameters = PatchParams::default();
        let written: Result<Node, _> = self
            .nodes
            .patch_status(&self.options.name, &parameters, &Patch::Strategic::<Value>(body))
            .await;
        match written {
            Ok(_) => {
                self.tell_of_readiness(&old, &status);
                if let Some(sent) = &mut self.sent {
                    sent.status = status;
                    sent.at = Instant::now();
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // Somebody deleted the node; it lives, so it comes again.
                self.sent = None;
                self.lease.forget();
                Err(kube::Error::Api(status))
            }
            Err(error) => Err(error),
        }
    }

    fn tell_of_readiness(&self, old: &[NodeCondition], new: &NodeStatus) {
        let ready = |conditions: &[NodeCondition]| {
            conditions.iter().any(|found| found.type_ == "Ready" && found.status == "True")
        };
        let was = ready(old);
        let is = ready(new.conditions.as_deref().unwrap_or_default());
        if was != is {
            let reason = if is { "NodeReady" } else { "NodeNotReady" };
            self.options.recorder.node(
                Kind::Normal,
                reason,
                &format!("node status is now: {reason}"),
            );
        }
    }

    async fn status(
        &mut self,
        health: &Health,
        old: &[NodeCondition],
        now: Timestamp,
    ) -> NodeStatus {
        if let Some(images) = self.list_images().await {
            self.images = images;
        }
        let conditions = condition::all(health, old, now);
        if let RuntimeHealth::Up(answer) = &health.runtime {
            self.abilities = Abilities::of(answer);
        }
        let Abilities { features, handlers } = self.abilities.clone();
        NodeStatus {
            conditions: Some(conditions),
            features,
            images: Some(self.images.clone()),
            runtime_handlers: handlers,
            ..self.description.status()
        }
    }

    async fn health(&self) -> Health {
        let mut client = self.options.runtime.containers();
        let answer = timeout(CALL, client.status(StatusRequest { verbose: false })).await;
        let runtime = match answer {
            Ok(Ok(answer)) => RuntimeHealth::Up(answer.into_inner()),
            Ok(Err(status)) => RuntimeHealth::Down(status.message().to_owned()),
            Err(_) => RuntimeHealth::Down("it does not answer".to_owned()),
        };
        self.options.pressure.look();
        Health { runtime, pressure: self.options.pressure.conditions() }
    }

    async fn list_images(&self) -> Option<Vec<ContainerImage>> {
        let mut client = self.options.runtime.images();
        let call = client.list_images(ListImagesRequest { filter: None });
        let answer = timeout(CALL, call).await.ok()?.ok()?.into_inner();
        Some(object::images(answer.images, MOST_IMAGES))
    }
}

fn error_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
