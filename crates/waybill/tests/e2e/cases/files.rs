//! Variables from env files (KEP-3721): who may take them, when they are read, and every way to fail.

use std::fs;

use waybill_testkit::{
    kubectl::Ran,
    stack::{IMAGE, Stack},
};

use super::{gone, pod, ready};

/// Of several lines, and with everything that a shell would touch.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj
 $HOME $(B) ${B} `id` \\n \"quoted\" # no comment = ü\t.
-----END PRIVATE KEY-----
";

/// In every bad file; nobody may repeat it. A script puts it together, so that its manifest does not.
const CANARY: &str = "hunter2-of-files";
const MAKE_CANARY: &str = "C=hunter2; C=$C-of-files";

/// An old kubectl does not know the field, so the server is asked alone.
fn apply(stack: &Stack, manifest: &str) -> Ran {
    stack.kubectl().with_input(&["apply", "--validate=false", "-f", "-"], manifest)
}

/// An entry of `env` that is the key `key` of the file `path` in volume `v`.
fn from_file(name: &str, path: &str, key: &str) -> String {
    format!(
        "{{name: {name}, valueFrom: {{fileKeyRef: {{volumeName: v, path: {path}, key: {key}}}}}}}"
    )
}

fn optional(name: &str, path: &str, key: &str) -> String {
    from_file(name, path, key).replace("key: ", "optional: true, key: ")
}

/// The variables of a container's first process.
#[track_caller]
fn environ(stack: &Stack, pod: &str, container: &str) -> Vec<String> {
    let line = format!("exec {pod} -c {container} -- cat /proc/1/environ");
    let ran = stack.kubectl().line(&line);
    ran.succeeds().stdout.split_terminator('\0').map(str::to_owned).collect()
}

/// FILE-44: an init container that writes, and consumers of every kind but one.
///
/// FILE-10, FILE-12, FILE-14, FILE-23, FILE-24, FILE-40
pub(super) fn consumers(stack: &Stack) {
    let kubectl = stack.kubectl();
    let out = stack.dir().join("files");
    fs::create_dir(&out).unwrap();
    let script = format!(
        "mkdir /v/d; cat > /v/d/app.env <<'END'\n# for the app\nA='one two'\nB='2'\nKEY='{KEY}'\nNONE=''\nB='last'\nEND\n"
    );
    let path = "d/app.env";
    let [a, b, key, none] = [("A_NAME", "A"), ("B", "B"), ("KEY", "KEY"), ("NONE", "NONE")]
        .map(|(name, key)| from_file(name, path, key));
    let print = "command: [sh, -c, 'echo got $B']";
    let spec = format!(
        "  volumes:
  - {{name: v, emptyDir: {{}}}}
  - {{name: out, hostPath: {{path: {out}, type: Directory}}}}
  initContainers:
  - name: write
    image: {IMAGE}
    command: [sh, -c, {script:?}]
    volumeMounts: [{{name: v, mountPath: /v}}]
  - {{name: check, image: '{IMAGE}', {print}, env: [{b}]}}
  - {{name: side, image: '{IMAGE}', restartPolicy: Always, command: [sleep, '3600'], env: [{b}]}}
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'trap \"exit 0\" TERM; echo \"$0\"; while true; do sleep 0.1; done', '$(A_NAME)']
    env:
    - {a}
    - {key}
    - {none}
    - {{name: MADE, value: <$(A_NAME)>}}
    volumeMounts: [{{name: out, mountPath: /out}}]
    lifecycle:
      postStart: {{exec: {{command: [sh, -c, 'echo \"started with $A_NAME\" >> /out/hooks']}}}}
      preStop: {{exec: {{command: [sh, -c, 'echo \"stopped with $A_NAME\" >> /out/hooks']}}}}
  - {{name: other, image: '{IMAGE}', command: [sleep, '3600'], env: [{b}]}}
",
        out = out.display()
    );
    let manifest = pod("files", &spec).replace("GracePeriodSeconds: 1", "GracePeriodSeconds: 20");
    let applied = apply(stack, &manifest);
    applied.succeeds();
    assert_eq!(applied.stderr, "", "nobody but an init container mounts the volume");
    ready(stack, "files");
    let main = environ(stack, "files", "main");
    for wanted in ["A_NAME=one two", &format!("KEY={KEY}"), "NONE=", "MADE=<one two>"] {
        assert!(main.iter().any(|found| found == wanted), "{wanted:?} is not in {main:#?}");
    }
    assert!(!main.iter().any(|found| found.starts_with("B=") || found.starts_with("A=")));
    assert!(environ(stack, "files", "other").contains(&"B=last".to_owned()));
    assert!(environ(stack, "files", "side").contains(&"B=last".to_owned()));
    kubectl.line("logs files -c check").prints("got last");
    kubectl.line("logs files -c main").prints("one two");
    kubectl
        .run(&["exec", "files", "-c", "main", "--", "sh", "-c", "echo $A_NAME"])
        .prints("one two");
    kubectl.line("exec files -c main -- ls /v").fails_with(1, "No such file");
    // Who uses the feature is asked of the pods themselves.
    let users =
        kubectl.line("get pods -o jsonpath={range.items[*]}{.metadata.name}{..fileKeyRef}{end}");
    users.shows(&["files{\"key\":\"A\""]);
    gone(stack, "files");
    let hooks = fs::read_to_string(out.join("hooks")).unwrap();
    assert_eq!(hooks, "started with one two\nstopped with one two\n");
}

