//! The alert rules that we ship are about metrics that there are.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use waybill_testkit::program::PROMTOOL;

use crate::promtool::{check, check_alerts, deployed, series};

const RULES: &str = "prometheus/waybill.rules.yaml";

/// What Prometheus or its language adds to the name under which a metric is registered.
const SUFFIXES: [&str; 4] = ["_total", "_bucket", "_count", "_sum"];

/// Words of the language that are no metrics.
const WORDS: &[&str] = &[
    "and",
    "by",
    "call_status",
    "increase",
    "instance",
    "max",
    "min",
    "name",
    "on",
    "rate",
    "reason",
    "result",
    "sum",
];

#[test]
fn every_alert_is_about_a_metric_that_there_is_and_says_what_it_means() {
    let sources = sources();
    for rule in rules() {
        let alert = rule["alert"].as_str().unwrap();
        let metrics = metrics(rule["expr"].as_str().unwrap());
        assert!(!metrics.is_empty(), "{alert}");
        for metric in metrics {
            let registered = SUFFIXES.iter().find_map(|suffix| metric.strip_suffix(suffix));
            let registered = format!("\"{}\"", registered.unwrap_or(&metric));
            let found = sources.iter().any(|source| source.contains(&registered));
            assert!(found, "{alert}: nobody registers {registered}");
        }
        for text in ["summary", "description"] {
            let text = rule["annotations"][text].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{alert}");
        }
        assert!(rule["labels"]["severity"].is_string(), "{alert}");
    }
}

/// EXEC-47
#[test]
fn an_alert_fires_when_placeholders_go_on_exec_47() {
    let about = |rule: &Value| {
        let expr = rule["expr"].as_str().unwrap();
        expr.contains("apiserver_exec_audit_id_injected_total{result=\"placeholder\"}")
            && expr.contains("rate(")
            && expr.ends_with("> 0")
    };
    let alert = rules().into_iter().find(about).unwrap();
    assert_eq!(alert["for"], "10m");
}

/// CRED-48: at most 0.01 % failed calls in a day, and no certificate past its end.
#[test]
fn the_objectives_for_credential_plugins_are_watched_cred_48() {
    let has = |parts: &[&str]| {
        let about =
            |rule: &Value| parts.iter().all(|part| rule["expr"].as_str().unwrap().contains(part));
        assert!(rules().iter().any(about), "{parts:?}");
    };
    has(&["rest_client_exec_plugin_call_total{call_status!=\"no_error\"}[24h]", "> 0.0001 *"]);
    has(&["rest_client_exec_plugin_ttl_seconds", "< 0"]);
}

/// CRED-48: each objective is met at its limit and missed beyond it.
#[test]
fn the_objectives_for_credential_plugins_are_missed_beyond_their_limits_cred_48() {
    let calls = |status: &str, values: &str| {
        let name = format!(
            "rest_client_exec_plugin_call_total{{instance=\"i\", code=\"0\", call_status=\"{status}\"}}"
        );
        series(&name, values)
    };
    let end = |values: &str| series("rest_client_exec_plugin_ttl_seconds{instance=\"i\"}", values);
    let failing = "WaybillCredentialPluginFailing";
    let late = "WaybillCredentialRotationLate";
    // A call in each minute is 1440 in a day; of 14,400 calls one may fail.
    check_alerts(
        RULES,
        "24h",
        [
            (failing, vec![calls("no_error", "0+1x1440")], false),
            (
                failing,
                vec![
                    calls("no_error", "0+100x1440"),
                    calls("plugin_execution_error", "0x700 1x740"),
                ],
                false,
            ),
            (
                failing,
                vec![calls("no_error", "0+1x1440"), calls("plugin_execution_error", "0x700 1x740")],
                true,
            ),
            (late, vec![end("_ Inf 3600-1x1440")], false),
            (late, vec![end("60-1x1440")], true),
        ],
    );
}

/// CRED-48
#[test]
fn prometheus_reads_every_rule_cred_48() {
    let Some(promtool) = PROMTOOL.find() else { return };
    check(Command::new(promtool).args(["check", "rules"]).arg(deployed(RULES)));
}

fn rules() -> Vec<Value> {
    let text = fs::read_to_string(deployed(RULES)).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The names in an expression that are neither in quotes nor words of the language nor durations.
fn metrics(expr: &str) -> BTreeSet<String> {
    let outside = expr.split('"').step_by(2).collect::<String>();
    let names = outside.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    names
        .filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
        .filter(|name| !WORDS.contains(name))
        .map(str::to_owned)
        .collect()
}

/// Everything that our roles are made of.
fn sources() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut waiting: Vec<PathBuf> =
        ["waybill-apiserver/src", "waybill-credential/src", "waybill-node/src"]
            .map(|source| crates.join(source))
            .to_vec();
    let mut sources = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(fs::read_to_string(path).unwrap());
        }
    }
    sources
}
