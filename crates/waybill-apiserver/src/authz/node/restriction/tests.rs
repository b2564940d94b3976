//! Tables of what nodes write.

use serde_json::json;

use super::*;
use crate::{authz::fixtures::on, request::Target};

const NODE: AskingNode<'_> = AskingNode { name: "n", uid: "u" };

#[track_caller]
fn check(target: &str, write: NodeWrite<'_>, expected: &Result<(), NodeRestrictionError>) {
    let Target::Resource(target) = on("create", target).target else { panic!("a path") };
    assert_eq!(NODE.check(&target, write), *expected, "{target:?} {write:?}");
}

#[test]
fn a_node_creates_itself_and_its_lease_only() {
    let check = |target: &str, name: &str, expected| {
        check(target, NodeWrite::Create(&json!({"metadata": {"name": name}})), &expected);
    };
    check("nodes", "n", Ok(()));
    let other = NodeRestrictionError::OtherNode { node: "n".into(), other: "m".into() };
    check("nodes", "m", Err(other));
    let lease = "kube-node-lease/leases.coordination.k8s.io";
    check(lease, "n", Ok(()));
    check(lease, "m", Err(NodeRestrictionError::OtherLease));
    check(lease, "", Err(NodeRestrictionError::OtherLease));
    let elsewhere = Err(NodeRestrictionError::LeaseNamespace);
    check("ns/leases.coordination.k8s.io", "n", elsewhere);
    check("csinodes.storage.k8s.io", "n", Ok(()));
    check("csinodes.storage.k8s.io", "m", Err(NodeRestrictionError::OtherCsiNode));
    check("ns/events", "any", Ok(()));
}

#[test]
fn what_is_missing_and_what_is_empty_are_no_change() {
    let old = json!({"metadata": {"labels": {"x.k8s.io/a": "b"}}, "spec": {"taints": []}});
    let same = json!({"metadata": {"labels": {"x.k8s.io/a": "b"}, "ownerReferences": null}});
    check("nodes:n", NodeWrite::Update { new: &same, old: &old }, &Ok(()));
    let labels = vec!["x.k8s.io/a".to_owned()];
    let refusal = Err(NodeRestrictionError::NodeLabelChange { labels });
    check("nodes:n", NodeWrite::Update { new: &json!({}), old: &old }, &refusal);
    let source = json!({"spec": {"configSource": {"configMap": {"name": "c"}}}});
    let refusal = Err(NodeRestrictionError::ConfigSource("n".into()));
    check("nodes:n", NodeWrite::Update { new: &source, old: &json!({}) }, &refusal);
    check("nodes:n", NodeWrite::Update { new: &source, old: &source }, &Ok(()));
}

/// An object that cannot be deleted, or that goes with another, outlives what an administrator decides.
#[test]
fn a_node_gives_its_own_object_no_owners_and_no_finalizers() {
    let owned = json!({"metadata": {"name": "n", "ownerReferences": [{"uid": "u"}]}});
    let finalized = json!({"metadata": {"name": "n", "finalizers": ["a/b"]}});
    let plain = json!({"metadata": {"name": "n", "finalizers": []}});
    let owners = Err(NodeRestrictionError::NodeOwners("n".into()));
    let finalizers = Err(NodeRestrictionError::NodeFinalizers("n".into()));
    for (object, refusal) in [(&owned, &owners), (&finalized, &finalizers)] {
        check("nodes", NodeWrite::Create(object), refusal);
        check("nodes:n", NodeWrite::Update { new: object, old: &plain }, refusal);
        check("nodes:n", NodeWrite::Update { new: &plain, old: object }, refusal);
        check("nodes:n", NodeWrite::Update { new: object, old: object }, &Ok(()));
    }
    check("nodes", NodeWrite::Create(&plain), &Ok(()));
}

fn mirror() -> Value {
    json!({
        "metadata": {
            "name": "p", "namespace": "ns",
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u",
                "controller": true,
            }],
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
    })
}

#[track_caller]
fn check_mirror_with(change: impl FnOnce(&mut Value), expected: NodeRestrictionError) {
    let mut changed = mirror();
    change(&mut changed);
    check("ns/pods", NodeWrite::Create(&changed), &Err(expected));
}

