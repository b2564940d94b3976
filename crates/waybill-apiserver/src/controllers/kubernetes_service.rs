//! Keeps `default/kubernetes`, by which pods find the API server, and its endpoints.
//!
//! Nothing carries traffic of services here, so the service has no address of its own; its name leads to the
//! endpoints. A server that listens on the loopback only has none: there, each machine would find itself.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::actor::{Actor, route_of};
use crate::{document::put, write::Part};

/// How soon what somebody changed is as it should be again.
const ROUND: Duration = Duration::from_secs(10);

/// What is ours alone in endpoints.
const FIELDS: &[&str] = &["endpoints", "ports", "subsets"];

pub(super) async fn run(actor: Actor, address: SocketAddr) {
    loop {
        for wanted in objects(address) {
            if let Err(status) = ensure(&actor, wanted).await {
                tracing::debug!(message = status.message(), "default/kubernetes has to wait");
            }
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn ensure(actor: &Actor, wanted: Value) -> Result<(), Status> {
    let route = route_of(&wanted)?;
    let Some(found) = actor.get(&route) else { return actor.create_missing(wanted).await };
    let found = found.document();
    // A service gets more than we say; who else changes it is let be.
    let kept = |field: &&&str| wanted.get(**field).is_some_and(|it| found.get(**field) != Some(it));
    let wrong: Vec<&str> = FIELDS.iter().filter(kept).copied().collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let corrected = |old: &Value| {
        let mut new = old.clone();
        for field in &wrong {
            put(&mut new, &format!("/{field}"), wanted.get(*field).cloned().unwrap_or_default());
        }
        Ok(new)
    };
    actor.update(&route, Part::Main, corrected).await
}

fn objects(address: SocketAddr) -> Vec<Value> {
    let (ip, port) = (address.ip(), address.port());
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443, "targetPort": port}]},
    });
    if ip.is_loopback() || ip.is_unspecified() {
        return vec![service];
    }
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "subsets": [{
            "addresses": [{"ip": ip}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if ip.is_ipv6() { "IPv6" } else { "IPv4" },
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    vec![service, endpoints, slice]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_themselves() {
        assert_eq!(objects(([127, 0, 0, 1], 6443).into()).len(), 1);
        assert_eq!(objects(([0, 0, 0, 0], 6443).into()).len(), 1);
        let all = objects(([192, 0, 2, 1], 6443).into());
        assert_eq!(all[1]["subsets"][0]["addresses"][0]["ip"], "192.0.2.1");
        assert_eq!(all[2]["addressType"], "IPv4");
    }
}
