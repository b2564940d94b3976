//! Policies of administrators, as a user of kubectl applies and meets them.

use std::{fs, path::Path};

use crate::cluster::Cluster;

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    fs::read_to_string(root.join("examples").join(name)).unwrap()
}

fn pod(name: &str, variable: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [\
           {{name: x, image: busybox, env: [{{name: '{variable}', value: v}}]}}]}}}}"
    )
}

/// KEP-4369
#[test]
fn strict_names_come_back_by_a_policy_kep_4369() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(&example("strict-env-names.yaml")).prints(
        "validatingadmissionpolicy.admissionregistration.k8s.io/strict-env-names created\n\
         validatingadmissionpolicybinding.admissionregistration.k8s.io/strict-env-names created",
    );
    cluster.apply(&pod("free", "a b")).prints("pod/free created");
    cluster.kubectl("label namespace default env-names=strict").prints("namespace/default labeled");
    let ran = cluster.apply(&pod("odd", "a b"));
    assert!(
        ran.stderr.contains(
            "ValidatingAdmissionPolicy 'strict-env-names' with binding 'strict-env-names' denied \
             request: names of variables: letters, digits"
        ),
        "{ran:#?}"
    );
    cluster.apply(&pod("fine", "A")).prints("pod/fine created");
    cluster
        .kubectl("get validatingadmissionpolicies")
        .shows(&["NAME VALIDATIONS PARAMKIND AGE", "strict-env-names 3 <unset>"]);
    // Applied again nothing changes, and deleted it no longer counts.
    cluster.apply(&example("strict-env-names.yaml")).shows(&["unchanged"]);
    cluster.kubectl("delete validatingadmissionpolicy strict-env-names").succeeds();
    cluster.apply(&pod("odd", "a b")).prints("pod/odd created");
}

/// KEP-6035
#[test]
fn preloaded_libraries_are_kept_out_of_exec_kep_6035() {
    let Some(cluster) = Cluster::start() else { return };
    cluster.apply(&pod("web", "A")).prints("pod/web created");
    cluster.apply(&example("deny-exec-preload.yaml")).shows(&["deny-exec-preload created"]);
    let exec = |variable: &str| {
        let path = "/api/v1/namespaces/default/pods/web/exec?command=id&stdout=true";
        cluster.kubectl_with_input(&format!("create --raw {path}&env={variable}%3Dx -f -"), "{}")
    };
    let refused = exec("LD_PRELOAD");
    assert!(
        refused.stderr.contains(
            "ValidatingAdmissionPolicy 'deny-exec-preload' with binding 'deny-exec-preload' \
             denied request: exec may not set LD_PRELOAD"
        ),
        "{refused:#?}"
    );
    let admitted = exec("LEVEL");
    assert!(admitted.stderr.contains("does not have a host assigned"), "{admitted:#?}");
}

#[test]
fn a_policy_with_a_mistake_is_refused_with_its_place() {
    let Some(cluster) = Cluster::start() else { return };
    let broken = example("deny-exec-preload.yaml")
        .replace("size(variables.refused)", "size(variables.refuse");
    let ran = cluster.apply(&broken);
    assert!(
        ran.stderr.contains("spec.validations[0].expression: Invalid value")
            && ran.stderr.contains("compilation failed: ERROR: <input>:1:"),
        "{ran:#?}"
    );
}