/// FILE-01, FILE-44: a container that is added for debugging.
pub(super) fn ephemeral_consumer(stack: &Stack) {
    let kubectl = stack.kubectl();
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{medium: Memory}}}}]
  initContainers:
  - name: write
    image: {IMAGE}
    command: [sh, -c, {:?}]
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]
",
        "echo \"A='from memory'\" > /v/app.env"
    );
    apply(stack, &pod("file-debug", &spec)).succeeds();
    ready(stack, "file-debug");
    let path = "/api/v1/namespaces/default/pods/file-debug/ephemeralcontainers";
    let add = || {
        let mut object = kubectl.line("get pod file-debug -o json").json();
        object["spec"]["ephemeralContainers"] = serde_json::json!([{
            "name": "debug", "image": IMAGE, "command": ["sleep", "3600"],
            "env": [{"name": "A", "valueFrom": {"fileKeyRef": {
                "volumeName": "v", "path": "app.env", "key": "A"}}}],
        }]);
        kubectl.with_input(&["replace", "--raw", path, "-f", "-"], &object.to_string())
    };
    // The node may write the status in between.
    let mut added = add();
    while added.stderr.contains("(Conflict)") {
        added = add();
    }
    added.succeeds();
    kubectl.eventually_shows(
        "get pod file-debug -o jsonpath={.status.ephemeralContainerStatuses[0].state}",
        "running",
    );
    assert!(environ(stack, "file-debug", "debug").contains(&"A=from memory".to_owned()));
}

/// FILE-27: a value is bytes. containerd hands variables on as JSON, which has none that are no text.
pub(super) fn bytes_that_are_no_text(stack: &Stack) {
    let kubectl = stack.kubectl();
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: write
    image: {IMAGE}
    command: [sh, -c, {:?}]
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'], env: [{}]}}]
",
        format!("{MAKE_CANARY}; printf \"A='$C \\377\\001'\\n\" > /v/app.env"),
        from_file("A", "app.env", "A")
    );
    apply(stack, &pod("bytes", &spec)).succeeds();
    let version = "get nodes -o jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion}";
    let is_containerd = kubectl.line(version).stdout.starts_with("containerd");
    ready(stack, "bytes");
    let script = "tr '\\000' '\\n' < /proc/1/environ | grep -a ^A= | hexdump -C";
    let seen = kubectl.run(&["exec", "bytes", "-c", "main", "--", "sh", "-c", script]);
    seen.shows(&[if is_containerd { "65 73 20 ef bf bd 01 0a" } else { "65 73 20 ff 01 0a" }]);
}

