//! Known values go all the ways that values go, and then everything that the stack wrote is searched for them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use waybill_testkit::stack::{IMAGE, Setup, Stack};

use crate::BINARY;

/// In a Secret, and its form in objects.
const SECRET: &str = "canary-of-a-secret-5e1f";
const SECRET_BASE64: &str = "Y2FuYXJ5LW9mLWEtc2VjcmV0LTVlMWY=";

/// In a variable of an exec session.
const SESSION: &str = "canary-of-a-session-77ab";

#[test]
fn no_value_is_in_any_file_but_the_store_of_objects() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    kubectl
        .apply(&format!(
            "---
{{apiVersion: v1, kind: Secret, metadata: {{name: canary}}, data: {{TOKEN: {SECRET_BASE64}}}}}
---
{{apiVersion: v1, kind: Pod, metadata: {{name: canary}}, spec: {{
    terminationGracePeriodSeconds: 1,
    containers: [{{name: main, image: '{IMAGE}', envFrom: [{{secretRef: {{name: canary}}}}],
        command: [sh, -c, 'echo ${{#TOKEN}}; exec sleep 3600']}}]}}}}"
        ))
        .succeeds();
    kubectl.wait_until_ready("canary");
    kubectl.line("exec canary -- sh -c true").succeeds();
    exec(&stack, &["sh", "-c", "echo ${#CANARY} ${#TOKEN}"], Some("24 23"));
    // What fails is told of, too.
    exec(&stack, &["/no/such/program"], None);
    stack.kill_role("node");
    stack.kill_role("runtime");
    kubectl.eventually("exec canary -- echo alive", "alive");

    let store = stack.state().join("store");
    let (mut in_store, mut elsewhere) = (Vec::new(), Vec::new());
    for path in files(stack.dir()) {
        let content = fs::read(&path).unwrap_or_default();
        for canary in [SECRET, SECRET_BASE64, SESSION] {
            if content.windows(canary.len()).any(|part| part == canary.as_bytes()) {
                let found = if path.starts_with(&store) { &mut in_store } else { &mut elsewhere };
                found.push((canary, path.clone()));
            }
        }
    }
    assert!(elsewhere.is_empty(), "{elsewhere:#?}");
    assert!(in_store.iter().any(|(canary, _)| *canary == SECRET_BASE64), "the search finds");
    assert!(in_store.iter().all(|(canary, _)| *canary == SECRET_BASE64), "{in_store:#?}");
    kubectl.line("delete pod canary").succeeds();
    stack.stop();
}

/// A session with a variable; without `expected` it cannot start.
#[track_caller]
fn exec(stack: &Stack, command: &[&str], expected: Option<&str>) {
    let mut waybill = stack.waybill();
    waybill.args(["exec", "canary", "--env", &format!("CANARY={SESSION}"), "--"]).args(command);
    let ran = waybill.output().expect("waybill starts");
    let printed = String::from_utf8_lossy(&ran.stdout);
    let printed = printed.trim();
    assert_eq!(ran.status.success().then_some(printed), expected, "{ran:?}");
}

/// All files below, without following links.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
