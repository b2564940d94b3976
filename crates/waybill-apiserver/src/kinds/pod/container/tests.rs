//! Tables of containers, and the errors they earn.

use serde_json::json;

use super::super::testing::{check_container, check_spec};

#[test]
fn names_and_images() {
    let bare = |name: &str| json!({"name": name, "image": "i"});
    check_spec(
        &json!({"containers": [{}]}),
        &["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
    );
    check_spec(
        &json!({"containers": [bare("A")]}),
        &["spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must"],
    );
    check_spec(
        &json!({"containers": [bare("a"), bare("a")], "initContainers": [bare("a"), bare("b")]}),
        &[
            "spec.containers[1].name: Duplicate value: \"a\"",
            "spec.initContainers[0].name: Duplicate value: \"a\"",
        ],
    );
    check_container(
        &json!({"image": " i"}),
        &["spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whi"],
    );
}

#[test]
fn policies_are_closed_sets() {
    check_container(
        &json!({"imagePullPolicy": "Odd", "terminationMessagePolicy": "Odd", "restartPolicy": "Never"}),
        &[
            "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Odd\": supported val",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Odd\": supported values: \
             \"Always\", \"IfNotPresent\", \"Never\"",
            "spec.containers[0].restartPolicy: Forbidden: may not be set for non-init containers",
        ],
    );
}

#[test]
fn ports() {
    let at = "spec.containers[0].ports";
    check_container(&json!({"ports": [{"containerPort": 80, "name": "http"}]}), &[]);
    check_container(
        &json!({"ports": [{}, {"containerPort": 70000, "hostPort": -1, "protocol": "X", "name": "A"}]}),
        &[
            &format!("{at}[0].containerPort: Required value"),
            &format!("{at}[1].name: Invalid value: \"A\": must contain only alpha-numeric charact"),
            &format!("{at}[1].name: Invalid value: \"A\": must contain at least one letter (a-z)"),
            &format!("{at}[1].containerPort: Invalid value: 70000: must be between 1 and 65535, i"),
            &format!("{at}[1].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive"),
            &format!(
                "{at}[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP"
            ),
        ],
    );
    check_container(
        &json!({"ports": [{"containerPort": 1, "name": "a", "hostPort": 9},
            {"containerPort": 1, "name": "a", "hostPort": 9}]}),
        &[
            &format!("{at}[1].name: Duplicate value: \"a\""),
            &format!("{at}[1].hostPort: Duplicate value: \"TCP//9\""),
        ],
    );
    check_spec(
        &json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i",
            "ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 3}]}]}),
        &["spec.containers[0].ports[1].hostPort: Invalid value: 3: must match `containerPort` whe"],
    );
}

#[test]
fn mounts() {
    let at = "spec.containers[0].volumeMounts";
    check_container(
        &json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/b"}]}),
        &[],
    );
    check_container(
        &json!({"volumeMounts": [{"name": "w"}, {"name": "v", "mountPath": "/v", "subPath": "../a"},
            {"name": "v", "mountPath": "/v", "subPath": "/a", "mountPropagation": "Bidirectional"}]}),
        &[
            &format!("{at}[0].name: Not found: \"w\""),
            &format!("{at}[0].mountPath: Required value"),
            &format!("{at}[1].subPath: Invalid value: \"../a\": must not contain '..'"),
            &format!("{at}[2].mountPath: Invalid value: \"/v\": must be unique"),
            &format!("{at}[2].subPath: Invalid value: \"/a\": must be a relative path"),
            &format!(
                "{at}[2].mountPropagation: Forbidden: Bidirectional mount propagation is avai"
            ),
        ],
    );
}

#[test]
fn init_containers_restart_always_or_never() {
    let init = |fields: serde_json::Value| {
        let mut container = json!({"name": "i", "image": "i"});
        for (key, value) in fields.as_object().unwrap() {
            container[key] = value.clone();
        }
        json!({"initContainers": [container]})
    };
    let probe = json!({"tcpSocket": {"port": 1}});
    check_spec(&init(json!({"restartPolicy": "Always", "livenessProbe": probe})), &[]);
    check_spec(
        &init(json!({"restartPolicy": "Never"})),
        &["spec.initContainers[0].restartPolicy: Unsupported value: \"Never\": supported values: \
           \"Always\""],
    );
    check_spec(
        &init(json!({"livenessProbe": probe})),
        &["spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers wi"],
    );
}
