//! What env files add to the start of a container: pods of ten containers with 50 variables each, from one
//! file of 64 KiB or written out, in turns.

use std::time::Instant;

use serde_json::{Value, json};

use crate::{
    numbers::Times,
    pods::{COMMAND, IMAGE, Pods},
};

const CONTAINERS: usize = 10;
const VARIABLES: usize = 50;
const FILE_BYTES: usize = 64 << 10;
const VALUE: &str = "a value of 24 characters";

pub(crate) async fn measure(pods: &Pods, count: usize) {
    pods.config_map("bench-env", &json!({"app.env": file()})).await;
    let (mut files, mut literals) = (Made::default(), Made::default());
    for at in 0..count {
        for (made, kind) in [(&mut files, "file"), (&mut literals, "literal")] {
            let name = format!("{kind}-{at}");
            let before = pods.environment_seconds().await;
            let begin = Instant::now();
            pods.run_spec(&name, spec(kind)).await;
            made.pods.add(begin.elapsed());
            made.seconds += pods.environment_seconds().await - before;
            pods.delete(&name).await;
        }
    }
    let starts = (count * CONTAINERS) as f64;
    let [file, literal] = [&files, &literals].map(|made| made.seconds * 1e3 / starts);
    println!(
        "an environment with {VARIABLES} variables of a 64 KiB env file: {file:.3} ms in the node"
    );
    println!("  with the same values written out: {literal:.3} ms");
    println!("  so a file adds {:.3} ms to a start (goal 2 ms)", file - literal);
    println!("  pods of {CONTAINERS} such containers, created to Running: {}", files.pods);
    println!(
        "  with values written out: {}, file / literal {:.2}",
        literals.pods,
        files.pods.median() / literals.pods.median()
    );
}

/// What pods of one kind took.
#[derive(Default)]
struct Made {
    pods: Times,
    /// That the node spent on environments. The one of the init container is in both numbers.
    seconds: f64,
}

/// As large as one may be: the wanted keys last, behind as many others as fit.
fn file() -> String {
    let wanted: String = (0..VARIABLES).map(|at| format!("KEY_{at}='{VALUE}'\n")).collect();
    let mut others = String::new();
    for at in 0.. {
        let line = format!("OTHER_{at}='{VALUE}'\n");
        if others.len() + line.len() + wanted.len() + 2 > FILE_BYTES {
            break;
        }
        others.push_str(&line);
    }
    let rest = FILE_BYTES - others.len() - wanted.len() - 1;
    format!("{}\n{others}{wanted}", "#".repeat(rest))
}

fn spec(kind: &str) -> Value {
    let variable = |at: usize| match kind {
        "file" => json!({"name": format!("KEY_{at}"), "valueFrom": {"fileKeyRef": {
            "volumeName": "v", "path": "app.env", "key": format!("KEY_{at}")}}}),
        _ => json!({"name": format!("KEY_{at}"), "value": VALUE}),
    };
    let env: Vec<_> = (0..VARIABLES).map(variable).collect();
    let container = |at: usize| {
        json!({
            "name": format!("c{at}"), "image": IMAGE, "imagePullPolicy": "Never",
            "command": COMMAND, "env": env,
        })
    };
    json!({
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false,
        "volumes": [
            {"name": "v", "emptyDir": {}},
            {"name": "in", "configMap": {"name": "bench-env"}},
        ],
        "initContainers": [{
            "name": "write", "image": IMAGE, "imagePullPolicy": "Never",
            "command": ["cp", "/in/app.env", "/v/app.env"],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "in", "mountPath": "/in"}],
        }],
        "containers": (0..CONTAINERS).map(container).collect::<Vec<_>>(),
    })
}
