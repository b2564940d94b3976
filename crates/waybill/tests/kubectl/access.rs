//! Who may do what.

use crate::cluster::Cluster;

const READ_PODS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]
";

#[test]
fn a_user_without_rights_is_told_what_is_missing() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl_as("alice", "get pods").fails(
        "Error from server (Forbidden): pods is forbidden: User \"alice\" cannot list resource \
         \"pods\" in API group \"\" in the namespace \"default\"",
    );
    cluster.kubectl_as("alice", "get node n1").fails(
        "Error from server (Forbidden): nodes \"n1\" is forbidden: User \"alice\" cannot get \
         resource \"nodes\" in API group \"\" at the cluster scope",
    );
    cluster
        .kubectl_as("mallory", "get pods")
        .fails("error: You must be logged in to the server (Unauthorized)");
}

#[test]
fn a_binding_grants_what_its_role_says_and_no_more() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(READ_PODS).prints(
        "role.rbac.authorization.k8s.io/reader created\nrolebinding.rbac.authorization.k8s.io/readers created",
    );
    cluster.kubectl("run web --image=busybox").succeeds();
    cluster.kubectl_as("alice", "get pods -o name").prints("pod/web");
    cluster.kubectl_as("alice", "delete pod web").fails(
        "Error from server (Forbidden): pods \"web\" is forbidden: User \"alice\" cannot delete \
         resource \"pods\" in API group \"\" in the namespace \"default\"",
    );
    let elsewhere = cluster.kubectl_as("alice", "get pods -n kube-system");
    assert!(elsewhere.stderr.contains("in the namespace \"kube-system\""), "{elsewhere:#?}");
    let other = cluster.kubectl_as("bob", "get pods");
    assert!(other.stderr.contains("User \"bob\" cannot list"), "{other:#?}");
    cluster.kubectl("delete rolebinding readers").succeeds();
    let after = cluster.kubectl_as("alice", "get pods");
    assert!(after.stderr.contains("User \"alice\" cannot list"), "{after:#?}");
}

#[test]
fn nobody_grants_more_than_they_have() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(READ_PODS).succeeds();
    cluster.apply("
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: granter}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: ['get', create, update, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: granters}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: granter}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
").succeeds();
    let role = |name: &str, resource: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: {name}}}, \
             rules: [{{apiGroups: [''], resources: [{resource}], verbs: [get]}}]}}"
        )
    };
    let create = "--token=alice-token create -f -";
    cluster
        .kubectl_with_input(create, &role("fine", "pods"))
        .prints("role.rbac.authorization.k8s.io/fine created");
    cluster.kubectl_with_input(create, &role("more", "secrets")).fails(
        "Error from server (Forbidden): error when creating \"STDIN\": \
         roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"alice\" (groups=[\"devs\" \
         \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}",
    );
    let admin = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: up}, \
                 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}, \
                 subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]}";
    let ran = cluster.kubectl_with_input(create, admin);
    assert!(
        ran.stderr.contains("is attempting to grant RBAC permissions not currently held"),
        "{ran:#?}"
    );
}

#[test]
fn who_may_impersonate_acts_with_the_rights_of_the_other_and_not_their_own() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(READ_PODS).succeeds();
    cluster.kubectl("get pods --as carol").fails(
        "Error from server (Forbidden): pods is forbidden: User \"carol\" cannot list resource \
         \"pods\" in API group \"\" in the namespace \"default\"",
    );
    cluster.kubectl("get pods --as carol --as-group devs").succeeds();
    cluster.kubectl("auth can-i list pods --as carol --as-group devs").prints("yes");
    cluster.kubectl("auth can-i delete pods --as carol --as-group devs").fails_with(1, "");
    let whoami = cluster.kubectl("auth whoami --as system:serviceaccount:default:default -o json");
    let groups = &whoami.succeeds().json()["status"]["userInfo"]["groups"];
    assert!(groups.to_string().contains("system:serviceaccounts:default"), "{groups}");
}

#[test]
fn nobody_impersonates_without_the_right_to() {
    let Some(cluster) = Cluster::start() else { return };
    // kubectl keeps what it learns about the API, and shows no reason if it cannot learn that.
    cluster.kubectl("get pods").succeeds();
    cluster.kubectl_as("alice", "get pods --as admin").fails(
        "Error from server (Forbidden): users \"admin\" is forbidden: User \"alice\" cannot \
         impersonate resource \"users\" in API group \"\" at the cluster scope",
    );
    cluster
        .apply(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: as-carol}
rules: [{apiGroups: [''], resources: [users], resourceNames: [carol], verbs: [impersonate]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: as-carol}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: as-carol}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
",
        )
        .succeeds();
    let carol = cluster.kubectl_as("alice", "get pods --as carol");
    assert!(carol.stderr.contains("User \"carol\" cannot list"), "{carol:#?}");
    cluster.kubectl_as("alice", "get pods --as carol --as-group system:masters").fails(
        "Error from server (Forbidden): groups \"system:masters\" is forbidden: User \"alice\" cannot \
         impersonate resource \"groups\" in API group \"\" at the cluster scope",
    );
}