/// FILE-11, FILE-13, FILE-15, OP-20: a file is read at each start, and at no other time.
pub(super) fn each_start_reads_anew(stack: &Stack) {
    let kubectl = stack.kubectl();
    let loyal = "trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{}}}}]
  containers:
  - {{name: main, image: '{IMAGE}', command: [sh, -c, {loyal:?}], env: [{}]}}
  - name: editor
    image: {IMAGE}
    command: [sleep, '3600']
    volumeMounts: [{{name: v, mountPath: /v}}]
",
        from_file("A", "app.env", "A")
    );
    let applied = apply(stack, &pod("anew", &spec));
    applied.succeeds();
    let warning = "Warning: spec.containers[1].volumeMounts[0]: volume \"v\" holds an env file, so only \
                   init containers should mount it";
    assert!(applied.stderr.contains(warning), "{applied:#?}");
    let status = |field: &str| {
        format!(
            "get pod anew -o jsonpath={{.status.containerStatuses[?(@.name==\"main\")].{field}}}"
        )
    };
    let write = |value: &str| {
        let script = format!("echo \"A='{value}'\" > /v/new && mv /v/new /v/app.env");
        kubectl.run(&["exec", "anew", "-c", "editor", "--", "sh", "-c", &script]).succeeds();
    };
    let of_main = || environ(stack, "anew", "main").into_iter().find(|it| it.starts_with("A="));
    kubectl.eventually(&status("state.waiting.reason"), "CreateContainerConfigError");
    kubectl.line(&status("state.waiting.message")).prints(
        "env file \"app.env\" not found in volume \"v\" (variable \"A\" of container \"main\")",
    );
    write("first");
    ready(stack, "anew");
    assert_eq!(of_main().as_deref(), Some("A=first"));
    let before = kubectl.line(&status("containerID")).stdout;
    write("second");
    assert_eq!(of_main().as_deref(), Some("A=first"), "a change reaches no running process");
    kubectl.line(&status("containerID")).prints(&before);
    kubectl.line("exec anew -c main -- kill 1").ends_its_container();
    kubectl.eventually(&status("restartCount"), "1");
    ready(stack, "anew");
    assert_eq!(of_main().as_deref(), Some("A=second"));
}

/// FILE-02, FILE-03, FILE-04, FILE-08: what the API server refuses, and that it does not look for files.
pub(super) fn refused_by_the_server(stack: &Stack) {
    let spec = |volume: &str, entry: &str| {
        format!(
            "  volumes: [{volume}]
  containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'], env: [{entry}]}}]
"
        )
    };
    let good = from_file("A", "app.env", "A");
    let at = "spec.containers[0].env[0].valueFrom.fileKeyRef";
    for (volume, entry, refusal) in [
        ("{name: w, emptyDir: {}}", good.clone(), format!("{at}.volumeName: Not found: \"v\"")),
        (
            "{name: v, hostPath: {path: /tmp}}",
            good.clone(),
            format!(
                "{at}.volumeName: Invalid value: \"v\": referenced volume must be of type emptyDir"
            ),
        ),
        (
            "{name: v, emptyDir: {}}",
            good.replace("path: app.env", "path: /etc/passwd"),
            format!("{at}.path: Invalid value: \"/etc/passwd\": must be a relative path"),
        ),
        (
            "{name: v, emptyDir: {}}",
            good.replace("key: A", "path: app.env"),
            format!("{at}.key: Required value"),
        ),
    ] {
        let ran = apply(stack, &pod("bad-file", &spec(volume, &entry)));
        assert_eq!(ran.code, Some(1), "{ran:#?}");
        assert!(ran.stderr.contains(&refusal), "{refusal:?} is not in {ran:#?}");
    }
    stack.kubectl().line("get pod bad-file").fails_with(1, "not found");
    stack.kubectl().line("get --raw /metrics").shows(&["apiserver_request_total{", "code=\"422\""]);
}

