//! Roles of different age: each works with the others, and the variable is there when all of them know it.

use std::time::Instant;

use waybill_testkit::kubectl::{Kubectl, PATIENCE};

use super::{POD, audit_record, start_pod};
use crate::{
    people::{Person, variables, waybill},
    roles::{NEW, OLD, Patient, Roles},
};

const ENV: &str = "exec sessions -- env";

/// EXEC-50, EXEC-52, EXEC-56 (e), EXEC-23, EXEC-25, EXEC-38, EXEC-45.
#[test]
fn an_older_role_means_no_variable_and_nothing_else_exec_50_exec_52_exec_56() {
    let Some(mut roles) = Roles::start() else { return };
    start_pod(roles.kubectl());
    check_new(&roles);

    // EXEC-50: the node does not read the parameter.
    roles.node(OLD, &[]);
    check_old(&roles);
    let given = until_it_runs(roles.kubectl(), &["exec", POD, "--env", "A=b", "--", "env"]);
    assert!(!given.contains("A=b"), "{given}");

    // EXEC-52: the API server sends none.
    roles.node(NEW, &[]);
    roles.api_server(OLD);
    check_old(&roles);
    let refused = waybill(roles.kubectl(), &["exec", POD, "--env", "A=b", "--", "env"]);
    refused.fails_with(1, "env: Forbidden: ExecEnvVar feature gate is not enabled");
    assert_eq!(refused.stdout, "");

    // One gate of two: variables of the caller, and no audit ID.
    roles.api_server("ExecEnvVar=true,ExecRequestID=false");
    check_old(&roles);
    let given = until_it_runs(roles.kubectl(), &["exec", POD, "--env", "A=b", "--", "env"]);
    assert!(given.contains("A=b"), "{given}");

    roles.api_server(NEW);
    check_new(&roles);
    roles.stop();
}

/// EXEC-53: any order of upgrades and downgrades, with a pod that runs all the time.
#[test]
fn upgrades_need_no_order_and_no_clearing_up_exec_53() {
    let Some(mut roles) = Roles::start() else { return };
    start_pod(roles.kubectl());
    let before = container(&roles);
    // Each of the four combinations, entered from either side, and twice from new to new.
    let steps =
        [(OLD, NEW), (OLD, OLD), (NEW, OLD), (NEW, NEW), (NEW, OLD), (OLD, OLD), (OLD, NEW)];
    let mut at = (NEW, NEW);
    for (api_server, node) in steps.into_iter().chain([(NEW, NEW)]) {
        if api_server != at.0 {
            roles.api_server(api_server);
        }
        if node != at.1 {
            roles.node(node, &[]);
        }
        at = (api_server, node);
        if at == (NEW, NEW) {
            check_new(&roles);
        } else {
            check_old(&roles);
        }
    }
    // Without an API server nothing can be asked for, and nothing is lost.
    roles.stop_api_server();
    assert!(!roles.kubectl().line(ENV).succeeded());
    roles.api_server(NEW);
    check_new(&roles);
    assert_eq!(container(&roles), before, "the container never noticed");
    roles.stop();
}

/// EXEC-36: the feature changes nothing about who may.
#[test]
fn who_may_exec_is_the_same_with_and_without_the_feature_exec_36() {
    let Some(mut roles) = Roles::start() else { return };
    start_pod(roles.kubectl());
    roles.kubectl().line("create rolebinding anna --clusterrole=edit --user=anna").succeeds();
    roles.kubectl().line("create rolebinding boris --clusterrole=view --user=boris").succeeds();
    for gates in [NEW, OLD] {
        roles.api_server(gates);
        let person =
            |name: &str| Person::with_token(&roles.kubeconfig(), name, &format!("{name}-token"));
        person("anna").kubectl.until_it_succeeds(ENV);
        person("anna").waybill(&["exec", POD, "--", "env"]).succeeds();
        let boris = person("boris");
        // kubectl posts in the end, and we get; both need the right to create.
        for (ran, verb) in [
            (boris.kubectl.line(ENV), "create"),
            (boris.waybill(&["exec", POD, "--", "env"]), "get"),
        ] {
            let forbidden = format!(
                "pods \"sessions\" is forbidden: User \"boris\" cannot {verb} resource \
                 \"pods/exec\" in API group \"\" in the namespace \"default\""
            );
            ran.fails_with(1, &forbidden);
        }
    }
    roles.stop();
}

/// The variable is there, and leads to the audit log.
#[track_caller]
fn check_new(roles: &Roles) {
    let found = variables(&roles.kubectl().until_it_succeeds(ENV));
    let id = found.get("KUBERNETES_EXEC_AUDIT_ID");
    let id = id.unwrap_or_else(|| panic!("no audit ID in {found:?}"));
    let record = audit_record(&roles.audit_log(), id);
    assert_eq!(record["objectRef"]["subresource"], "exec", "{record:#}");
}

/// Sessions work, and the variable is not there.
#[track_caller]
fn check_old(roles: &Roles) {
    let found = variables(&roles.kubectl().until_it_succeeds(ENV));
    assert!(!found.contains_key("KUBERNETES_EXEC_AUDIT_ID"), "{found:?}");
    assert_eq!(found["LOG_LEVEL"], "info");
}

fn container(roles: &Roles) -> String {
    let status = "get pod sessions -o jsonpath={.status.containerStatuses[0].containerID}/\
                  {.status.containerStatuses[0].restartCount}";
    roles.kubectl().line(status).succeeds().stdout.clone()
}

#[track_caller]
fn until_it_runs(kubectl: &Kubectl, arguments: &[&str]) -> String {
    let start = Instant::now();
    loop {
        let ran = waybill(kubectl, arguments);
        if ran.succeeded() {
            return ran.stdout;
        }
        assert!(start.elapsed() < PATIENCE, "not in time: {ran:#?}");
    }
}
