//! Variables from a driver that runs as its own process, on a whole stack: they come, change, and are refused.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use waybill_testkit::{
    kubectl::Ran,
    stack::{IMAGE, Setup, Stack},
};

use crate::{BINARY, KEEP_IMAGES, on_containerd};

const DRIVER: &str = "mock.csi.waybill.dev";

const CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: ProviderClass
metadata: {name: e2e}
spec:
  driver: mock.csi.waybill.dev
  parameters:
    allowedNamespaces: default
    allowedFields: 'app/*'
    envInjection.refreshInterval: 10s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: uses-e2e}
rules: [{apiGroups: [storage.k8s.io], resources: [providerclasses], resourceNames: [e2e], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: uses-e2e, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: uses-e2e}
subjects: [{kind: ServiceAccount, name: default, namespace: default}]
";

fn pod(name: &str, key: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{waybill.dev/restart-on-rotation: 'true'}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'test \"$A\" = first-value && echo first; test \"$A\" = second-value && echo second; exec sleep 3600']
    env:
    - {{name: A, valueFrom: {{csiSecretRef: {{driver: {DRIVER}, providerClassName: e2e, key: {key}}}}}}}
"
    )
}

/// A driver that ends with the test.
struct DriverProcess(Child);

impl Drop for DriverProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_driver(stack: &Stack, script: &Path) -> DriverProcess {
    let node = stack.state().join("node");
    let socket = node.join("plugins").join(DRIVER).join("csi.sock");
    let child = Command::new(BINARY)
        .args(["driver", "mock", "--script"])
        .arg(script)
        .arg("--socket")
        .arg(format!("unix://{}", socket.display()))
        .arg("--registration-dir")
        .arg(node.join("plugins_registry"))
        .stdout(Stdio::null())
        .spawn()
        .expect("the driver starts");
    DriverProcess(child)
}

fn write_script(path: &Path, value: &str) {
    let new = path.with_extension("new");
    fs::write(&new, format!("values: {{app/a: {value}}}\ncacheTTL: 0s\n")).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
    fs::rename(&new, path).unwrap();
}

fn env(stack: &Stack, arguments: &[&str]) -> Ran {
    let child = stack.waybill().arg("env").args(arguments).spawn().expect("waybill starts");
    Ran::of(format!("waybill env {}", arguments.join(" ")), child)
}

/// CSI-27, CSI-60, CSI-72, CSI-73
#[test]
fn values_of_a_driver_reach_a_container_and_change_with_it_csi_72_csi_73() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    let script = stack.dir().join("script.yaml");
    write_script(&script, "first-value");
    let driver = start_driver(&stack, &script);
    kubectl.eventually_shows("get csinodes -o yaml", DRIVER);
    kubectl.apply(CLASS).succeeds();
    let apply =
        |manifest: &str| kubectl.with_input(&["apply", "--validate=false", "-f", "-"], manifest);
    apply(&pod("reader", "app/a")).succeeds();
    kubectl.wait_until_ready("reader");
    kubectl.eventually("logs reader", "first");
    let table = env(&stack, &["reader"]);
    table.shows(&[&format!("A CSI {DRIVER}, class e2e, key app/a *")]);
    assert!(!table.stdout.contains("first-value"), "{table:#?}");
    kubectl.eventually_shows("get events", "EnvVarInjectionSuccess");

    // A key that the class does not serve is refused before there is a pod.
    apply(&pod("greedy", "db/a")).fails_with(1, "Key 'db/a' not in allowedFields pattern 'app/*'");
    // A key that the driver does not have keeps the container from being made, and says so.
    apply(&pod("lost", "app/none")).succeeds();
    kubectl.eventually_shows("get events", "CSI env injection failed: not_found");
    kubectl.line("delete pod lost --grace-period=1").succeeds();

    // What changes restarts the container.
    write_script(&script, "second-value");
    kubectl.eventually("logs reader", "second");
    kubectl.eventually_shows("get events", "EnvVarRotated");
    env(&stack, &["--stale"]).shows(&["No container is known to run on old values"]);

    // A class that is gone serves nobody who starts now.
    kubectl.line("delete providerclass e2e").succeeds();
    apply(&pod("late", "app/a")).fails_with(1, "ProviderClass 'e2e' not found");
    kubectl.eventually("exec reader -- echo alive", "alive");
    kubectl.line("delete pod reader").succeeds();
    drop(driver);
    stack.stop();
}

/// CSI-27, CSI-62: stock containerd keeps the environment of each container in a database, so it gets none of a driver
/// unless the owner of the node says so.
#[test]
fn containerd_gets_no_value_that_it_would_write_csi_62() {
    const CANARY: &str = "canary-5f0c-of-a-driver";
    let Some((containerd, mut stack)) = on_containerd() else { return };
    let script = stack.dir().join("script.yaml");
    write_script(&script, CANARY);
    let driver = start_driver(&stack, &script);
    stack.kubectl().eventually_shows("get csinodes -o yaml", DRIVER);
    stack.kubectl().apply(CLASS).succeeds();
    let apply = |stack: &Stack| {
        let arguments = ["apply", "--validate=false", "-f", "-"];
        stack.kubectl().with_input(&arguments, &pod("reader", "app/a")).succeeds();
    };
    let with_value = |stack: &Stack| {
        let places = [stack.state(), containerd.dir().to_owned()];
        let found = Command::new("grep").args(["-r", "-l", "-a", CANARY]).args(places).output();
        String::from_utf8(found.unwrap().stdout).unwrap()
    };
    apply(&stack);
    let waiting = |field: &str| {
        format!("get pod reader -o jsonpath={{.status.containerStatuses[0].state.waiting.{field}}}")
    };
    stack.kubectl().eventually(&waiting("reason"), "CreateContainerConfigError");
    let refusal = "the runtime \"containerd\" may write the environment of containers to a disk";
    let message = stack.kubectl().line(&waiting("message"));
    assert!(message.stdout.contains(refusal), "{message:#?}");
    assert!(message.stdout.contains("--csi-env-allow-disk"), "{message:#?}");
    stack.kubectl().eventually_shows("get events", "EnvVarInjectionFailed");
    assert_eq!(with_value(&stack), "");

    // The search would have found it.
    stack.kubectl().line("delete pod reader").succeeds();
    stack.kill();
    let runtime = format!("--runtime=unix://{}", containerd.socket().display());
    stack.restart_with(&[&runtime, KEEP_IMAGES, "--node-flag=--csi-env-allow-disk"]);
    apply(&stack);
    stack.kubectl().wait_until_ready("reader");
    assert!(with_value(&stack).contains("meta.db"), "{}", with_value(&stack));
    stack.kubectl().line("delete pod reader").succeeds();
    drop(driver);
    stack.stop();
}
