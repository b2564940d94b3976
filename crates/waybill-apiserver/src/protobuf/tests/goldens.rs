//! Bodies that kubectl 1.32 sent, or Kubernetes 1.35 answered with, and what they mean.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::super::decode;

#[track_caller]
fn check(sent: &str, expected: Value) {
    assert_eq!(decode(&STANDARD.decode(sent).unwrap()), Ok(expected));
}

#[test]
fn create_namespace() {
    check(
        "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhwKFAoEdGVhbRIAGgAiACoAMgA4AEIAEgAaAgoAGgAiAA==",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
    );
}

#[test]
fn create_configmap() {
    check(
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEisKFQoBYxIAGgR0ZWFtIgAqADIAOABCABIGCgFhEgExGgoKA2JpbhID\
         AP8BGgAiAA==",
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "team"},
            "data": {"a": "1"},
            "binaryData": {"bin": "AP8B"},
        }),
    );
}

#[test]
fn create_secret() {
    check(
        "azhzAAoMCgJ2MRIGU2VjcmV0Ei4KFQoBcxIAGgR0ZWFtIgAqADIAOABCABITCghwYXNzd29yZBIHaHVudGVy\
         MhoAGgAiAA==",
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "team"},
            "data": {"password": "aHVudGVyMg=="},
        }),
    );
}

#[test]
fn create_role() {
    check(
        "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEjsKGgoGcmVhZGVyEgAaBHRlYW0i\
         ACoAMgA4AEIAEh0KA2dldAoEbGlzdBIAGgRwb2RzGghwb2RzL2xvZxoAIgA=",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "reader", "namespace": "team"},
            "rules": [{
                "verbs": ["get", "list"],
                "apiGroups": [""],
                "resources": ["pods", "pods/log"],
            }],
        }),
    );
}

#[test]
fn create_clusterrole_with_aggregation_rule() {
    check(
        "azhzAAorChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgtDbHVzdGVyUm9sZRIhChMKA2FnZxIAGgAi\
         ACoAMgA4AEIAGgoKCAoGCgFhEgFiGgAiAA==",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "agg"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        }),
    );
}

#[test]
fn create_rolebinding() {
    check(
        "azhzAAorChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgtSb2xlQmluZGluZxJmChYKAnJiEgAaBHRl\
         YW0iACoAMgA4AEIAEiEKDlNlcnZpY2VBY2NvdW50EgAaB2J1aWxkZXIiBHRlYW0aKQoZcmJhYy5hdXRob3Jp\
         emF0aW9uLms4cy5pbxIEUm9sZRoGcmVhZGVyGgAiAA==",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "rb", "namespace": "team"},
            "subjects": [{"kind": "ServiceAccount", "name": "builder", "namespace": "team"}],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "reader",
            },
        }),
    );
}

#[test]
fn auth_whoami() {
    check(
        "azhzAAotChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESEVNlbGZTdWJqZWN0UmV2aWV3EhoKEAoAEgAaACIA\
         KgAyADgAQgASBgoECgASABoAIgA=",
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
    );
}

#[test]
fn auth_can_i_get_pods_slash_log() {
    check(
        "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSPAoQCgAS\
         ABoAIgAqADIAOABCABIeChwKBHRlYW0SA2dldBoAIgAqBHBvZHMyADoDbG9nGggIABIAGgAgABoAIgA=",
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "namespace": "team",
                "verb": "get",
                "resource": "pods",
                "name": "log",
            }},
            "status": {"allowed": false},
        }),
    );
}

#[test]
fn create_token_bound_to_a_secret() {
    check(
        "azhzAAooChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESDFRva2VuUmVxdWVzdBIwChAKABIAGgAiACoAMgA4\
         AEIAEhYaEQoGU2VjcmV0EgJ2MRoBcyIAINgEGgQKABIAGgAiAA==",
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s"},
                "expirationSeconds": 600,
            },
            "status": {"token": ""},
        }),
    );
}

/// As Kubernetes 1.35 answers, with nothing of its metadata but the name.
#[test]
fn a_csi_driver_of_a_stock_api_server() {
    check(
        "azhzAAoeChFzdG9yYWdlLms4cy5pby92MRIJQ1NJRHJpdmVyEmQKDwoNZC5leGFtcGxlLmNvbRJRCAAQARoJ\
         RXBoZW1lcmFsIAAqF1JlYWRXcml0ZU9uY2VXaXRoRlNUeXBlMgcKBXZhdWx0MhYKEXN0cy5hbWF6b25hd3Mu\
         Y29tEJAcOAFAAFABGgAiAA==",
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": "d.example.com"},
            "spec": {
                "attachRequired": false,
                "podInfoOnMount": true,
                "volumeLifecycleModes": ["Ephemeral"],
                "storageCapacity": false,
                "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "tokenRequests": [
                    {"audience": "vault"},
                    {"audience": "sts.amazonaws.com", "expirationSeconds": 3600},
                ],
                "requiresRepublish": true,
                "seLinuxMount": false,
                "serviceAccountTokenInSecrets": true,
            },
        }),
    );
}

/// The same of a `CSINode`.
#[test]
fn a_csi_node_of_a_stock_api_server() {
    check(
        "azhzAAocChFzdG9yYWdlLms4cy5pby92MRIHQ1NJTm9kZRJCCgQKAm4xEjoKIwoNZC5leGFtcGxlLmNvbRIC\
         bjEaBHpvbmUaBHJhY2siAggHChMKDWUuZXhhbXBsZS5jb20SAm4xGgAiAA==",
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": "n1"},
            "spec": {"drivers": [
                {"name": "d.example.com", "nodeID": "n1", "topologyKeys": ["zone", "rack"],
                    "allocatable": {"count": 7}},
                {"name": "e.example.com", "nodeID": "n1"},
            ]},
        }),
    );
}
