//! Ways around `pods/exec` and `pods/attach`, and thereby around their audit records: there are none.

use std::fs;

use waybill_testkit::{kubectl::Kubectl, stack::IMAGE};

use super::{Lab, POD, audit_id};
use crate::{
    people::Person,
    raw::{PLAIN, Raw, SPDY, WEBSOCKET},
    roles::{NEW, NODE, Patient, Roles},
};

const REFUSAL: &str = "is only served to sessions that the API server opened";

/// Both ways to a process: to start one, and to type into one.
const KINDS: [(&str, &str); 2] = [("exec", QUERY), ("attach", "input=1&output=1")];

/// EXEC-36, EXEC-58: who may use `nodes/proxy` can read from nodes, and start nothing.
#[test]
fn neither_nodes_proxy_nor_the_address_of_a_node_starts_anything_exec_36() {
    let Some(lab) = Lab::start() else { return };
    let admin = lab.stack.kubectl();
    admin
        .line("create clusterrole node-proxy --verb=get,create --resource=nodes,nodes/proxy")
        .succeeds();
    let of_nodes = |name: &str| {
        let bind = format!(
            "create clusterrolebinding {name} --clusterrole=node-proxy --serviceaccount=default:{name}"
        );
        admin.line(&bind).succeeds();
    };
    of_nodes("anna");
    let kubeconfig = lab.stack.state().join("kubeconfig");
    let nora = Person::account(admin, &kubeconfig, "nora", "view");
    of_nodes("nora");
    for person in [&lab.anna, &nora] {
        check_proxy(&lab, person);
        check_node(&lab, person);
    }
    assert!(lab.traces(&["--probes"]).is_empty(), "{:#?}", lab.traces(&["--probes"]));
    check_pods_exec(&lab, &nora);
    check_keys(&lab, &nora);
    lab.stop();
}

/// A static pod has one uid at its node and another at the API server.
#[test]
fn sessions_begin_in_static_pods() {
    let Some(mut roles) = Roles::start() else { return };
    let pods = roles.dir().join("static-pods");
    fs::create_dir(&pods).unwrap();
    let manifest = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: fixed}}, spec: {{
        terminationGracePeriodSeconds: 1,
        containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600']}}]}}}}"
    );
    fs::write(pods.join("fixed.yaml"), manifest).unwrap();
    let flag = format!("--static-pods={}", pods.display());
    roles.node(NEW, &[&flag, "--exec-sessions=require"]);
    let ran = roles.kubectl().until_it_succeeds(&format!("exec fixed-{NODE} -- env"));
    audit_id(&ran.stdout);
    fs::remove_file(pods.join("fixed.yaml")).unwrap();
    let gone = format!("wait --for=delete pod/fixed-{NODE} --timeout=60s");
    roles.kubectl().line(&gone).succeeds();
    roles.stop();
}

const QUERY: &str = "command=id&output=1&env=KUBERNETES_EXEC_AUDIT_ID=fake";

/// Through the API server.
fn check_proxy(lab: &Lab, person: &Person) {
    let proxy = format!("/api/v1/nodes/{}/proxy", lab.node_name());
    let raw = lab.raw(person);
    for (kind, query) in KINDS {
        let path = format!("{proxy}/{kind}/default/{POD}/main?{query}");
        let refused = person.kubectl.run(&["get", "--raw", &path]);
        refused.fails_with(1, &format!("{kind} {REFUSAL}"));
        refused.fails_with(1, &format!("use pods/{kind}"));
        for headers in shapes() {
            check_refused(&raw, kind, &format!("GET {path}"), &headers);
            // Nodes are only read from.
            assert_eq!(raw.ask(&format!("POST {path}"), &headers).code, 405);
        }
    }
    for verb in ["run", "cri/exec", "debug"] {
        let path = format!("{proxy}/{verb}/default/{POD}/main?{QUERY}");
        assert_eq!(raw.ask(&format!("GET {path}"), PLAIN).code, 404, "{verb}");
    }
    person.kubectl.run(&["get", "--raw", &format!("{proxy}/healthz")]).prints("ok");
    let logs = format!("{proxy}/containerLogs/default/{POD}/main");
    person.kubectl.run(&["get", "--raw", &logs]).succeeds();
}

