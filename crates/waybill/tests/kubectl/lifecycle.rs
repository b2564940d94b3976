//! Waiting, deleting, and what deletion takes along.

use crate::cluster::Cluster;

const CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}";

#[test]
fn deletion_waits_for_finalizers_unless_told_not_to() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(CONFIG).succeeds();
    cluster.kubectl("delete cm c").prints("configmap \"c\" deleted");
    cluster
        .kubectl("delete cm c")
        .fails("Error from server (NotFound): configmaps \"c\" not found");
    cluster.kubectl("delete cm c --ignore-not-found").prints("");

    let held = CONFIG.replace("name: c", "name: c, finalizers: [example.com/hold]");
    cluster.apply(&held).succeeds();
    cluster.kubectl("delete cm c --wait=false").prints("configmap \"c\" deleted");
    cluster
        .kubectl("get cm c -o jsonpath={.metadata.finalizers}")
        .prints(r#"["example.com/hold"]"#);
    cluster
        .kubectl("wait --for=delete cm/c --timeout=1s")
        .fails("error: timed out waiting for the condition on configmaps/c");
    let waiting = cluster.follow("wait --for=delete cm/c --timeout=20s");
    cluster
        .kubectl("patch cm c --type=merge -p {\"metadata\":{\"finalizers\":null}}")
        .prints("configmap/c patched");
    assert_eq!(waiting.ends(), Some(0));
    cluster.kubectl("get cm c --ignore-not-found").prints("");
}

#[test]
fn a_collection_is_deleted_by_label() {
    let Some(cluster) = Cluster::start() else { return };
    for name in ["a", "b"] {
        cluster
            .apply(&CONFIG.replace("name: c", &format!("name: {name}, labels: {{x: z}}")))
            .succeeds();
    }
    cluster.apply(CONFIG).succeeds();
    cluster.kubectl("delete cm -l x=z").prints("configmap \"a\" deleted\nconfigmap \"b\" deleted");
    cluster.kubectl("get cm c -o name").prints("configmap/c");
    cluster.kubectl("delete cm --all").shows(&["configmap \"c\" deleted"]);
}

#[test]
fn a_wait_ends_when_a_field_has_its_value() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(CONFIG).succeeds();
    let waiting = cluster.follow("wait --for=jsonpath={.data.a}=done cm/c --timeout=20s");
    cluster.kubectl("patch cm c --type=merge -p {\"data\":{\"a\":\"done\"}}").succeeds();
    waiting.wait_for("configmap/c condition met");
    cluster
        .kubectl("wait --for=jsonpath={.data.a}=never cm/c --timeout=1s")
        .fails("error: timed out waiting for the condition on configmaps/c");
}

#[test]
fn a_namespace_takes_its_content_along() {
    let Some(cluster) = Cluster::start() else { return };
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: team}}";
    cluster.apply(namespace).prints("namespace/team created");
    cluster.kubectl("get ns team").shows(&["NAME STATUS AGE", "team Active"]);
    cluster.eventually("get sa -n team -o name", "serviceaccount/default");
    cluster
        .apply(&CONFIG.replace("name: c", "name: c, namespace: team, finalizers: [a.b/hold]"))
        .succeeds();
    cluster.kubectl("delete ns team --wait=false").prints("namespace \"team\" deleted");
    cluster.eventually("get ns team -o jsonpath={.status.phase}", "Terminating");
    cluster.apply(&CONFIG.replace("name: c", "name: late, namespace: team")).fails(
        "Error from server (Forbidden): error when creating \"STDIN\": configmaps \"late\" is \
         forbidden: unable to create new content in namespace team because it is being terminated",
    );
    cluster
        .kubectl("patch cm c -n team --type=merge -p {\"metadata\":{\"finalizers\":null}}")
        .succeeds();
    cluster.kubectl("wait --for=delete ns/team --timeout=20s").succeeds();
    cluster
        .kubectl("get cm -A -o jsonpath={.items[?(@.metadata.namespace==\"team\")].kind}")
        .prints("");
    cluster.apply(namespace).prints("namespace/team created");
    cluster.kubectl("get cm c -n team --ignore-not-found").prints("");
}

#[test]
fn the_first_namespaces_stay() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("delete ns default").fails(
        "Error from server (Forbidden): namespaces \"default\" is forbidden: this namespace may not be deleted",
    );
}