/// FILE-15, FILE-16, FILE-17, FILE-18, FILE-20, FILE-39: the rest of the document's table of failures.
pub(super) fn failures(stack: &Stack) {
    let script = format!(
        "{MAKE_CANARY}; cd /v; echo \"A='fine'\" > good.env; printf \"A='fine'\\nB=$C\\n\" > bad.env; \
         printf \"A='fine'\\n$C;='x'\\n\" > names.env"
    );
    let entries = [
        ("no-file", from_file("A", "none.env", "A")),
        ("no-key", from_file("A", "good.env", "Z")),
        ("bad-file", optional("A", "bad.env", "A")),
        ("bad-name", optional("A", "names.env", "A")),
        ("good", format!("{}, {}", optional("A", "none.env", "A"), optional("B", "good.env", "Z"))),
    ];
    let containers = entries.map(|(name, entry)| {
        format!(
            "  - {{name: {name}, image: '{IMAGE}', command: [sleep, '3600'], env: [{entry}]}}\n"
        )
    });
    check_failures(
        stack,
        "failures",
        &script,
        &containers.concat(),
        &[
            ("no-file", "env file \"none.env\" not found in volume \"v\""),
            (
                "no-key",
                "environment variable key \"Z\" not found in file \"good.env\" of volume \"v\"",
            ),
            (
                "bad-file",
                "couldn't parse env file \"bad.env\" in volume \"v\": line 2, column 3: a value must be \
                 enclosed in single quotes",
            ),
            (
                "bad-name",
                "couldn't parse env file \"names.env\" in volume \"v\": line 2, column 17: a character \
                 in the name that a shell would not take as part of a name",
            ),
        ],
    );
    let good = environ(stack, "failures", "good");
    assert!(!good.iter().any(|it| it.starts_with("A=") || it.starts_with("B=")), "{good:#?}");
    let node = stack.kubectl().line("get nodes -o jsonpath={.items[0].metadata.name}").stdout;
    stack.kubectl().line(&format!("get --raw /api/v1/nodes/{node}/proxy/metrics")).shows(&[
        "kubelet_started_containers_errors_total{container_type=\"container\",code=\"CreateContainerConfigError\"}",
    ]);
}

/// FILE-21, FILE-36, FILE-37: what a pod may put there to lead us astray.
pub(super) fn hostile_files(stack: &Stack) {
    let found = |path: &str| format!("env file {path:?} not found in volume \"v\"");
    let special = |path: &str| format!("env file {path:?} in volume \"v\" is not a regular file");
    let bad =
        |path: &str, why: &str| format!("couldn't parse env file {path:?} in volume \"v\": {why}");
    check_paths(
        stack,
        "hostile-files",
        "cd /v; ln -s /etc/passwd out; ln -s ../../../../../../../../etc/passwd up; \
         ln -s /proc/1/root/etc/passwd magic; ln -s loop loop; mkfifo fifo; mknod zero c 1 5; \
         mkdir directory; ln -s fifo link",
        &[
            ("out", found("out")),
            ("up", found("up")),
            ("magic", found("magic")),
            ("loop", "couldn't read env file \"loop\" in volume \"v\"".to_owned()),
            ("fifo", special("fifo")),
            ("zero", special("zero")),
            ("directory", special("directory")),
            ("link", special("link")),
        ],
    );
    let script = format!(
        "{MAKE_CANARY}; cd /v; head -c 65537 /dev/zero | tr '\\000' '\\n' > long; \
         printf \"A='$C\\000'\\n\" > nul; printf \"\\357\\273\\277A='$C'\\n\" > bom; \
         printf \"A='$C'\\r\\n\" > crlf"
    );
    check_paths(
        stack,
        "hostile-text",
        &script,
        &[
            ("long", bad("long", "line 65537, column 1: the file has more than 65536 bytes")),
            ("nul", bad("nul", "line 1, column 20: NUL byte")),
            ("bom", bad("bom", "line 1, column 1: the file starts with a byte order mark")),
            ("crlf", bad("crlf", "line 1, column 21: carriage return outside quotes")),
        ],
    );
}

