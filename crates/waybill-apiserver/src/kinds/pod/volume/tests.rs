//! Tables of volumes, and the errors they earn.

use serde_json::{Value, json};

use super::super::testing::check_spec;

#[track_caller]
fn check(volume: &Value, expected: &[&str]) {
    let mut volume = volume.clone();
    volume["name"] = "v".into();
    check_spec(&json!({"volumes": [volume]}), expected);
}

#[test]
fn names_are_unique() {
    check_spec(
        &json!({"volumes": [{"emptyDir": {}}, {"name": "A"}, {"name": "b"}, {"name": "b"}]}),
        &[
            "spec.volumes[0].name: Required value",
            "spec.volumes[1].name: Invalid value: \"A\": a lowercase RFC 1123 label",
            "spec.volumes[3].name: Duplicate value: \"b\"",
        ],
    );
}

#[test]
fn one_source_each() {
    check(&json!({}), &[]);
    check(&json!({"nfs": {"server": "s", "path": "/"}}), &[]);
    check(
        &json!({"emptyDir": {}, "hostPath": {"path": "/"}}),
        &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
    );
    // The order is upstream's.
    check(
        &json!({"csi": {"driver": "d"}, "secret": {"secretName": "s"}, "image": {}}),
        &[
            "spec.volumes[0].csi: Forbidden: may not specify more than 1 volume type",
            "spec.volumes[0].image: Forbidden: may not specify more than 1 volume type",
        ],
    );
}

#[test]
fn sources_need_their_fields() {
    let at = "spec.volumes[0]";
    check(&json!({"configMap": {}}), &[&format!("{at}.configMap.name: Required value")]);
    check(&json!({"secret": {}}), &[&format!("{at}.secret.secretName: Required value")]);
    check(&json!({"hostPath": {}}), &[&format!("{at}.hostPath.path: Required value")]);
    check(&json!({"csi": {}}), &[&format!("{at}.csi.driver: Required value")]);
    check(
        &json!({"hostPath": {"path": "/a/../b", "type": "Odd"}}),
        &[
            &format!("{at}.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"),
            &format!(
                "{at}.hostPath.type: Unsupported value: \"Odd\": supported values: \"\", \"Bl"
            ),
        ],
    );
    check(
        &json!({"emptyDir": {"sizeLimit": "-1"}}),
        &[&format!("{at}.emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource")],
    );
    check(
        &json!({"secret": {"secretName": "s", "defaultMode": 512, "items": [{"path": "..a"}]}}),
        &[
            &format!("{at}.secret.defaultMode: Invalid value: 512: must be a number between 0 an"),
            &format!("{at}.secret.items[0].key: Required value"),
            &format!("{at}.secret.items[0].path: Invalid value: \"..a\": must not start with '..'"),
        ],
    );
    check(
        &json!({"downwardAPI": {"items": [{"path": "a"}, {"path": "b", "fieldRef": {}}]}}),
        &[
            &format!("{at}.downwardAPI.items[0]: Required value: one of fieldRef and resourceFie"),
            &format!("{at}.downwardAPI.items[1].fieldRef.fieldPath: Required value"),
        ],
    );
}

#[test]
fn projections() {
    let at = "spec.volumes[0].projected";
    let file = |path: &str| json!({"name": "a", "items": [{"key": "k", "path": path}]});
    check(&json!({"projected": {"sources": [{"secret": file("a")}]}}), &[]);
    check(
        &json!({"projected": {"sources": [{"secret": file("a")}, {"configMap": file("a")}, {}]}}),
        &[
            &format!("{at}: Invalid value: \"a\": conflicting duplicate paths"),
            &format!("{at}.sources[2]: Required value: must specify a volume type"),
        ],
    );
    check(
        &json!({"projected": {"sources": [
            {"clusterTrustBundle": {"path": "b"}},
            {"clusterTrustBundle": {"name": "n", "signerName": "s", "path": "c"}},
            {"clusterTrustBundle": {"name": "n", "labelSelector": {}}},
            {"podCertificate": {"keyType": "Odd"}}]}}),
        &[
            &format!("{at}.sources[0].clusterTrustBundle: Required value: either name or signerN"),
            &format!("{at}.sources[1].clusterTrustBundle: Invalid value: {{"),
            &format!(
                "{at}.sources[2].clusterTrustBundle.labelSelector: Invalid value: {{}}: label"
            ),
            &format!("{at}.sources[2].clusterTrustBundle.path: Required value"),
            &format!("{at}.sources[3].podCertificate.signerName: Required value"),
            &format!("{at}.sources[3].podCertificate.keyType: Unsupported value: \"Odd\""),
        ],
    );
    check(
        &json!({"projected": {"sources": [
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}}),
        &[
            &format!(
                "{at}.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may"
            ),
            &format!("{at}.sources[0].serviceAccountToken: Forbidden: must not be specified when"),
        ],
    );
}
