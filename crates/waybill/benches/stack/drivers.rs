//! What variables of a driver add to the start of a container, against the same values written out, in turns; and how often
//! the driver is asked for them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    numbers::Times,
    pods::{COMMAND, IMAGE, Pods},
};

const DRIVER: &str = "os.csi.waybill.dev";

/// The calls that the node has made.
const CALLS: &str = "kubelet_csi_env_injection_duration_seconds_count";

/// In each container of a pod that is timed.
const VARIABLES: usize = 10;

const KEYS: [&str; 4] =
    ["os/basic/hostname", "os/kernel/release", "os/cpu/count", "os/memory/total"];

pub(crate) async fn measure(pods: &Pods, count: usize) {
    allow(pods).await;
    for variables in [1, 10, 50] {
        let before = pods.node_metric(CALLS).await;
        let name = format!("asks-{variables}");
        pods.run_spec(&name, spec("driver", variables)).await;
        let calls = pods.node_metric(CALLS).await - before;
        pods.delete(&name).await;
        assert!((calls - 1.0).abs() < f64::EPSILON, "{calls} calls for {variables} variables");
        println!("a container with {variables} variables of the driver os: {calls} call");
    }
    let (mut driver, mut literal) = (Made::default(), Made::default());
    let mut differences = Vec::new();
    for at in 0..count {
        let mut pair = [(&mut driver, "driver"), (&mut literal, "literal")];
        if at % 2 == 1 {
            pair.reverse();
        }
        for (made, kind) in pair {
            made.run(pods, kind, at).await;
        }
        differences.push(driver.last.as_secs_f64() - literal.last.as_secs_f64());
    }
    let [from_driver, written] = [&driver, &literal].map(|it| it.seconds * 1e3 / count as f64);
    println!(
        "an environment with {VARIABLES} variables of the driver os: {from_driver:.3} ms in the node"
    );
    println!("  with the same number written out: {written:.3} ms");
    println!("  so a driver adds {:.3} ms to a start (goal 5 ms)", from_driver - written);
    println!("  pods of one such container, created to Running: {}", driver.pods);
    println!("  with values written out: {}", literal.pods);
    differences.sort_by(f64::total_cmp);
    let median = differences.get(count / 2).copied().unwrap_or_default();
    println!("  median of the differences of {count} pairs: {:.2} ms (goal 5 ms)", median * 1e3);
}

/// A class of the driver that the pods may use.
async fn allow(pods: &Pods) {
    let rbac = "rbac.authorization.k8s.io";
    let rules = format!("/apis/{rbac}/v1");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass", "metadata": {"name": "bench"},
        "spec": {"driver": DRIVER,
            "parameters": {"allowedNamespaces": "default", "allowedFields": "os/**"}}});
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "bench"},
        "rules": [{"apiGroups": ["storage.k8s.io"], "resources": ["providerclasses"],
            "resourceNames": ["bench"], "verbs": ["use"]}]});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "bench"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "bench"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    let _ = pods.create("/apis/storage.k8s.io/v1/providerclasses", &class).await;
    let _ = pods.create(&format!("{rules}/clusterroles"), &role).await;
    let _ = pods.create(&format!("{rules}/namespaces/default/rolebindings"), &binding).await;
}

/// What pods of one kind took.
#[derive(Default)]
struct Made {
    pods: Times,
    last: Duration,
    /// That the node spent on environments.
    seconds: f64,
}

impl Made {
    async fn run(&mut self, pods: &Pods, kind: &str, at: usize) {
        let name = format!("{kind}-{at}");
        let before = pods.environment_seconds().await;
        let begin = Instant::now();
        pods.run_spec(&name, spec(kind, VARIABLES)).await;
        self.last = begin.elapsed();
        self.pods.add(self.last);
        self.seconds += pods.environment_seconds().await - before;
        pods.delete(&name).await;
    }
}

fn spec(kind: &str, variables: usize) -> Value {
    let variable = |(at, key): (usize, &&str)| match kind {
        "driver" => json!({"name": format!("V{at}"), "valueFrom": {"csiSecretRef": {
            "driver": DRIVER, "providerClassName": "bench", "key": key}}}),
        _ => json!({"name": format!("V{at}"), "value": "a value of 24 characters"}),
    };
    let env: Vec<_> = KEYS.iter().cycle().take(variables).enumerate().map(variable).collect();
    json!({
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false,
        "containers": [{
            "name": "main", "image": IMAGE, "imagePullPolicy": "Never",
            "command": COMMAND, "env": env,
        }],
    })
}
