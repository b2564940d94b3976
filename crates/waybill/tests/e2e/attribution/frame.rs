//! Attempts to put a process under somebody else's name, or under nobody's.

use std::{fs, path::PathBuf, thread, time::Duration};

use serde_json::Value;
use waybill_testkit::{
    kubectl::PATIENCE,
    stack::{IMAGE, Setup, Stack},
};

use super::trace;
use crate::BINARY;

/// How long processes of the attack sleep, by which they are known.
const IN_NAMESAKE: usize = 3_000_001;
const IN_SESSION: usize = 3_000_002;
const OUTSIDE: usize = 3_000_003;

/// `trace` believed a cgroup that was called like a session's, wherever it stood; and believed a process that was moved.
#[test]
fn a_pod_with_the_machines_cgroups_frames_nobody() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let pod = |name: &str, more: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{
            terminationGracePeriodSeconds: 0,
            volumes: [{{name: cgroups, hostPath: {{path: /sys/fs/cgroup}}}}],
            containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'], {more}}}]}}}}"
        )
    };
    let kubectl = stack.kubectl();
    kubectl.apply(&pod("victim", "")).succeeds();
    let mounts = "volumeMounts: [{name: cgroups, mountPath: /cgroups}]";
    kubectl.apply(&pod("framer", mounts)).succeeds();
    kubectl.wait_until_ready("victim");
    kubectl.wait_until_ready("framer");

    let masters = "--as-group=system:masters";
    let anna =
        ["exec", "victim", "--as=anna", masters, "--", "sh", "-c", "echo in; exec sleep 3600"];
    let session = kubectl.follow(&anna);
    session.wait_for("in");
    let annas = annas_session(&stack);
    let namesake = Namesake::new(&stack);
    let script = namesake.script(annas["session"].as_str().unwrap());
    let framed = ["exec", "framer", "--as=ben", masters, "--", "sh", "-c", &script];
    kubectl.run(&framed).succeeds();

    for mark in [IN_NAMESAKE, IN_SESSION, OUTSIDE] {
        let pid = sleeping(mark);
        let (told, named) = ask(&stack, pid);
        assert!(told.contains("was moved, so nobody can be named"), "{mark}: {told}");
        assert!(!named && !told.contains("anna"), "{mark}: {told}");
    }
    let annas = annas_session(&stack);
    let pids = |list: &Value| -> Vec<u64> {
        list.as_array().unwrap().iter().filter_map(|it| it["pid"].as_u64()).collect()
    };
    assert_eq!(pids(&annas["processes"]).len(), 1, "{annas}");
    assert_eq!(pids(&annas["moved"]), [sleeping(IN_SESSION)], "{annas}");
    let first = first_process(&stack, "victim");
    let (told, _) = ask(&stack, first);
    assert!(told.contains("is the container's own") && !told.contains("anna"), "{told}");
    drop(session);
    kubectl.line("delete pod victim framer").succeeds();
    drop(namesake);
    stack.stop();
}

/// A cgroup that holds one that is called like a session's; removed when it is dropped.
struct Namesake {
    unified: PathBuf,
    name: String,
}

impl Namesake {
    fn new(stack: &Stack) -> Self {
        let hybrid = PathBuf::from("/sys/fs/cgroup/unified");
        let unified = if hybrid.exists() { hybrid } else { PathBuf::from("/sys/fs/cgroup") };
        let name = format!("frame-{}", stack.dir().file_name().unwrap().display());
        Self { unified, name }
    }

    /// Starts a process in a cgroup called like the session's, one in the session's own, and one outside of everything.
    fn script(&self, session: &str) -> String {
        let Self { unified, name } = self;
        let unified = unified.strip_prefix("/sys/fs/cgroup").unwrap();
        let unified = PathBuf::from("/cgroups").join(unified).display().to_string();
        let sleep = |mark: usize, cgroup: &str| {
            format!(
                "sleep {mark} >/dev/null 2>&1 </dev/null & echo $! >{cgroup}/cgroup.procs || exit 1"
            )
        };
        let namesake = format!("{unified}/{name}/exec-{session}");
        let steps = [
            format!("mkdir -p {namesake}"),
            format!("own=$(find {unified} -path '*/sessions/exec-{session}')"),
            sleep(IN_NAMESAKE, &namesake),
            sleep(IN_SESSION, "$own"),
            sleep(OUTSIDE, &format!("{unified}/{name}")),
        ];
        steps.join("; ")
    }
}

impl Drop for Namesake {
    fn drop(&mut self) {
        let top = self.unified.join(&self.name);
        for _ in 0..100 {
            for below in fs::read_dir(&top).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(below.path());
            }
            if fs::remove_dir(&top).is_ok() || !top.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn annas_session(stack: &Stack) -> Value {
    let traces = trace(stack, &["--user", "anna"]);
    traces.as_array().unwrap().first().cloned().unwrap()
}

/// What is said of a process, and whether something is known of it.
fn ask(stack: &Stack, pid: u64) -> (String, bool) {
    let mut command = stack.waybill();
    command.args(["trace", "--state-dir"]).arg(stack.state()).args(["--pid", &pid.to_string()]);
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (String::from_utf8(told).unwrap(), output.status.success())
}

/// As the machine counts: the parent of nobody here, so it is found by what only its cgroup says.
fn first_process(stack: &Stack, pod: &str) -> u64 {
    let uid = stack.kubectl().line(&format!("get pod {pod} -o jsonpath={{.metadata.uid}}"));
    let uid = uid.succeeds().stdout.clone();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let first = all.filter_map(|entry| {
        let cgroup = fs::read_to_string(entry.path().join("cgroup")).ok()?;
        let own = cgroup.lines().any(|line| line.contains(&uid) && line.ends_with("/processes"));
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let first = status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"));
        (own && first).then(|| entry.file_name().to_str()?.parse().ok())?
    });
    first.min().unwrap()
}

/// The process that sleeps so long.
fn sleeping(seconds: usize) -> u64 {
    let line = format!("sleep\0{seconds}\0");
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let found = fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            (command == line.as_bytes()).then(|| entry.file_name().to_str()?.parse().ok())?
        });
        match found {
            Some(pid) => return pid,
            None => assert!(std::time::Instant::now() < end, "nobody sleeps for {seconds} s"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