#[test]
fn a_node_creates_mirrors_of_its_static_pods_only() {
    check("ns/pods", NodeWrite::Create(&mirror()), &Ok(()));
    let node = || "n".to_owned();
    let without_mark = NodeRestrictionError::PodWithoutMirrorMark(node());
    check_mirror_with(|pod| pod["metadata"]["annotations"] = json!({}), without_mark);
    let of_other = || NodeRestrictionError::PodOfOtherOwner(node());
    check_mirror_with(|pod| pod["metadata"]["ownerReferences"] = json!([]), of_other());
    let owner = |field: &'static str, value: Value| {
        move |pod: &mut Value| pod["metadata"]["ownerReferences"][0][field] = value
    };
    check_mirror_with(owner("name", json!("m")), of_other());
    check_mirror_with(owner("controller", json!(false)), of_other());
    check_mirror_with(owner("blockOwnerDeletion", json!(true)), of_other());
    let uid = NodeRestrictionError::NodeUid { node: node(), found: "old".into(), uid: "u".into() };
    check_mirror_with(owner("uid", json!("old")), uid);
    let elsewhere = NodeRestrictionError::PodOfOtherNode(node());
    check_mirror_with(|pod| pod["spec"]["nodeName"] = json!("m"), elsewhere);
}

#[test]
fn a_mirror_refers_to_nothing_that_its_node_could_then_ask_for() {
    let source = |source: Value| ("initContainers", json!([{"envFrom": [source]}]));
    let volume = |source: Value| ("volumes", json!([source]));
    let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    for ((field, value), what) in [
        (source(json!({"secretRef": {"name": "s"}})), "secrets"),
        (source(json!({"configMapRef": {"name": "s"}})), "configmaps"),
        (("serviceAccountName", json!("sa")), "a service account"),
        (projected(json!({"serviceAccountToken": {"path": "t"}})), "a service account"),
        (projected(json!({"clusterTrustBundle": {"path": "t"}})), "clustertrustbundles"),
        (volume(json!({"persistentVolumeClaim": {"claimName": "c"}})), "persistentvolumeclaims"),
        (volume(json!({"ephemeral": {}})), "persistentvolumeclaims"),
        (("resourceClaims", json!([{"name": "c"}])), "resourceclaims"),
    ] {
        let refusal = NodeRestrictionError::PodWith { node: "n".into(), what };
        check_mirror_with(|pod| pod["spec"][field] = value, refusal);
    }
}

#[test]
fn a_node_asks_for_tokens_of_its_pods_only() {
    let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "n"}});
    let check = |node: &str, reference: Value| {
        let request = json!({"spec": {"boundObjectRef": reference}});
        check_token(node, &request, |name| (name == "p").then(|| pod.clone()))
    };
    let to = |version: &str, kind: &str, name: &str, uid: &str| json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid});
    assert_eq!(check("n", to("v1", "Pod", "p", "u")), Ok(Some(pod.clone())));
    assert_eq!(check("n", to("v1", "Pod", "q", "u")), Ok(None), "there is no such pod");
    for (node, reference, expected) in [
        ("m", to("v1", "Pod", "p", "u"), NodeRestrictionError::TokenOfOtherNode),
        ("n", to("v1", "Pod", "p", "v"), NodeRestrictionError::TokenUid("v".into())),
        ("n", to("v1", "Pod", "p", ""), NodeRestrictionError::TokenWithoutUid),
        ("n", to("v1", "Secret", "p", "u"), NodeRestrictionError::TokenWithoutPod),
        ("n", to("", "Pod", "p", "u"), NodeRestrictionError::TokenWithoutPod),
        ("n", Value::Null, NodeRestrictionError::TokenWithoutPod),
    ] {
        assert_eq!(check(node, reference), Err(expected));
    }
}

#[test]
fn a_node_asks_for_one_audience() {
    let asked = |audiences: Value| {
        let request = json!({"spec": {"audiences": audiences}});
        requested_audience(&request, &["api".to_owned()]).map(str::to_owned)
    };
    assert_eq!(asked(Value::Null).as_deref(), Ok(""));
    assert_eq!(asked(json!(["api"])).as_deref(), Ok(""));
    assert_eq!(asked(json!(["vault"])).as_deref(), Ok("vault"));
    assert_eq!(asked(json!(["api", "vault"])), Err(NodeRestrictionError::Audiences));
}
