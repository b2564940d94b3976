//! The machine is started anew: memory is empty, the disk is not. What had ended stays so, counts go on, logs are kept, and who ran
//! what is still known.

use std::{fs, path::Path};

use serde_json::Value;
use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

/// A pod whose container adds a line to a file of the machine each time it runs.
fn pod(name: &str, policy: &str, marks: &Path, then: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
        restartPolicy: {policy}, terminationGracePeriodSeconds: 1,
        volumes: [{{name: marks, hostPath: {{path: '{}'}}}}],
        containers: [{{name: main, image: '{IMAGE}',
          command: [sh, -c, 'echo ran >> /marks/{name}; echo run $(wc -l < /marks/{name}); {then}'],
          volumeMounts: [{{name: marks, mountPath: /marks}}]}}]}}}}",
        marks.display()
    )
}

fn phase(stack: &Stack, name: &str, phase: &str) {
    let line = format!("get pod {name} -o jsonpath={{.status.phase}}");
    stack.kubectl().eventually(&line, phase);
}

fn restarts(stack: &Stack, name: &str) -> u32 {
    let line = format!("get pod {name} -o jsonpath={{.status.containerStatuses[0].restartCount}}");
    stack.kubectl().line(&line).succeeds().stdout.trim().parse().unwrap()
}

/// What the container of a pod wrote, in all of its logs, oldest first.
fn logged(stack: &Stack, name: &str) -> Vec<String> {
    let pods = fs::read_dir(stack.state().join("logs/pods")).unwrap().flatten();
    let start = format!("default_{name}_");
    let pod = pods
        .map(|it| it.path())
        .find(|it| it.file_name().is_some_and(|it| it.to_string_lossy().starts_with(&start)));
    let logs = fs::read_dir(pod.expect("the pod has logs").join("main")).unwrap().flatten();
    let mut logs: Vec<_> = logs.map(|it| it.path()).collect();
    logs.sort_by_key(|path| {
        path.file_stem().and_then(|it| it.to_str()?.parse::<u32>().ok()).unwrap_or(u32::MAX)
    });
    let lines = logs.iter().flat_map(|path| {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .filter_map(|line| line.split(' ').nth(4).map(str::to_owned))
            .collect::<Vec<_>>()
    });
    lines.collect()
}

#[test]
fn a_reboot_runs_nothing_again_that_must_not_and_loses_nothing_that_was_known() {
    let Some(mut stack) = Setup::new(BINARY).start() else { return };
    let marks = stack.dir().join("marks");
    fs::create_dir(&marks).unwrap();
    let runs = |name: &str| fs::read_to_string(marks.join(name)).unwrap().lines().count();
    for (name, policy, then) in [
        ("completed", "Never", "true"),
        ("running", "Never", "sleep 3600"),
        ("succeeded", "OnFailure", "true"),
        ("always", "Always", "test $(wc -l < /marks/always) -gt 1 && sleep 3600; exit 1"),
    ] {
        stack.kubectl().apply(&pod(name, policy, &marks, then)).succeeds();
    }
    phase(&stack, "completed", "Succeeded");
    phase(&stack, "succeeded", "Succeeded");
    stack.kubectl().wait_until_ready("running");
    let count = "get pod always -o jsonpath={.status.containerStatuses[0].restartCount}";
    stack.kubectl().eventually(count, "1");
    stack.kubectl().wait_until_ready("always");
    let debug = format!("debug always --image {IMAGE} --container finished -- true");
    stack.kubectl().line(&debug).succeeds();
    let debug = format!("debug always --image {IMAGE} --container debugging -- sleep 3600");
    stack.kubectl().line(&debug).succeeds();
    let finished = "get pod always -o jsonpath={.status.ephemeralContainerStatuses[?(@.name==\"finished\")].state.terminated.exitCode}";
    stack.kubectl().eventually(finished, "0");
    let debugging = "get pod always -o jsonpath={.status.ephemeralContainerStatuses[?(@.name==\"debugging\")].state.running.startedAt}";
    stack.kubectl().eventually_shows(debugging, "20");
    stack.kubectl().line("exec always -- touch /traced").succeeds();
    let before = restarts(&stack, "always");

    stack.power_cycle();
    let ready = "get pod always -o jsonpath={.status.containerStatuses[0].ready}/{.status.containerStatuses[0].restartCount}";
    stack.kubectl().eventually(ready, &format!("true/{}", before + 1));
    phase(&stack, "running", "Failed");
    for name in ["completed", "running", "succeeded"] {
        assert_eq!(runs(name), 1, "{name}");
    }
    assert_eq!(runs("always"), 3);
    phase(&stack, "completed", "Succeeded");
    phase(&stack, "succeeded", "Succeeded");
    assert_eq!(logged(&stack, "always"), ["1", "2", "3"], "every run has a log of its own");
    stack.kubectl().line(finished).prints("0");
    let lost = "get pod always -o jsonpath={.status.ephemeralContainerStatuses[?(@.name==\"debugging\")].state.terminated.exitCode}";
    stack.kubectl().eventually(lost, "137");

    let mut trace = stack.waybill();
    trace.args(["trace", "-o", "json", "--state-dir"]).arg(stack.state());
    let trace = trace.output().unwrap();
    assert!(trace.status.success(), "{}", String::from_utf8_lossy(&trace.stderr));
    let traces: Value = serde_json::from_slice(&trace.stdout).unwrap();
    let told = traces.as_array().unwrap().iter().filter(|it| it.to_string().contains("/traced"));
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 1, "{traces:#}");
    assert_ne!(told[0]["end"]["state"], "running", "{traces:#}");
    assert_eq!(told[0]["processes"].as_array().map_or(0, Vec::len), 0, "{traces:#}");
    stack.kubectl().line("delete pods --all").succeeds();
    stack.stop();
}
