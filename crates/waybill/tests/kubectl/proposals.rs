//! The rules of the proposals, as a user of kubectl meets them.

use crate::cluster::Cluster;

fn pod(name: &str, env: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{\
           volumes: [{{name: cfg, emptyDir: {{}}}}], \
           containers: [{{name: x, image: busybox, env: {env}}}]}}}}"
    )
}

const CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: ProviderClass
metadata: {name: vault}
spec: {driver: d.example.com, parameters: {allowedNamespaces: default, allowedFields: 'secret/*'}}
";

/// NAME-08
#[test]
fn relaxed_names_are_taken_and_an_equals_sign_is_not() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(&pod("odd", "[{name: 'a.b c-1!', value: v}]")).prints("pod/odd created");
    cluster.kubectl("get pod odd -o jsonpath={.spec.containers[0].env[0].name}").prints("a.b c-1!");
    let ran = cluster.apply(&pod("bad", "[{name: A=B, value: v}]"));
    assert!(
        ran.stderr.starts_with(
            "The Pod \"bad\" is invalid: spec.containers[0].env[0].name: Invalid value: \"A=B\""
        ),
        "{ran:#?}"
    );
}

/// FILE-05
#[test]
fn every_mistake_in_a_pod_is_listed() {
    let Some(cluster) = Cluster::start() else { return };
    let env = "[{name: A, valueFrom: {fileKeyRef: {volumeName: nope, path: ../x, key: K}}}, {name: '', value: q}]";
    cluster.apply(&pod("bad", env)).fails(
        "The Pod \"bad\" is invalid: \n\
         * spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: \"../x\": must not contain '..'\n\
         * spec.containers[0].env[1].name: Required value\n\
         * spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: \"nope\"",
    );
    let good = "[{name: A, valueFrom: {fileKeyRef: {volumeName: cfg, path: app.env, key: K}}}]";
    cluster.apply(&pod("good", good)).prints("pod/good created");
    cluster
        .kubectl("get pod good -o jsonpath={.spec.containers[0].env[0].valueFrom.fileKeyRef}")
        .prints(r#"{"key":"K","optional":false,"path":"app.env","volumeName":"cfg"}"#);
}

/// CSI-13
#[test]
fn a_pod_may_name_a_class_only_if_its_account_may_use_it() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(CLASS).prints("providerclass.storage.k8s.io/vault created");
    cluster
        .kubectl("get providerclasses")
        .shows(&["NAME DRIVER NAMESPACES AGE", "vault d.example.com default"]);
    let env = "[{name: A, valueFrom: {csiSecretRef: {driver: d.example.com, providerClassName: vault, key: secret/x}}}]";
    cluster.apply(&pod("csi", env)).fails(
        "Error from server (Forbidden): error when creating \"STDIN\": pods \"csi\" is forbidden: \
         access denied to ProviderClass \"vault\": service account default/default needs the verb \
         \"use\" on providerclasses.storage.k8s.io",
    );
    cluster.apply("
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: use-vault}
rules: [{apiGroups: [storage.k8s.io], resources: [providerclasses], resourceNames: [vault], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: use-vault}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: use-vault}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
").succeeds();
    cluster.apply(&pod("csi", env)).prints("pod/csi created");
    let ran = cluster.apply(&pod("other", &env.replace("secret/x", "public/x")));
    assert!(ran.stderr.contains("Forbidden"), "{ran:#?}");
}

/// CSI-17
#[test]
fn immutable_fields_of_a_class_stay() {
    let Some(cluster) = Cluster::start() else { return };
    let class = CLASS.replace(
        "{name: vault}",
        "{name: vault, annotations: {storage.k8s.io/immutable-parameters: 'driver,parameters.role'}}",
    );
    cluster.apply(&class).succeeds();
    let ran = cluster.apply(&class.replace("d.example.com", "e.example.com"));
    assert!(ran.stderr.contains("is invalid: spec.driver"), "{ran:#?}");
    cluster.kubectl("get providerclass vault -o jsonpath={.spec.driver}").prints("d.example.com");
}
