//! Commands of kubectl that send their objects as protobuf.

use crate::cluster::Cluster;

#[test]
fn kubectl_sends_typed_bodies() {
    let Some(cluster) = Cluster::start() else { return };
    let prints = |line: &str, expected: &str| cluster.kubectl(line).prints(expected);
    prints("create ns team", "namespace/team created");
    prints("create cm c --from-literal=a=b", "configmap/c created");
    prints("get cm c -o jsonpath={.data}", r#"{"a":"b"}"#);
    prints("create secret generic s --from-literal=p=q", "secret/s created");
    prints("get secret s -o jsonpath={.data.p}", "cQ==");
    prints("create sa robot", "serviceaccount/robot created");
    let token = cluster.kubectl("create token robot --duration=15m").succeeds().stdout.clone();
    let whoami =
        format!("--token={} auth whoami -o jsonpath={{.status.userInfo.username}}", token.trim());
    prints(&whoami, "system:serviceaccount:default:robot");
    prints(
        "create role reader --verb=get,list --resource=pods",
        "role.rbac.authorization.k8s.io/reader created",
    );
    prints(
        "create rolebinding readers --role=reader --user=alice",
        "rolebinding.rbac.authorization.k8s.io/readers created",
    );
    prints(
        "create clusterrole nodes --verb=get --resource=nodes",
        "clusterrole.rbac.authorization.k8s.io/nodes created",
    );
    prints("auth can-i create pods", "yes");
    let asked = cluster.kubectl_as("alice", "auth can-i list pods");
    asked.prints("yes");
    let refused = cluster.kubectl_as("alice", "auth can-i delete pods");
    assert_eq!(refused.stdout.trim(), "no", "{refused:#?}");
    cluster.kubectl_as("alice", "auth can-i --list").shows(&["pods [] [] [get list]"]);
    cluster
        .kubectl_as("alice", "auth whoami")
        .shows(&["Username alice", "Groups [devs system:authenticated]"]);
}