/// A container for each path in `expected`. A pod has no more events than 25 at once, so they are few.
#[track_caller]
fn check_paths(stack: &Stack, name: &str, script: &str, expected: &[(&str, String)]) {
    let container = |(path, _): &(&str, String)| {
        let entry = from_file("A", path, "A");
        format!(
            "  - {{name: {path}, image: '{IMAGE}', command: [sleep, '3600'], env: [{entry}]}}\n"
        )
    };
    let containers: String = expected.iter().map(container).collect();
    let expected: Vec<_> = expected.iter().map(|(path, told)| (*path, &**told)).collect();
    check_failures(stack, name, script, &containers, &expected);
    gone(stack, name);
}

/// A pod whose init container runs `script` in the volume; each container named in `expected` waits with
/// a message that begins so, in its status and in an event that both name the container.
#[track_caller]
fn check_failures(
    stack: &Stack,
    name: &str,
    script: &str,
    containers: &str,
    expected: &[(&str, &str)],
) {
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: write
    image: {IMAGE}
    command: [sh, -c, {script:?}]
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers:
{containers}"
    );
    let kubectl = stack.kubectl();
    apply(stack, &pod(name, &spec)).succeeds();
    for (container, _) in expected {
        let reason = format!(
            "get pod {name} -o jsonpath={{.status.containerStatuses[?(@.name==\"{container}\")].state.waiting.reason}}"
        );
        kubectl.eventually(&reason, "CreateContainerConfigError");
    }
    // A container that is tried again has no message for a moment.
    let told = |object: &serde_json::Value| {
        let statuses = object["status"]["containerStatuses"].as_array().cloned();
        statuses
            .into_iter()
            .flatten()
            .filter(|it| it["state"]["waiting"]["message"].is_string())
            .count()
    };
    let looks = (0..300).map(|_| kubectl.line(&format!("get pod {name} -o json")).json());
    let mut looks = looks.skip_while(|object| told(object) < expected.len());
    let object = looks.next().expect("every container says why it waits");
    for (container, message) in expected {
        let statuses = object["status"]["containerStatuses"].as_array().unwrap();
        let status = statuses.iter().find(|it| it["name"] == *container).unwrap();
        let told = status["state"]["waiting"]["message"].as_str().unwrap();
        assert!(told.starts_with(message), "{container}: {told}");
        assert!(
            told.ends_with(&format!("(variable \"A\" of container \"{container}\")")),
            "{told}"
        );
        let events =
            format!("get events --field-selector involvedObject.name={name},reason=Failed -o json");
        kubectl.eventually_shows(&events, &format!("of container \\\"{container}\\\""));
    }
    // Neither content nor a path of the machine, wherever people look (FILE-20).
    let lines = [format!("describe pod {name}"), format!("get pod {name} -o yaml")];
    let told = lines.map(|line| kubectl.line(&line).succeeds().stdout.clone()).concat();
    let events = format!("get events --field-selector involvedObject.name={name} -o json");
    let events = kubectl.line(&events).succeeds().stdout.clone();
    let host = stack.state().join("node/pods").display().to_string();
    for text in [&told, &events] {
        assert!(!text.contains(CANARY) && !text.contains(&host), "{text}");
    }
    for role in ["apiserver", "node", "runtime"] {
        let log = fs::read_to_string(stack.state().join(format!("logs/{role}.log")));
        assert!(!log.unwrap_or_default().contains(CANARY), "the log of the {role} shows it");
    }
}
