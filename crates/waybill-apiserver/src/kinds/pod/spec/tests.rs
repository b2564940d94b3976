//! Tables of pod specs, and the errors they earn.

use serde_json::json;

use super::super::testing::{check_spec, pod};
use crate::kinds::{pod::Pod, testing::check_create};

#[test]
fn a_pod_has_containers() {
    check_spec(&json!({}), &[]);
    check_spec(&json!({"containers": null}), &["spec.containers: Required value"]);
    check_spec(&json!({"containers": []}), &["spec.containers: Required value"]);
}

#[test]
fn policies_are_closed_sets() {
    check_spec(
        &json!({"restartPolicy": "Sometimes", "dnsPolicy": "Odd", "preemptionPolicy": "Odd"}),
        &[
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
             \"OnFailure\", \"Never\"",
            "spec.dnsPolicy: Unsupported value: \"Odd\": supported values: \"ClusterFirstWithHostNet\"",
            "spec.preemptionPolicy: Unsupported value: \"Odd\": supported values: \"PreemptLower",
        ],
    );
}

#[test]
fn names_of_other_things() {
    check_spec(
        &json!({"nodeName": "A", "hostname": "a.b", "subdomain": "_", "serviceAccountName": "B"}),
        &[
            "spec.serviceAccountName: Invalid value: \"B\": a lowercase RFC 1123 subdomain",
            "spec.nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
            "spec.hostname: Invalid value: \"a.b\": must not contain dots",
            "spec.subdomain: Invalid value: \"_\": a lowercase RFC 1123 label",
        ],
    );
    check_spec(
        &json!({"nodeSelector": {"a b": "c"}}),
        &["spec.nodeSelector: Invalid value: \"a b\": name part must consist of"],
    );
}

#[test]
fn the_name_of_the_machine() {
    check_spec(&json!({"hostnameOverride": "a.example", "hostname": "h"}), &[]);
    check_spec(
        &json!({"hostnameOverride": "A", "hostNetwork": true, "setHostnameAsFQDN": true}),
        &[
            "spec.hostnameOverride: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
            "spec.hostnameOverride: Forbidden: may not be set when `hostNetwork` is true",
            "spec.hostnameOverride: Forbidden: may not be set when `setHostnameAsFQDN` is true",
        ],
    );
    check_spec(
        &json!({"hostnameOverride": "a".repeat(65)}),
        &["spec.hostnameOverride: Too long: may not be more than 64 bytes"],
    );
}

#[test]
fn numbers_and_tolerations() {
    check_spec(
        &json!({"activeDeadlineSeconds": 0, "tolerations": [{"operator": "Odd", "key": "a"}]}),
        &[
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inc",
            "spec.tolerations[0].operator: Unsupported value: \"Odd\": supported values: \"Equal\"",
        ],
    );
}

#[test]
fn gates_hold_a_pod_back() {
    check_spec(&json!({"schedulingGates": [{"name": "a/b"}]}), &[]);
    check_spec(
        &json!({"schedulingGates": [{"name": "a"}, {"name": "a"}], "nodeName": "n"}),
        &[
            "spec.schedulingGates[1]: Duplicate value: \"a\"",
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ],
    );
}

#[test]
fn ephemeral_containers_come_later() {
    check_spec(
        &json!({"ephemeralContainers": [{"name": "e", "image": "i"}]}),
        &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    );
}

#[test]
fn a_mirror_pod_has_a_node() {
    let mut mirror = pod(&json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    check_create(
        &Pod,
        &mirror,
        &["metadata.annotations[kubernetes.io/config.mirror]: Invalid value: \"x\": must set spec"],
    );
}

#[test]
fn own_users_exclude_the_hosts_namespaces() {
    check_spec(
        &json!({"hostUsers": false, "hostNetwork": true}),
        &["spec.hostNetwork: Forbidden: when `hostUsers` is false"],
    );
    check_spec(
        &json!({"hostUsers": false, "hostPID": true, "hostIPC": true}),
        &[
            "spec.HostPID: Forbidden: when `hostUsers` is false",
            "spec.HostIPC: Forbidden: when `hostUsers` is false",
        ],
    );
    check_spec(&json!({"hostUsers": false}), &[]);
}

/// Nobody maps the ids of a device.
#[test]
fn own_users_have_no_devices_as_volumes() {
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "v"}});
    let spec = |users: bool| {
        json!({"hostUsers": users, "volumes": [claim], "containers": [{
            "name": "c", "image": "i", "terminationMessagePolicy": "File",
            "volumeDevices": [{"name": "v", "devicePath": "/dev/v"}],
        }]})
    };
    check_spec(&spec(true), &[]);
    check_spec(
        &spec(false),
        &["spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false"],
    );
}
