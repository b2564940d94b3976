//! Volumes of every kind, what is in them, and how they follow the objects that they show.

use std::fs;

use waybill_testkit::stack::{IMAGE, Stack};

use super::{pod, start};

const OBJECTS: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: volumes}
data: {a.txt: from the ConfigMap, b.txt: other}
---
apiVersion: v1
kind: Secret
metadata: {name: volumes}
stringData: {password: from the Secret}
";

pub(super) fn every_volume(stack: &Stack) {
    let host = stack.dir().join("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("there"), "from the host").unwrap();
    let spec = format!(
        "  volumes:
  - {{name: disk, emptyDir: {{}}}}
  - {{name: memory, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
  - {{name: settings, configMap: {{name: volumes, defaultMode: 0440, items: [{{key: a.txt, path: sub/a}}]}}}}
  - {{name: secret, secret: {{secretName: volumes}}}}
  - {{name: absent, secret: {{secretName: nobody, optional: true}}}}
  - {{name: labels, downwardAPI: {{items: [{{path: name, fieldRef: {{fieldPath: metadata.name}}}}]}}}}
  - {{name: host, hostPath: {{path: {}, type: Directory}}}}
  - name: all
    projected:
      sources:
      - serviceAccountToken: {{path: token, expirationSeconds: 3600}}
      - configMap: {{name: volumes}}
      - secret: {{name: volumes}}
      - downwardAPI: {{items: [{{path: namespace, fieldRef: {{fieldPath: metadata.namespace}}}}]}}
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    volumeMounts:
    - {{name: disk, mountPath: /disk}}
    - {{name: memory, mountPath: /memory}}
    - {{name: settings, mountPath: /settings}}
    - {{name: secret, mountPath: /secret, readOnly: true}}
    - {{name: absent, mountPath: /absent}}
    - {{name: labels, mountPath: /labels}}
    - {{name: host, mountPath: /host}}
    - {{name: all, mountPath: /all}}
",
        host.display()
    );
    let kubectl = stack.kubectl();
    kubectl.apply(OBJECTS).succeeds();
    start(stack, "volumes", &pod("volumes", &spec));
    let run = |script: &str| kubectl.run(&["exec", "volumes", "--", "sh", "-c", script]);
    run("cat /settings/sub/a; ls /settings").prints("from the ConfigMapsub");
    run("stat -L -c %a /settings/sub/a").prints("440");
    run("cat /secret/password").prints("from the Secret");
    run("ls /absent").prints("");
    run("cat /labels/name").prints("volumes");
    run("cat /host/there; echo back > /host/back").prints("from the host");
    assert_eq!(fs::read_to_string(host.join("back")).unwrap(), "back\n");
    run("cat /all/b.txt /all/namespace; cut -d. -f1 /all/token").shows(&["otherdefault", "eyJ"]);
    run("echo x > /disk/x && cat /disk/x").prints("x");
    run("grep -c ' /memory tmpfs' /proc/mounts; grep -c ' /secret tmpfs' /proc/mounts")
        .prints("1\n1");
    run("dd if=/dev/zero of=/memory/x bs=1024 count=2048").fails_with(1, "No space left");
    run("touch /secret/x").fails_with(1, "Read-only");
    // Every pod can talk to its API server.
    run("ls /var/run/secrets/kubernetes.io/serviceaccount").prints("ca.crt\nnamespace\ntoken");
}

pub(super) fn sub_paths(stack: &Stack) {
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: make
    image: {IMAGE}
    command: [sh, -c, 'mkdir /v/d; echo in > /v/d/f; ln -s /etc /v/evil']
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sleep, '3600']
    env: [{{name: DIR, value: d}}]
    volumeMounts:
    - {{name: v, mountPath: /sub, subPath: d}}
    - {{name: v, mountPath: /file, subPath: d/f}}
    - {{name: v, mountPath: /expanded, subPathExpr: $(DIR)}}
"
    );
    start(stack, "sub", &pod("sub", &spec));
    let kubectl = stack.kubectl();
    kubectl.line("exec sub -- cat /sub/f /file /expanded/f").prints("in\nin\nin");
    // A link that leads out of the volume leads nowhere near the machine's files.
    let evil = spec.replace("subPath: d}", "subPath: evil}").replace("name: sub", "name: evil");
    kubectl.apply(&pod("evil", &evil)).succeeds();
    let state = "get pod evil -o jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    kubectl.eventually(state, "CreateContainerConfigError");
}
