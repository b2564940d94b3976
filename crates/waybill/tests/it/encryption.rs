//! Secrets at rest under `waybill apiserver`, with a server that is killed, and the command for its keys.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use waybill_testkit::apiserver::Setup;

const WAYBILL: &str = env!("CARGO_BIN_EXE_waybill");

/// As a client sends it, and as the server keeps it.
const CANARIES: [&str; 2] = ["canary-2342-hunter2", "Y2FuYXJ5LTIzNDItaHVudGVyMg=="];

fn holders(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holders(&path, text));
        } else if path.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            if content.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}

fn waybill(args: &[&str], state: &Path) -> Output {
    let (kubeconfig, state) = (state.join("kubeconfig"), state.to_str().unwrap());
    let mut command = Command::new(WAYBILL);
    command.args(args).env_clear().env("KUBECONFIG", kubeconfig);
    if args[0] == "encryption" {
        command.args(["--state-dir", state]);
    }
    command.output().unwrap()
}

#[track_caller]
fn succeeds(output: Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until `done`, which a busy machine may take long for.
fn eventually(done: impl Fn() -> bool) {
    let given_up = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < given_up);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_killed_server_leaves_no_value_of_a_secret_behind() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(WAYBILL, dir.path());
    let mut server = setup.start();
    let state = server.state().to_owned();
    let manifest = dir.path().join("secret.yaml");
    let text = "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {k: VALUE}}";
    fs::write(&manifest, text.replace("VALUE", CANARIES[0])).unwrap();
    succeeds(waybill(&["apply", "-f", manifest.to_str().unwrap()], &state));
    server.kill();
    for canary in CANARIES {
        assert_eq!(holders(&state, canary), [] as [PathBuf; 0]);
    }

    // The keys are exchanged while no server runs, and again while one does.
    let before = succeeds(waybill(&["encryption", "status"], &state));
    assert!(before.contains("for writing") && before.lines().count() == 1, "{before}");
    succeeds(waybill(&["encryption", "rotate"], &state));
    let old = before.split_whitespace().next().unwrap().to_owned();
    let mut server = setup.start();
    let store = state.join("store");
    eventually(|| holders(&store, &old).is_empty());
    let rotated = succeeds(waybill(&["encryption", "rotate"], &state));
    let newest = rotated.split_whitespace().nth(3).unwrap().to_owned();
    eventually(|| !holders(&store, &newest).is_empty());
    let refused = waybill(&["encryption", "prune"], &state);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("stop the server"), "{told}");
    eventually(|| {
        holders(&store, "waybill:enc").iter().all(|file| {
            let content = fs::read(file).unwrap_or_default();
            String::from_utf8_lossy(&content).matches("waybill:enc").count()
                == String::from_utf8_lossy(&content).matches(&newest).count()
        })
    });
    server.kill();
    let pruned = succeeds(waybill(&["encryption", "prune"], &state));
    assert!(pruned.contains(&old), "{pruned}");
    let after = succeeds(waybill(&["encryption", "status"], &state));
    assert!(after.starts_with(&newest) && after.lines().count() == 1, "{after}");
    let _server = setup.start();
    let shown = succeeds(waybill(&["get", "secret", "a", "-o", "json"], &state));
    assert!(shown.contains(CANARIES[1]), "{shown}");
}
