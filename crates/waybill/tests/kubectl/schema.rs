//! What the server says about itself.

use crate::cluster::Cluster;

#[test]
fn resources_and_versions_are_discovered() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("api-resources").shows(&[
        "NAME SHORTNAMES APIVERSION NAMESPACED KIND",
        "configmaps cm v1 true ConfigMap",
        "nodes no v1 false Node",
        "leases coordination.k8s.io/v1 true Lease",
        "providerclasses storage.k8s.io/v1 false ProviderClass",
    ]);
    cluster
        .kubectl("api-resources --namespaced=false --api-group=rbac.authorization.k8s.io -o name")
        .prints(
            "clusterrolebindings.rbac.authorization.k8s.io\nclusterroles.rbac.authorization.k8s.io",
        );
    cluster.kubectl("api-resources --verbs=deletecollection -o name").shows(&["pods"]);
    cluster.kubectl("api-versions").prints(
        "admissionregistration.k8s.io/v1\nauthentication.k8s.io/v1\nauthorization.k8s.io/v1\n\
         certificates.k8s.io/v1\ncoordination.k8s.io/v1\ndiscovery.k8s.io/v1\nevents.k8s.io/v1\n\
         node.k8s.io/v1\nrbac.authorization.k8s.io/v1\nscheduling.k8s.io/v1\nstorage.k8s.io/v1\n\
         storage.k8s.io/v1alpha1\nv1",
    );
}

#[test]
fn the_version_is_one_that_kubectl_takes() {
    let Some(cluster) = Cluster::start() else { return };
    let version = cluster.kubectl("version -o json").json();
    assert_eq!(version["serverVersion"]["major"], "1", "{version}");
}

#[test]
fn fields_are_explained() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.kubectl("explain pod --recursive").shows(&[
        "KIND: Pod",
        "VERSION: v1",
        "containers <[]Container> -required-",
        "fileKeyRef <FileKeySelector>",
    ]);
    cluster.kubectl("explain providerclass --recursive").shows(&[
        "GROUP: storage.k8s.io",
        "KIND: ProviderClass",
        "driver <string>",
        "parameters <map[string]string>",
    ]);
    cluster
        .kubectl("explain pod.spec.containers.env")
        .shows(&["FIELD: env <[]EnvVar>", "name <string> -required-"]);
    cluster.kubectl("explain pod.spec.nothing").fails("error: field \"nothing\" does not exist");
}
