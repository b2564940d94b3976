//! Pods without a node agent: bound, described, marked for deletion, confirmed.

use crate::cluster::Cluster;

#[test]
fn a_pod_gets_a_ready_node_and_an_event_says_so() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("run web --image=busybox -- sleep 9").prints("pod/web created");
    cluster.eventually("get events -o jsonpath={.items[*].reason}", "FailedScheduling");
    cluster.kubectl("get events").shows(&[
        "LAST SEEN TYPE REASON OBJECT MESSAGE",
        "Warning FailedScheduling pod/web no nodes available to schedule pods",
    ]);
    cluster.add_ready_node("n1");
    cluster
        .kubectl("wait --for=condition=PodScheduled pod/web --timeout=20s")
        .prints("pod/web condition met");
    cluster.kubectl("get pods -o wide").shows(&[
        "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
        "web 0/1 Pending 0",
        "<none> n1 <none> <none>",
    ]);
    cluster.eventually(
        "get events --field-selector=reason=Scheduled -o jsonpath={.items[*].message}",
        "Successfully assigned default/web to n1",
    );
    cluster
        .kubectl("events --for pod/web")
        .shows(&["Normal Scheduled Pod/web Successfully assigned default/web to n1"]);
    cluster.kubectl("describe pod web").shows(&[
        "Name: web",
        "Node: n1/",
        "Service Account: default",
        "PodScheduled True",
        "QoS Class: BestEffort",
        "Successfully assigned default/web to n1",
    ]);
    cluster
        .kubectl("get pods --field-selector=spec.nodeName=n1,status.phase=Pending -o name")
        .prints("pod/web");
    cluster.kubectl("get pods --field-selector=spec.nodeName=n2 -o name").prints("");
}

#[test]
fn a_bound_pod_is_gone_only_when_its_node_confirms() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.add_ready_node("n1");
    cluster.kubectl("run web --image=busybox").succeeds();
    cluster.eventually("get pod web -o jsonpath={.spec.nodeName}", "n1");
    cluster.kubectl("delete pod web --wait=false --grace-period=7").prints("pod \"web\" deleted");
    cluster.kubectl("get pod web").shows(&["web 0/1 Terminating"]);
    cluster.kubectl("get pod web -o jsonpath={.metadata.deletionGracePeriodSeconds}").prints("7");
    // A longer grace period than the one given does not prolong it.
    cluster.kubectl("delete pod web --wait=false --grace-period=60").succeeds();
    cluster.kubectl("get pod web -o jsonpath={.metadata.deletionGracePeriodSeconds}").prints("7");
    cluster.kubectl("delete pod web --force --grace-period=0").prints("pod \"web\" force deleted");
    cluster.kubectl("get pod web --ignore-not-found").prints("");
}

#[test]
fn a_pod_without_a_node_goes_at_once() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("run web --image=busybox").succeeds();
    cluster.kubectl("delete pod web --timeout=20s").prints("pod \"web\" deleted");
}

#[test]
fn logs_of_a_pod_without_a_node_are_refused_clearly() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("run web --image=busybox").succeeds();
    let ran = cluster.kubectl("exec web -- true");
    assert!(ran.stderr.contains("pod web does not have a host assigned"), "{ran:#?}");
}

#[test]
fn most_of_a_pod_cannot_be_changed() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("run web --image=busybox").succeeds();
    let ran = cluster.kubectl("patch pod web --type=merge -p {\"spec\":{\"hostname\":\"x\"}}");
    assert!(
        ran.stderr.starts_with(
            "The Pod \"web\" is invalid: spec: Forbidden: pod updates may not change fields other \
             than `spec.containers[*].image`"
        ),
        "{ran:#?}"
    );
}
