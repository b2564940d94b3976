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
        &json!({"imagePullPolicy": "Odd", "terminationMessagePolicy": "Odd", "restartPolicy": "Odd"}),
        &[
            "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Odd\": supported val",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Odd\": supported values: \
             \"Always\", \"IfNotPresent\", \"Never\"",
            "spec.containers[0].restartPolicy: Unsupported value: \"Odd\": supported values: \
             \"Always\", \"Never\", \"OnFailure\"",
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
fn devices_are_claims_and_no_mounts() {
    let at = "spec.containers[0]";
    let container = |devices: serde_json::Value, mounts: serde_json::Value| {
        json!({
            "containers": [{"name": "c", "image": "i",
                "volumeDevices": devices, "volumeMounts": mounts}],
            "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "dir", "emptyDir": {}}],
        })
    };
    check_spec(
        &container(
            json!([{"name": "disk", "devicePath": "/dev/x"}]),
            json!([{"name": "dir", "mountPath": "/v"}]),
        ),
        &[],
    );
    check_spec(
        &container(
            json!([{"name": "dir", "devicePath": "/v"}, {"name": "disk", "devicePath": "/a/../b"},
                {"name": "disk"}]),
            json!([{"name": "dir", "mountPath": "/v"}]),
        ),
        &[
            &format!("{at}.volumeMounts[0].name: Invalid value: \"dir\": must not already exist i"),
            &format!(
                "{at}.volumeMounts[0].mountPath: Invalid value: \"/v\": must not already exis"
            ),
            &format!(
                "{at}.volumeDevices[0].name: Invalid value: \"dir\": can only use volume sour"
            ),
            &format!(
                "{at}.volumeDevices[0].name: Invalid value: \"dir\": must not already exist i"
            ),
            &format!(
                "{at}.volumeDevices[0].devicePath: Invalid value: \"/v\": must not already ex"
            ),
            &format!(
                "{at}.volumeDevices[1].devicePath: Invalid value: \"/a/../b\": can not contain"
            ),
            &format!("{at}.volumeDevices[2].name: Invalid value: \"disk\": must be unique"),
            &format!("{at}.volumeDevices[2].devicePath: Required value"),
        ],
    );
}

#[test]
fn read_only_reaches_deep_only_where_it_is_asked_for() {
    let at = "spec.containers[0].volumeMounts[0].recursiveReadOnly";
    let mount = |fields: serde_json::Value| {
        let mut mount = fields;
        mount["name"] = "v".into();
        mount["mountPath"] = "/v".into();
        json!({"volumeMounts": [mount]})
    };
    check_container(&mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true})), &[]);
    check_container(
        &mount(json!({"recursiveReadOnly": "IfPossible", "mountPropagation": "HostToContainer"})),
        &[
            &format!("{at}: Forbidden: may only be specified when readOnly is true"),
            &format!("{at}: Forbidden: may only be specified when mountPropagation is None or not"),
        ],
    );
    check_container(
        &mount(json!({"recursiveReadOnly": "Odd"})),
        &[&format!("{at}: Unsupported value: \"Odd\": supported values: \"Disabled\"")],
    );
}

#[test]
fn resizing_restarts_or_does_not() {
    let at = "spec.containers[0].resizePolicy";
    let policy =
        |name: &str, restart: &str| json!({"resourceName": name, "restartPolicy": restart});
    let container =
        |policies: serde_json::Value| json!({"name": "c", "image": "i", "resizePolicy": policies});
    let good = json!([policy("cpu", "NotRequired"), policy("memory", "RestartContainer")]);
    check_spec(&json!({"containers": [container(good.clone())]}), &[]);
    check_spec(
        &json!({"containers": [container(good)], "restartPolicy": "Never"}),
        &[&format!("{at}: Invalid value: \"RestartContainer\": must be 'NotRequired' when")],
    );
    check_spec(
        &json!({"containers": [container(json!([policy("gpu", "Odd"), policy("gpu", "")]))]}),
        &[
            &format!("{at}: Unsupported value: \"gpu\": supported values: \"cpu\", \"memory\""),
            &format!("{at}: Unsupported value: \"Odd\": supported values: \"NotRequired\", \"Re"),
            &format!("{at}[1]: Duplicate value: \"gpu\""),
            &format!("{at}: Unsupported value: \"gpu\": supported values: \"cpu\", \"memory\""),
            &format!("{at}: Required value"),
        ],
    );
}

#[test]
fn init_containers_that_do_not_restart_always_have_no_probes() {
    let init = |fields: serde_json::Value| {
        let mut container = json!({"name": "i", "image": "i"});
        for (key, value) in fields.as_object().unwrap() {
            container[key] = value.clone();
        }
        json!({"initContainers": [container]})
    };
    let probe = json!({"tcpSocket": {"port": 1}});
    check_spec(&init(json!({"restartPolicy": "Always", "livenessProbe": probe})), &[]);
    check_spec(&init(json!({"restartPolicy": "Never"})), &[]);
    check_spec(
        &init(json!({"livenessProbe": probe})),
        &["spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers wi"],
    );
}
