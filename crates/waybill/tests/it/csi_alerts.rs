//! Alerts and dashboard about variables from CSI drivers, as Prometheus itself reads them.

use std::{fs, process::Command};

use serde_json::{Value, json};
use waybill_testkit::program::PROMTOOL;

use crate::promtool::{check, check_alerts, deployed, series};

const RULES: &str = "prometheus/waybill-csi-rules.yaml";
const DASHBOARD: &str = "grafana/waybill-csi.json";

/// Every metric of CSI-51 to CSI-55, as it is queried.
const METRICS: [&str; 7] = [
    "csi_driver_env_backend_duration_seconds_bucket",
    "csi_driver_env_backend_errors_total",
    "kubelet_csi_env_injection_duration_seconds_bucket",
    "kubelet_csi_env_injection_errors_total",
    "kubelet_csi_env_injection_fallbacks_total",
    "kubelet_csi_env_injection_inflight_requests",
    "kubelet_csi_env_injection_requests_total",
];

/// CSI-57, CSI-58, CSI-59
#[test]
fn the_alerts_are_those_of_the_document_to_the_letter_csi_57_csi_58_csi_59() {
    let expected = [
        (
            "CSIEnvInjectionHighInflight",
            "kubelet_csi_env_injection_inflight_requests > 100",
            "1m",
            "page",
        ),
        (
            "CSIEnvInjectionOversizeSpike",
            "increase(kubelet_csi_env_injection_errors_total{error_type=\"oversize\"}[5m]) > 5",
            "5m",
            "ticket",
        ),
        (
            "CSIEnvInjectionHighLatency",
            "histogram_quantile(0.99, sum(rate(kubelet_csi_env_injection_duration_seconds_bucket\
             [5m])) by (le, driver, provider_class)) > 0.1",
            "5m",
            "ticket",
        ),
    ];
    let rules = rules();
    assert_eq!(rules.len(), expected.len());
    for (rule, (alert, expr, wait, severity)) in rules.iter().zip(expected) {
        assert_eq!(rule["alert"], alert);
        assert_eq!(rule["expr"], expr, "{alert}");
        assert_eq!(rule["for"], wait, "{alert}");
        assert_eq!(rule["labels"]["severity"], severity, "{alert}");
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].is_string(), "{alert}");
        }
    }
}

/// CSI-57, CSI-58, CSI-59: each alert stays silent at its threshold and fires above it.
#[test]
fn the_alerts_fire_above_their_thresholds_csi_57_csi_58_csi_59() {
    let latency = |bound: &str, calls: &str| {
        let name = format!(
            "kubelet_csi_env_injection_duration_seconds_bucket{{\
                driver=\"d\", provider_class=\"c\", le=\"{bound}\"}}"
        );
        series(&name, calls)
    };
    let cases = [
        ("CSIEnvInjectionHighInflight", vec![in_flight("100x30")], false),
        ("CSIEnvInjectionHighInflight", vec![in_flight("101x30")], true),
        ("CSIEnvInjectionOversizeSpike", vec![oversize("0+1x30")], false),
        ("CSIEnvInjectionOversizeSpike", vec![oversize("0+2x30")], true),
        (
            "CSIEnvInjectionHighLatency",
            vec![latency("0.1", "0+100x30"), latency("+Inf", "0+100x30")],
            false,
        ),
        (
            "CSIEnvInjectionHighLatency",
            vec![
                latency("0.1", "0+98x30"),
                latency("0.25", "0+100x30"),
                latency("+Inf", "0+100x30"),
            ],
            true,
        ),
    ];
    check_alerts(RULES, "25m", cases);
}

/// CSI-51, CSI-55
#[test]
fn prometheus_reads_every_expression_of_alerts_and_dashboard_csi_51_csi_55() {
    let Some(promtool) = PROMTOOL.find() else { return };
    check(Command::new(&promtool).args(["check", "rules"]).arg(deployed(RULES)));

    // The tool reads rules only, so each expression becomes one.
    let rules: Vec<_> = expressions()
        .into_iter()
        .enumerate()
        .map(|(at, expr)| json!({"record": format!("panel:{at}"), "expr": expr}))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    let content = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(&file, content.to_string()).unwrap();
    check(Command::new(promtool).args(["check", "rules"]).arg(file));
}

/// CSI-51, CSI-52, CSI-53, CSI-54, CSI-55
#[test]
fn the_dashboard_shows_every_metric_and_no_other_csi_51_csi_52_csi_53_csi_54_csi_55() {
    let expressions = expressions();
    for metric in METRICS {
        assert!(expressions.iter().any(|expr| expr.contains(metric)), "{metric}");
    }
    for expr in &expressions {
        assert!(METRICS.iter().any(|metric| expr.contains(metric)), "{expr}");
    }
}

fn in_flight(values: &str) -> Value {
    series("kubelet_csi_env_injection_inflight_requests{driver=\"d\"}", values)
}

fn oversize(values: &str) -> Value {
    let name = "kubelet_csi_env_injection_errors_total{driver=\"d\", error_type=\"oversize\"}";
    series(name, values)
}

fn rules() -> Vec<Value> {
    let file: Value =
        serde_saphyr::from_str(&fs::read_to_string(deployed(RULES)).unwrap()).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// Every expression of the dashboard, with what Grafana puts for its variables.
fn expressions() -> Vec<String> {
    let text = fs::read_to_string(deployed(DASHBOARD)).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<_> = targets
        .map(|target| {
            let expr = target["expr"].as_str().unwrap();
            expr.replace("$__rate_interval", "5m")
                .replace("$driver", ".*")
                .replace("$provider_class", ".*")
        })
        .collect();
    assert!(expressions.len() >= panels.len(), "a panel without an expression");
    assert!(expressions.iter().all(|expr| !expr.contains('$')), "an unknown variable");
    expressions
}
