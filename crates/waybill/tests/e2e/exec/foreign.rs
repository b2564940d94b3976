//! Sessions on stock containerd, which does not know their variables.

use waybill_testkit::apiserver::ADMIN_TOKEN;

use super::{POD, start_pod};
use crate::{
    people::{variables, waybill},
    raw::{SPDY, WEBSOCKET},
    roles::{NEW, NODE, OLD, Patient, Roles},
};

const TEXT: &str = "container runtime does not support ExecRequest.envs";

/// EXEC-41, EXEC-42, EXEC-51
#[test]
fn a_runtime_without_variables_is_told_of_or_refused_exec_41_exec_42_exec_51() {
    let Some(mut roles) = Roles::start_on_containerd() else { return };
    start_pod(roles.kubectl());
    let kubectl = roles.kubectl();
    let found = variables(&kubectl.line(&format!("exec {POD} -- env")));
    assert!(!found.contains_key("KUBERNETES_EXEC_AUDIT_ID"), "{found:?}");
    let found = variables(&waybill(kubectl, &["exec", POD, "--env", "LOG_LEVEL=x", "--", "env"]));
    assert_eq!(found["LOG_LEVEL"], "info");
    let events = format!(
        "get events --field-selector reason=ExecEnvUnsupported,involvedObject.name={POD} -o \
         jsonpath={{.items[*].type}}:{{.items[*].message}}"
    );
    kubectl.eventually_shows(&events, TEXT);
    kubectl.eventually_shows(&events, "Warning");
    let metrics = kubectl.run(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/metrics")]);
    let metrics = metrics.succeeds().stdout.clone();
    // kubectl may ask twice: containerd does not speak all that it would like to.
    let asked = sum(&metrics, "kubelet_http_requests_total{", "path=\"exec\"");
    assert!(asked >= 2, "{metrics}");
    assert_eq!(sum(&metrics, "kubelet_exec_envs_unsupported_total", ""), asked, "{metrics}");

    roles.node(NEW, &["--require-exec-env-support"]);
    let kubectl = roles.kubectl();
    // The node has to hear of its pods first.
    kubectl.until_it_succeeds(&format!("logs {POD}"));
    kubectl.line(&format!("exec {POD} -- touch /tmp/ran")).fails_with(1, TEXT);
    waybill(kubectl, &["exec", POD, "--", "touch", "/tmp/ran"]).fails_with(1, TEXT);
    let path = format!("/api/v1/namespaces/default/pods/{POD}/exec?stdout=true&command=env");
    let raw = roles.raw(ADMIN_TOKEN);
    for (method, headers) in [("GET", WEBSOCKET), ("POST", SPDY)] {
        let said = raw.ask(&format!("{method} {path}"), headers);
        assert_eq!(said.code, 501, "{said:?}");
        assert!(said.text.contains(TEXT), "{said:?}");
    }
    // Without variables there is nothing to refuse, and nothing has run before.
    roles.api_server(OLD);
    let ran = format!("exec {POD} -- sh -c ls${{IFS}}/tmp");
    let listed = roles.kubectl().until_it_succeeds(&ran);
    assert_eq!(listed.stdout.trim(), "");
    roles.stop();
}

/// Over the samples of a metric that have `part`.
fn sum(metrics: &str, name: &str, part: &str) -> u64 {
    let samples = metrics.lines().filter(|line| line.starts_with(name) && line.contains(part));
    samples.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}