/// At the node itself.
fn check_node(lab: &Lab, person: &Person) {
    let raw = lab.raw_to_node(person);
    let uid = format!("get pod {POD} -o jsonpath={{.metadata.uid}}");
    let uid = lab.stack.kubectl().line(&uid).succeeds().stdout.clone();
    for path in [format!("default/{POD}/main"), format!("default/{POD}/{uid}/main")] {
        for (method, (kind, query)) in
            ["GET", "POST"].iter().flat_map(|it| KINDS.map(|kind| (it, kind)))
        {
            for headers in shapes() {
                check_refused(&raw, kind, &format!("{method} /{kind}/{path}?{query}"), &headers);
            }
        }
    }
    check_refused(&raw, "exec", &format!("POST /%65xec/default/{POD}/main?{QUERY}"), SPDY);
    check_refused(&raw, "attach", &format!("POST /%61ttach/default/{POD}/main?input=1"), SPDY);
    for (kind, query) in KINDS {
        for token in ["", "x", "e30.e30.e30", "eyJhbGciOiJub25lIiwia2lkIjoiYSJ9.e30."] {
            let headers = format!("{SPDY}Waybill-Exec-Session: {token}\r\n");
            let said = raw.ask(&format!("POST /{kind}/default/{POD}/main?{query}"), &headers);
            assert_eq!(said.code, 403, "{token:?}: {said:?}");
            let malformed = format!("the token of this {kind} session is malformed");
            assert!(said.text.contains(&malformed), "{said:?}");
        }
    }
    assert_eq!(raw.ask("GET /healthz", PLAIN).code, 200);
}

#[track_caller]
fn check_refused(raw: &Raw, kind: &str, line: &str, headers: &str) {
    let said = raw.ask(line, headers);
    assert_eq!(said.code, 403, "{line}: {said:?}");
    assert!(said.text.contains(&format!("{kind} {REFUSAL}")), "{line}: {said:?}");
    assert!(said.text.contains(&format!("use pods/{kind}")), "{line}: {said:?}");
}

/// The straight way is open for whom it is meant: anna may, nora may not.
fn check_pods_exec(lab: &Lab, nora: &Person) {
    let ran = lab.anna.kubectl.line(&format!("exec {POD} -- env"));
    let id = audit_id(&ran.succeeds().stdout);
    assert_eq!(lab.record(&id)["user"]["username"], lab.anna.name.as_str());
    let ran = lab.anna.waybill(&["exec", POD, "--", "env"]);
    assert_ne!(audit_id(&ran.succeeds().stdout), id);
    let forbidden = format!("pods \"{POD}\" is forbidden: User \"{}\" cannot ", nora.name);
    nora.kubectl.line(&format!("exec {POD} -- env")).fails_with(1, &forbidden);
    nora.waybill(&["exec", POD, "--", "env"]).fails_with(1, &forbidden);
    assert_eq!(lab.traces(&[]).len(), 2, "{:#?}", lab.traces(&[]));
}

/// The keys are for nodes. They hold nothing secret, and nobody needs to know that.
fn check_keys(lab: &Lab, nora: &Person) {
    let read = |kubectl: &Kubectl| kubectl.run(&["get", "--raw", "/waybill/v1/exec-session-keys"]);
    read(&nora.kubectl).fails_with(1, "Forbidden");
    let keys = read(lab.stack.kubectl()).json();
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1, "{keys}");
    assert!(keys["keys"][0].get("d").is_none(), "{keys}");
}

/// As a browser, old and new kubectl, and a plain client would ask; each with a token of their own making.
fn shapes() -> Vec<String> {
    [PLAIN, WEBSOCKET, SPDY].map(|headers| format!("{headers}Audit-ID: fake\r\n")).to_vec()
}
