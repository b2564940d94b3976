//! Documents to and from webhooks.

#![expect(
    clippy::needless_pass_by_value,
    reason = "literals of JSON read better without references"
)]

use super::*;
use crate::fixtures::{exec_request, pod_request};

#[test]
fn a_review_is_as_upstream_sends_it() {
    let pod = json!({"metadata": {"name": "web"}});
    assert_eq!(
        review(ReviewVersion::V1, "u", &pod_request(&pod)),
        json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": "u",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
                "requestResource": {"group": "", "version": "v1", "resource": "pods"},
                "name": "web",
                "namespace": "default",
                "operation": "CREATE",
                "userInfo": {"username": "ann", "groups": ["dev"]},
                "object": {"metadata": {"name": "web"}},
                "oldObject": null,
                "dryRun": false,
                "options": null,
            },
        })
    );
    let options = json!({"kind": "PodExecOptions"});
    let exec = review(ReviewVersion::V1Beta1, "u", &exec_request(&options));
    assert_eq!(exec["request"]["subResource"], "exec");
    assert_eq!(exec["apiVersion"], "admission.k8s.io/v1beta1");
}

fn read(kind: ReviewKind, response: Json) -> Result<ReviewAnswer, String> {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    ReviewAnswer::read(body.to_string().as_bytes(), ReviewVersion::V1, kind, "u")
        .map_err(|error| error.to_string())
}

#[test]
fn answers_that_do_not_fit_are_refused() {
    let patch = STANDARD.encode(r#"[{"op": "add", "path": "/a", "value": 1}]"#);
    for (response, error) in [
        (json!(null), "webhook response was absent"),
        (json!({"uid": "v", "allowed": true}), "expected response.uid=\"u\", got \"v\""),
        (
            json!({"uid": "u", "patch": patch}),
            "webhook returned response.patch but not response.patchType",
        ),
        (
            json!({"uid": "u", "patchType": "JSONPatch"}),
            "webhook returned response.patchType but not response.patch",
        ),
        (
            json!({"uid": "u", "patchType": "Merge", "patch": patch}),
            "unsupported patch type \"Merge\"",
        ),
    ] {
        assert_eq!(read(ReviewKind::Mutating, response).unwrap_err(), error);
    }
    let patched = json!({"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": patch});
    assert_eq!(
        read(ReviewKind::Mutating, patched.clone())
            .unwrap()
            .patch
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        read(ReviewKind::Validating, patched).unwrap_err(),
        "validating webhook may not return response.patch"
    );
    let empty = json!({"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode("[]")});
    assert!(read(ReviewKind::Mutating, empty).unwrap().patch.is_none());
    assert!(ReviewAnswer::read(b"<html>", ReviewVersion::V1, ReviewKind::Mutating, "u").is_err());
}

#[test]
fn refusals_read_as_upstreams() {
    let refusal = |response: Json| read(ReviewKind::Validating, response).unwrap().refusal("a.b.c");
    let plain = refusal(json!({"uid": "u", "allowed": false}));
    assert_eq!(
        (plain.code(), plain.message()),
        (400, "admission webhook \"a.b.c\" denied the request without explanation")
    );
    let said = refusal(
        json!({"uid": "u", "status": {"code": 403, "reason": "Forbidden", "message": "no"}}),
    );
    assert_eq!(
        (said.code(), said.reason(), said.message()),
        (403, "Forbidden", "admission webhook \"a.b.c\" denied the request: no")
    );
    // A refusal never looks like a success.
    assert_eq!(refusal(json!({"uid": "u", "status": {"code": 200}})).code(), 400);
    assert_eq!(refusal(json!({"uid": "u", "status": {"code": -1}})).code(), 400);
}
