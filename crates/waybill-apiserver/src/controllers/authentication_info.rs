//! Keeps the ConfigMap by which servers beside this one learn whom it believes: the authority of clients, and the front
//! proxies with their headers.
//!
//! Kubernetes' own controller manager and scheduler read it when they start, and so does every aggregated API server.

use std::time::Duration;

use serde_json::{Value, json};
use waybill_api::status::Status;

use super::actor::{Actor, route_of};
use crate::{
    authn::front_proxy::{EXTRA_HEADERS, GROUP_HEADER, PROXY_NAMES, UID_HEADER, USER_HEADER},
    authz::bootstrap::AUTHENTICATION_INFO,
    document::{at, put},
    write::Part,
};

/// How soon what somebody changed is as it should be again.
const ROUND: Duration = Duration::from_secs(10);

pub(super) async fn run(actor: Actor, wanted: Value) {
    loop {
        if let Err(status) = ensure(&actor, &wanted).await {
            tracing::debug!(message = status.message(), "{AUTHENTICATION_INFO} has to wait");
        }
        tokio::time::sleep(ROUND).await;
    }
}

async fn ensure(actor: &Actor, wanted: &Value) -> Result<(), Status> {
    let route = route_of(wanted)?;
    let Some(found) = actor.get(&route) else {
        return actor.create_missing(wanted.clone()).await;
    };
    if at(&found.document(), "/data") == at(wanted, "/data") {
        return Ok(());
    }
    let corrected = |old: &Value| {
        let mut new = old.clone();
        put(&mut new, "/data", at(wanted, "/data").clone());
        Ok(new)
    };
    actor.update(&route, Part::Main, corrected).await
}

/// What others are told; lists are JSON in text, as upstream's.
pub(super) fn document(clients: &str, front_proxies: &str) -> Value {
    let list = |items: &[&str]| json!(items).to_string();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": AUTHENTICATION_INFO, "namespace": "kube-system"},
        "data": {
            "client-ca-file": clients,
            "requestheader-client-ca-file": front_proxies,
            "requestheader-allowed-names": list(PROXY_NAMES),
            "requestheader-username-headers": list(&[USER_HEADER]),
            "requestheader-uid-headers": list(&[UID_HEADER]),
            "requestheader-group-headers": list(&[GROUP_HEADER]),
            "requestheader-extra-headers-prefix": list(&[EXTRA_HEADERS]),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_json_in_text() {
        let told = document("clients", "proxies");
        let data = |key: &str| told["data"][key].as_str().unwrap().to_owned();
        assert_eq!(data("client-ca-file"), "clients");
        assert_eq!(data("requestheader-client-ca-file"), "proxies");
        assert_eq!(data("requestheader-allowed-names"), r#"["front-proxy-client"]"#);
        assert_eq!(data("requestheader-username-headers"), r#"["X-Remote-User"]"#);
    }
}
