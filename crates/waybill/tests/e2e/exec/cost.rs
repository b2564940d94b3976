//! What the feature costs: a pair in a message, and nothing that lasts.

use std::collections::HashSet;

use serde_json::Value;

use super::{POD, audit_records, start_pod};
use crate::{
    people::Person,
    roles::{NEW, OLD, Patient, Roles},
};

const SESSIONS: usize = 5;

/// EXEC-47, EXEC-49: every session is counted once, and none makes a request or an object of its own.
#[test]
fn a_session_makes_one_request_and_no_object_exec_47_exec_49() {
    let Some(mut roles) = Roles::start() else { return };
    start_pod(roles.kubectl());
    roles.kubectl().line("create rolebinding anna --clusterrole=edit --user=anna").succeeds();
    for (gates, label) in [(NEW, "injected"), (OLD, "skipped")] {
        roles.api_server(gates);
        let anna = Person::with_token(&roles.kubeconfig(), "anna", "anna-token");
        // The node asks once who may use it, and reads the keys of sessions.
        anna.kubectl.until_it_succeeds(&format!("exec {POD} -- true"));
        let (objects, requests) = (objects(&roles), requests(&roles).len());
        let counted = counted(&roles);
        for _ in 0..SESSIONS {
            anna.waybill(&["exec", POD, "--", "true"]).succeeds();
        }
        assert_eq!(self::objects(&roles), objects, "{gates}");
        let made: Vec<_> = self::requests(&roles).split_off(requests);
        let sessions = made.iter().filter(|it| it["objectRef"]["subresource"] == "exec").count();
        let ours = made.iter().filter(|it| it["user"]["username"] == "anna").count();
        let by_node = made.iter().filter(|it| is_of_node(it)).count();
        let made: Vec<_> =
            made.iter().map(|it| format!("{} {}", it["verb"], it["requestURI"])).collect();
        assert_eq!((sessions, ours, by_node), (SESSIONS, SESSIONS, 0), "{gates}: {made:#?}");
        let labels = ["injected", "placeholder", "skipped"];
        for ((name, before), now) in labels.iter().zip(counted).zip(self::counted(&roles)) {
            let expected = if *name == label { SESSIONS } else { 0 };
            assert_eq!(now - before, expected, "{gates}: {name}");
        }
    }
    roles.stop();
}

/// Versions of everything that a session could have left in the store.
fn objects(roles: &Roles) -> String {
    let kinds = "pods,events,secrets,configmaps,serviceaccounts,rolebindings";
    let versions =
        "-o=jsonpath={range .items[*]}{.metadata.name}:{.metadata.resourceVersion},{end}";
    roles.kubectl().run(&["get", kinds, "-A", versions]).succeeds().stdout.clone()
}

/// The requests that have been recorded, each once, without the node's signs of life.
fn requests(roles: &Roles) -> Vec<Value> {
    let mut seen = HashSet::new();
    let mut records = audit_records(&roles.audit_log());
    records.retain(|record| {
        let lives = matches!(record["objectRef"]["resource"].as_str(), Some("leases" | "nodes"));
        !lives && seen.insert(record["auditID"].to_string())
    });
    records
}

/// Something that the node wants to know or tell; it may have to connect again to what it follows.
fn is_of_node(record: &Value) -> bool {
    let node = |name: &str| name.starts_with("system:node:");
    record["user"]["username"].as_str().is_some_and(node)
        && !matches!(record["verb"].as_str(), Some("list" | "watch"))
}

/// How many sessions were counted as injected, placeholder and skipped.
fn counted(roles: &Roles) -> [usize; 3] {
    let metrics = roles.kubectl().run(&["get", "--raw", "/metrics"]).succeeds().stdout.clone();
    ["injected", "placeholder", "skipped"].map(|result| {
        let name = format!("apiserver_exec_audit_id_injected_total{{result=\"{result}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        value.map_or(0, |value| value.parse().unwrap())
    })
}
