//! Every pod runs as a service account of its namespace, and finds that account's token.

use serde_json::{Value, json};
use uuid::Uuid;
use waybill_api::status::Status;

use super::{Admission, Attributes, Operation};
use crate::{
    cache::ObjectKey,
    document::{at, at_mut, put},
    kinds::{pod::PODS, service_account::SERVICE_ACCOUNTS},
};

/// Where a container finds its token, the cluster's certificate and its namespace.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Somewhat over an hour, so that a kubelet that renews hourly is never late.
const TOKEN_SECONDS: u32 = 3_607;

impl Admission {
    pub(super) fn set_service_account(
        &self,
        attributes: &mut Attributes<'_>,
    ) -> Result<(), Status> {
        if attributes.operation != Operation::Create || !attributes.is_main(&PODS) {
            return Ok(());
        }
        let namespace = attributes.namespace;
        let pod = &mut attributes.object;
        // The mirror of a static pod has no account: its node started it without asking.
        let mirror = !at(pod, "/metadata/annotations/kubernetes.io~1config.mirror").is_null();
        let spec = at_mut(pod, "/spec");
        if mirror || !spec.is_object() {
            return Ok(());
        }
        let name = match at(spec, "/serviceAccountName").as_str() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => "default".to_owned(),
        };
        put(spec, "/serviceAccountName", name.as_str());
        put(spec, "/serviceAccount", name.as_str());
        let account = self
            .objects
            .cache(&SERVICE_ACCOUNTS)
            .and_then(|cache| cache.get(&ObjectKey::new(namespace, &name)));
        let Some(account) = account else {
            let why = format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
            );
            return Err(attributes.forbidden(&why));
        };
        let account = account.document();
        let spec = at_mut(pod, "/spec");
        if at(spec, "/imagePullSecrets").is_null() && at(&account, "/imagePullSecrets").is_array() {
            put(spec, "/imagePullSecrets", at(&account, "/imagePullSecrets").clone());
        }
        let wanted = at(spec, "/automountServiceAccountToken")
            .as_bool()
            .or(at(&account, "/automountServiceAccountToken").as_bool())
            .unwrap_or(true);
        if wanted {
            mount_token(spec);
        }
        Ok(())
    }
}

/// Mounts a token into every container that has nothing at that path yet.
fn mount_token(spec: &mut Value) {
    let suffix: String = Uuid::new_v4().simple().to_string().chars().take(5).collect();
    let volume = format!("kube-api-access-{suffix}");
    let mut mounted = false;
    for kind in ["containers", "initContainers"] {
        for container in spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            mounted |= mount_into(container, &volume);
        }
    }
    if !mounted {
        return;
    }
    let source = json!({
        "name": volume,
        "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }},
            {"downwardAPI": {"items": [{
                "path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
            }]}},
        ]},
    });
    push(at_mut(spec, "/volumes"), source);
}

fn mount_into(container: &mut Value, volume: &str) -> bool {
    if !container.is_object() {
        return false;
    }
    let mounts = at_mut(container, "/volumeMounts");
    let taken =
        mounts.as_array().into_iter().flatten().any(|mount| at(mount, "/mountPath") == TOKEN_PATH);
    if taken {
        return false;
    }
    let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
    push(mounts, mount);
    true
}

/// Adds to a list, which is made if it is missing.
fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_mounted_once_and_never_over_something() {
        let mut spec = json!({
            "containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "x", "mountPath": TOKEN_PATH}]}],
            "initContainers": [{"name": "i", "volumeMounts": []}],
        });
        mount_token(&mut spec);
        let volume = spec["volumes"][0]["name"].as_str().unwrap().to_owned();
        assert!(volume.starts_with("kube-api-access-"), "{volume}");
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], volume.as_str());
        assert_eq!(spec["containers"][1]["volumeMounts"].as_array().unwrap().len(), 1);
        assert_eq!(spec["initContainers"][0]["volumeMounts"][0]["mountPath"], TOKEN_PATH);
        assert_eq!(spec.get("ephemeralContainers"), None, "nothing is made up");
    }
}
