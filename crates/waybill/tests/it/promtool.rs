//! What Prometheus itself makes of the rules that we ship.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use waybill_testkit::program::PROMTOOL;

/// A file below `deploy`.
pub(crate) fn deployed(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

/// Runs promtool; it must be content.
#[track_caller]
pub(crate) fn check(command: &mut Command) {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
}

/// Plays series to the alerts of `rules`; each case is an alert, its series, and whether it fires at `time`.
#[track_caller]
pub(crate) fn check_alerts<const N: usize>(
    rules: &str,
    time: &str,
    cases: [(&str, Vec<Value>, bool); N],
) {
    let Some(promtool) = PROMTOOL.find() else { return };
    let tests = cases.map(|(alert, series, fires)| {
        // The expression shows whether anything is found; annotations are not repeated here.
        let samples = if fires { 1 } else { 0 };
        json!({
            "interval": "1m",
            "input_series": series,
            "promql_expr_test": [{
                "expr": format!("count(ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}})"),
                "eval_time": time,
                "exp_samples": vec![json!({"labels": "{}", "value": 1}); samples],
            }],
        })
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tests.yaml");
    let content = json!({"rule_files": [deployed(rules)], "tests": tests.to_vec()});
    fs::write(&file, content.to_string()).unwrap();
    check(Command::new(promtool).args(["test", "rules"]).arg(file));
}

/// One series.
pub(crate) fn series(name: &str, values: &str) -> Value {
    json!({"series": name, "values": values})
}
