//! What the server does by itself: the objects that every cluster has, the end of namespaces, the placing
//! of pods, objects about drivers, the service by which pods find the server, whether policies fit their kinds, and whom the
//! server believes.
//!
//! Each controller follows the caches and writes through the same path as clients do, recorded as theirs. Each can be
//! cut off or fail at any point and does the right thing when it starts again.

mod actor;
mod authentication_info;
mod basics;
mod cluster_roles;
mod compaction;
mod csi_objects;
mod kubernetes_service;
mod namespaces;
mod policy_types;
mod scheduler;

use std::{net::SocketAddr, sync::Arc};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::actor::Actor;
pub(crate) use self::basics::ensure_basics;
use crate::{audit::Recorder, authz::Authorizer, write::Writer};

/// What the controllers tell others about the server.
#[derive(Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) ca_certificate: &'a str,
    /// The authorities of front proxies, in PEM.
    pub(crate) front_proxies: &'a str,
    pub(crate) address: SocketAddr,
}

/// Starts every controller; they end with `stop`.
pub(crate) fn start(
    writer: &Arc<Writer>,
    recorder: &Arc<Recorder>,
    authorizer: &Arc<Authorizer>,
    told: Told<'_>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let until = |future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let stop = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = future => {}
            }
        });
    };
    let actor = |name| Actor::new(writer, recorder, name);
    let controller = |name| Actor::controller(writer, recorder, name);
    until(Box::pin(namespaces::run(namespaces::Actors {
        accounts: controller("service-account-controller"),
        certificates: controller("root-ca-cert-publisher"),
        namespaces: controller("namespace-controller"),
        ca_certificate: told.ca_certificate.to_owned(),
    })));
    until(Box::pin(kubernetes_service::run(actor("system:apiserver"), told.address)));
    let info = authentication_info::document(told.ca_certificate, told.front_proxies);
    until(Box::pin(authentication_info::run(actor("system:apiserver"), info)));
    until(Box::pin(scheduler::run(actor("system:kube-scheduler"))));
    until(Box::pin(cluster_roles::run(
        controller("clusterrole-aggregation-controller"),
        Arc::clone(authorizer),
    )));
    until(Box::pin(policy_types::run(controller("validatingadmissionpolicy-status-controller"))));
    until(Box::pin(compaction::run(Arc::clone(&writer.objects))));
    until(Box::pin(csi_objects::run(csi_objects::Actors {
        drivers: actor("system:apiserver"),
        garbage: controller("generic-garbage-collector"),
    })));
}
