//! What `kubectl get` and `describe` print.

use crate::cluster::Cluster;

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: hunter2}
";

#[test]
fn get_prints_in_every_format() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(SECRET).prints("secret/key created");
    cluster.kubectl("get secret").shows(&["NAME TYPE DATA AGE", "key Opaque 1 "]);
    cluster.kubectl("get secret key -o wide").shows(&["NAME TYPE DATA AGE"]);
    cluster.kubectl("get secret key -o name").prints("secret/key");
    cluster.kubectl("get secret key -o yaml").shows(&["apiVersion: v1", "password: aHVudGVyMg=="]);
    assert_eq!(cluster.kubectl("get secret key -o json").json()["type"], "Opaque");
    cluster.kubectl("get secret key -o jsonpath={.data.password}").prints("aHVudGVyMg==");
    cluster
        .kubectl("get secret key -o custom-columns=N:.metadata.name,T:.type")
        .prints("N     T\nkey   Opaque");
    cluster.kubectl("get secret key -o go-template={{.kind}}").prints("Secret");
    cluster.kubectl("get secret --no-headers -o name").prints("secret/key");
    cluster.kubectl("get ns,secret -o name").shows(&["namespace/kube-system", "secret/key"]);
    cluster.kubectl("get secret -A").shows(&["NAMESPACE NAME TYPE DATA AGE", "default key Opaque"]);
    cluster.kubectl("get secret --show-labels").shows(&["AGE LABELS", "<none>"]);
    cluster.kubectl("get pods").prints("");
    cluster.kubectl("get secret --sort-by=.metadata.name").shows(&["key Opaque"]);
}

#[test]
fn describe_shows_a_secret_without_its_values() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(SECRET).succeeds();
    let ran = cluster.kubectl("describe secret key");
    ran.shows(&["Name: key", "Type: Opaque", "password: 7 bytes"]);
    assert!(!ran.stdout.contains("hunter2"));
}

#[test]
fn describe_shows_a_node_and_its_pods() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.add_ready_node("n1");
    cluster.kubectl("run web --image=busybox").succeeds();
    cluster.eventually("get pod web -o jsonpath={.spec.nodeName}", "n1");
    cluster.kubectl("describe node n1").shows(&[
        "Name: n1",
        "Capacity:",
        "Non-terminated Pods: (1 in total)",
        "default web",
    ]);
    cluster.kubectl("get nodes -o wide").shows(&["n1 Ready <none>", "OS-IMAGE"]);
}

#[test]
fn a_watch_sees_changes() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(SECRET).succeeds();
    let watch = cluster.follow("get secret -w --output-watch-events");
    watch.wait_for("ADDED key Opaque 1");
    cluster.kubectl("patch secret key --type=merge -p {\"stringData\":{\"b\":\"c\"}}").succeeds();
    watch.wait_for("MODIFIED key Opaque 2");
    cluster.kubectl("delete secret key").prints("secret \"key\" deleted");
    watch.wait_for("DELETED key Opaque 2");
}

#[test]
fn raw_paths_answer() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("get --raw /healthz").prints("ok");
    cluster.kubectl("get --raw /readyz").prints("ok");
    cluster.kubectl("get --raw /readyz?verbose").shows(&["[+]ping ok", "readyz check passed"]);
    cluster.kubectl("get --raw /metrics").shows(&["apiserver_request_total"]);
    let list = cluster.kubectl("get --raw /api/v1/namespaces").json();
    assert_eq!(list["kind"], "NamespaceList");
    cluster
        .kubectl("get --raw /nothing")
        .fails("Error from server (NotFound): the server could not find the requested resource");
}
