//! `waybill migrate` against a cluster, and what kubectl sees of it.

use std::fs;

use crate::cluster::Cluster;

/// The API server does not serve the kind, so the class comes from a file, as it would from a
/// repository.
const CLASS: &str = "
apiVersion: secrets-store.csi.x-k8s.io/v1
kind: SecretProviderClass
metadata: {name: db, namespace: default}
spec:
  provider: vault
  parameters:
    vaultAddress: https://vault.example:8200
    roleName: app
    objects: |
      - {objectName: pw, secretPath: secret/data/db, secretKey: password}
  secretObjects:
  - {secretName: db, type: Opaque, data: [{objectName: pw, key: password}]}
";

const WORKLOAD: &str = "
apiVersion: v1
kind: PodTemplate
metadata: {name: web, namespace: default}
template:
  spec:
    containers:
    - name: app
      image: busybox
      env:
      - {name: DB_PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
";

const VALUE_FROM: &str =
    "get podtemplate web -o jsonpath={.template.spec.containers[0].env[0].valueFrom}";

/// CSI-70
#[test]
fn a_cluster_is_shown_its_changes_first_and_can_go_back_csi_70() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let class = folder.path().join("class.yaml");
    fs::write(&class, CLASS).unwrap();
    cluster.apply(WORKLOAD).succeeds();
    let before = cluster.kubectl(VALUE_FROM).stdout;

    let migrate = |more: &[&str]| {
        let class = class.display().to_string();
        let arguments = ["migrate", "secrets-store", "--in-cluster", "-f", &class];
        cluster.waybill(&[&arguments, more].concat())
    };
    migrate(&[]).shows(&["+ csiSecretRef:", "+kind: ProviderClass", "+ - use"]);
    cluster.kubectl(VALUE_FROM).prints(&before);
    cluster.kubectl("get providerclasses -o name").prints("");

    migrate(&["--write"]).shows(&[
        "providerclass.storage.k8s.io/default.db written",
        "rolebinding.rbac.authorization.k8s.io/providerclass-user-default.db written",
        "podtemplate/web written",
    ]);
    cluster.kubectl(VALUE_FROM).shows(&["csiSecretRef", "vault.csi.waybill.dev", "secret/data/db"]);
    cluster
        .kubectl(
            "auth can-i use providerclasses/default.db --as=system:serviceaccount:default:default",
        )
        .shows(&["yes"]);

    migrate(&["--reverse", "--write"]).shows(&["podtemplate/web written"]);
    cluster.kubectl(VALUE_FROM).prints(&before);
}
