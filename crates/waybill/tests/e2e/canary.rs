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

/// In a ConfigMap, which is no secret: it shows that the search finds.
const PLAIN: &str = "canary-in-plain-sight-c0de";

/// In a variable of an exec session.
const SESSION: &str = "canary-of-a-session-77ab";

#[test]
fn no_value_is_in_any_file() {
    let Some(stack) = Setup::new(BINARY).start() else { return };
    let kubectl = stack.kubectl();
    kubectl
        .apply(&format!(
            "---
{{apiVersion: v1, kind: Secret, metadata: {{name: canary}}, data: {{TOKEN: {SECRET_BASE64}}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: plain}}, data: {{key: {PLAIN}}}}}
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
    let mut found = Vec::new();
    let mut plain_in_store = false;
    for path in files(stack.dir()) {
        let content = fs::read(&path).unwrap_or_default();
        let holds = |text: &str| content.windows(text.len()).any(|part| part == text.as_bytes());
        plain_in_store |= path.starts_with(&store) && holds(PLAIN);
        let canaries = [SECRET, SECRET_BASE64, SESSION].into_iter().filter(|canary| holds(canary));
        found.extend(canaries.map(|canary| (canary, path.clone())));
    }
    assert!(plain_in_store, "the search finds what is there");
    assert!(found.is_empty(), "{found:#?}");
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
