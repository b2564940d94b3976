//! Admission webhooks, through the front door and over real TLS.

#![expect(
    clippy::needless_pass_by_value,
    reason = "literals of JSON read better without references"
)]

mod hook;

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use rcgen::{BasicConstraints, IsCa};
use serde_json::{Value, json};
use waybill_api::gates::FeatureGates;

use self::hook::{Hook, Say, patch};
use super::{TestServer, client::Reply};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn webhook(name: &str, client_config: &Value, resources: &[&str], change: Value) -> Value {
    let mut webhook = json!({
        "name": name,
        "clientConfig": client_config,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    for (key, value) in change.as_object().into_iter().flatten() {
        webhook[key] = value.clone();
    }
    webhook
}

impl TestServer {
    async fn configure(&self, path: &str, name: &str, webhooks: Vec<Value>) {
        let kind = if path == MUTATING {
            "MutatingWebhookConfiguration"
        } else {
            "ValidatingWebhookConfiguration"
        };
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": webhooks,
        });
        self.send("admin", "POST", path, &object.to_string()).await.created();
    }

    async fn make_pod(&self, name: &str) -> Reply {
        self.send("admin", "POST", PODS, &pod(name).to_string()).await
    }

    async fn hook(&self, handler: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Hook {
        Hook::start(self.server.ca_certificate(), handler).await
    }
}

fn message(reply: &Reply) -> String {
    reply.json()["message"].as_str().unwrap_or_default().to_owned()
}

/// Hole: a certificate that signed itself as an authority, which people give to their webhooks, was refused.
#[tokio::test]
async fn a_webhook_may_show_the_certificate_that_its_bundle_holds() {
    let server = TestServer::start_with_account().await;
    let authority = IsCa::Ca(BasicConstraints::Unconstrained);
    let clients = server.server.ca_certificate();
    let hook = Hook::start_as(authority, clients, |_| Say::Allow(json!({}))).await;
    let all = vec![webhook("own.example.com", &hook.client_config(), &["pods"], json!({}))];
    server.configure(VALIDATING, "own", all).await;
    server.make_pod("p").await.created();
    assert_eq!(hook.take().len(), 1);
}

#[tokio::test]
async fn a_mutating_webhook_changes_what_is_kept_and_is_told_who_asks() {
    let server = TestServer::start_with_account().await;
    let hook = server
        .hook(|_| {
            let mut allow = patch(&json!([
                {"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}},
                {"op": "add", "path": "/spec/unknown", "value": 1},
            ]));
            allow["warnings"] = json!(["labelled"]);
            allow["auditAnnotations"] = json!({"why": "because"});
            Say::Allow(allow)
        })
        .await;
    let judge = server.hook(|_| Say::Allow(json!({}))).await;
    let hooks = vec![webhook(
        "label.example.com",
        &hook.client_config(),
        &["pods"],
        json!({"timeoutSeconds": 7}),
    )];
    server.configure(MUTATING, "a", hooks).await;
    let hooks = vec![webhook("judge.example.com", &judge.client_config(), &["pods"], json!({}))];
    server.configure(VALIDATING, "a", hooks).await;

    let reply = server.make_pod("web").await;
    let made = reply.created();
    assert_eq!(made["metadata"]["labels"], json!({"by": "hook"}));
    assert!(made["spec"]["unknown"].is_null());
    assert_eq!(reply.warnings, ["299 - \"labelled\""]);

    let seen = &hook.take()[0];
    assert_eq!(seen["operation"], "CREATE");
    assert_eq!(seen["userInfo"]["username"], "admin");
    assert_eq!(seen["kind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
    assert_eq!(seen["options"]["kind"], "CreateOptions");
    assert_eq!(seen["object"]["spec"]["serviceAccountName"], "default");
    assert_eq!(seen["target"], "/hook?timeout=7s");
    // Those who may change nothing see what others made of it.
    assert_eq!(judge.take()[0]["object"]["metadata"]["labels"]["by"], "hook");
    // We prove who we are to webhooks that ask.
    assert!(hook.callers()[0].contains("apiserver"), "{:?}", hook.callers());

    let dir = server.dir.path().join("audit/audit.log");
    server.server.stop().await;
    let log = fs::read_to_string(dir).unwrap();
    let event = log.lines().find(|line| line.contains("label.example.com/why")).unwrap();
    let event: Value = serde_json::from_str(event).unwrap();
    let notes = &event["annotations"];
    assert_eq!(notes["label.example.com/why"], "because");
    let mutation: Value = serde_json::from_str(
        notes["mutation.webhook.admission.k8s.io/round_0_index_0"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(
        mutation,
        json!({"configuration": "a", "webhook": "label.example.com", "mutated": true})
    );
    let changes = notes["patch.webhook.admission.k8s.io/round_0_index_0"].as_str().unwrap();
    assert!(changes.contains("/metadata/labels") && !changes.contains("\"hook\""), "{changes}");
}

#[tokio::test]
async fn webhooks_refuse_with_their_own_words_and_code() {
    let server = TestServer::start_with_account().await;
    let hook = server
        .hook(|request| match request["object"]["metadata"]["name"].as_str() {
            Some("bad") => Say::Refuse(json!({"code": 403, "message": "not this one"})),
            _ => Say::Allow(json!({})),
        })
        .await;
    let hooks = vec![webhook("judge.example.com", &hook.client_config(), &["pods"], json!({}))];
    server.configure(VALIDATING, "v", hooks).await;
    server.make_pod("good").await.created();
    let refused = server.make_pod("bad").await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        message(&refused),
        "admission webhook \"judge.example.com\" denied the request: not this one"
    );
    // Nothing of it was kept, and without the webhook it is.
    assert_eq!(server.send("admin", "GET", &format!("{PODS}/bad"), "").await.code, 404);
    server.send("admin", "DELETE", &format!("{VALIDATING}/v"), "").await;
    server.make_pod("bad").await.created();
}

/// KEP-6035: a webhook sees the variables of a session before it begins, and may say no.
#[tokio::test]
async fn a_webhook_sees_and_refuses_sessions_kep_6035() {
    let server = TestServer::start_with(|config| config.gates = FeatureGates::all_on()).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts?watch=1";
    assert!(server.watch(accounts).await.next().await.is_some());
    server.make_pod("web").await.created();
    let hook = server
        .hook(|request| {
            let env = request["object"]["env"].as_array().cloned().unwrap_or_default();
            match env.iter().any(|own| own["name"] == "LD_PRELOAD") {
                true => Say::Refuse(json!({"code": 403, "message": "no LD_PRELOAD"})),
                false => Say::Allow(json!({})),
            }
        })
        .await;
    let hooks = vec![webhook("exec.example.com", &hook.client_config(), &["pods/exec"], json!({}))];
    server.configure(VALIDATING, "v", hooks).await;
    let exec = |env: &str| format!("{PODS}/web/exec?command=id&stdout=true&env={env}%3Dx");
    let refused = server.send("admin", "POST", &exec("LD_PRELOAD"), "").await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        message(&refused),
        "admission webhook \"exec.example.com\" denied the request: no LD_PRELOAD"
    );
    let seen = &hook.take()[0];
    assert_eq!(seen["operation"], "CONNECT");
    assert_eq!(seen["kind"]["kind"], "PodExecOptions");
    assert_eq!(seen["subResource"], "exec");
    assert_eq!(seen["object"]["command"], json!(["id"]));
    let admitted = server.send("admin", "POST", &exec("LEVEL"), "").await;
    assert!(message(&admitted).contains("does not have a host assigned"), "{admitted:?}");
}

/// KEP-6035: a mutating webhook may change the variables of a session, and the server's own rules judge what it made.
#[tokio::test]
async fn a_webhook_changes_the_variables_of_a_session_kep_6035() {
    let server = TestServer::start_with(|config| config.gates = FeatureGates::all_on()).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts?watch=1";
    assert!(server.watch(accounts).await.next().await.is_some());
    server.make_pod("web").await.created();
    let deny =
        json!({"metadata": {"annotations": {"waybill.dev/exec-env-deny": "LD_*"}}}).to_string();
    let namespace = "/api/v1/namespaces/default";
    let merge = "application/merge-patch+json";
    assert_eq!(server.send_as("admin", "PATCH", namespace, merge, deny).await.code, 200);
    let hook = server
        .hook(|request| {
            let name = request["object"]["env"][0]["name"].as_str().unwrap_or_default();
            let other = if name == "LD_PRELOAD" { "HARMLESS" } else { "LD_AUDIT" };
            let change = json!([{"op": "replace", "path": "/env/0/name", "value": other}]);
            Say::Allow(patch(&change))
        })
        .await;
    let hooks = vec![webhook("exec.example.com", &hook.client_config(), &["pods/exec"], json!({}))];
    server.configure(MUTATING, "m", hooks).await;
    let exec = |env: &str| format!("{PODS}/web/exec?command=id&stdout=true&env={env}%3Dx");
    let mended = server.send("admin", "POST", &exec("LD_PRELOAD"), "").await;
    assert!(message(&mended).contains("does not have a host assigned"), "{mended:?}");
    let spoilt = server.send("admin", "POST", &exec("LEVEL"), "").await;
    assert!(spoilt.code == 403 && message(&spoilt).contains("LD_AUDIT"), "{spoilt:?}");
}

/// A webhook that cannot be asked, for each reason, and both policies.
#[tokio::test]
async fn the_failure_policy_decides_when_a_webhook_cannot_be_asked() {
    let server = TestServer::start_with_account().await;
    let hanging = server.hook(|_| Say::Nothing).await;
    let moved = server
        .hook(|_| {
            Say::Raw(302, vec![("location", "https://127.0.0.1:1/".to_owned())], Bytes::new())
        })
        .await;
    let broken =
        server.hook(|_| Say::Raw(500, Vec::new(), Bytes::from_static(b"secret words"))).await;
    let endless = server.hook(|_| Say::Raw(200, Vec::new(), vec![b' '; 4 << 20].into())).await;
    let other = server.hook(|_| Say::Allow(json!({"uid": "another"}))).await;
    let closed =
        json!({"url": "https://127.0.0.1:1/", "caBundle": hanging.client_config()["caBundle"]});
    let strange = json!({"url": hanging.url, "caBundle": broken.client_config()["caBundle"]});
    let service = json!({"service": {"namespace": "default", "name": "none"}});
    for (place, (client_config, text)) in [
        (hanging.client_config(), "context deadline exceeded"),
        (moved.client_config(), "the webhook answered 302 Found"),
        (broken.client_config(), "the webhook answered 500 Internal Server Error"),
        (endless.client_config(), "the answer is longer than"),
        (other.client_config(), "received invalid webhook response: expected response.uid"),
        (closed, "dial tcp"),
        (strange, "tls: invalid peer certificate"),
        (service, "service"),
    ]
    .into_iter()
    .enumerate()
    {
        for policy in ["Fail", "Ignore"] {
            let change = json!({"failurePolicy": policy, "timeoutSeconds": 1});
            let hooks = vec![webhook("away.example.com", &client_config, &["pods"], change)];
            server.configure(VALIDATING, "v", hooks).await;
            let reply = server.make_pod(&format!("{}-{place}", policy.to_lowercase())).await;
            if policy == "Fail" {
                assert_eq!(reply.code, 500, "{text}: {reply:?}");
                let message = message(&reply);
                let head = "Internal error occurred: failed calling webhook \"away.example.com\": ";
                assert!(message.starts_with(head) && message.contains(text), "{text}: {message}");
                assert!(!message.contains("secret words"));
            } else {
                assert_eq!(reply.code, 201, "{text}: {reply:?}");
            }
            server.send("admin", "DELETE", &format!("{VALIDATING}/v"), "").await;
        }
    }
}

#[tokio::test]
async fn webhooks_are_called_again_when_others_changed_the_object_after_them() {
    let server = TestServer::start_with_account().await;
    static FIRST: AtomicUsize = AtomicUsize::new(0);
    let first = server
        .hook(|request| {
            FIRST.fetch_add(1, Ordering::Relaxed);
            let images = request["object"]["spec"]["containers"].as_array().unwrap().len();
            let value = json!({"count": images.to_string()});
            Say::Allow(patch(
                &json!([{"op": "add", "path": "/metadata/annotations", "value": value}]),
            ))
        })
        .await;
    let second = server
        .hook(|request| match request["object"]["spec"]["containers"].as_array().unwrap().len() {
            1 => Say::Allow(patch(&json!([
                {"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s"}}
            ]))),
            _ => Say::Allow(json!({})),
        })
        .await;
    let hooks = vec![
        webhook(
            "first.example.com",
            &first.client_config(),
            &["pods"],
            json!({"reinvocationPolicy": "IfNeeded"}),
        ),
        webhook("second.example.com", &second.client_config(), &["pods"], json!({})),
    ];
    server.configure(MUTATING, "m", hooks).await;
    let made = server.make_pod("web").await.created();
    assert_eq!(made["metadata"]["annotations"]["count"], "2");
    assert_eq!(made["spec"]["containers"].as_array().unwrap().len(), 2);
    assert_eq!(FIRST.load(Ordering::Relaxed), 2);
    assert_eq!(second.take().len(), 1);
}

#[tokio::test]
async fn conditions_selectors_and_dry_runs_are_respected() {
    let server = TestServer::start_with_account().await;
    let hook = server.hook(|_| Say::Refuse(json!({"message": "no"}))).await;
    let change = json!({
        "objectSelector": {"matchLabels": {"checked": "yes"}},
        "matchConditions": [{"name": "not-alice", "expression": "request.userInfo.username != 'alice'"}],
    });
    let hooks = vec![webhook("judge.example.com", &hook.client_config(), &["pods"], change)];
    server.configure(VALIDATING, "v", hooks).await;
    server.make_pod("unchecked").await.created();
    assert!(hook.take().is_empty());
    let mut checked = pod("checked");
    checked["metadata"]["labels"] = json!({"checked": "yes"});
    let path = format!("{PODS}?dryRun=All");
    assert_eq!(server.send("admin", "POST", &path, &checked.to_string()).await.code, 400);
    let seen = hook.take();
    assert_eq!(seen[0]["dryRun"], true);
    assert_eq!(seen[0]["options"]["dryRun"], json!(["All"]));
}

/// Hole: a webhook about everything, which nobody answers, must not lock its own removal out, nor the server.
#[tokio::test]
async fn a_dead_webhook_about_everything_can_be_taken_back() {
    let server = TestServer::start_with_account().await;
    let dead = json!({"url": "https://127.0.0.1:1/"});
    let all = json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    for path in [MUTATING, VALIDATING] {
        server
            .configure(path, "all", vec![webhook("all.example.com", &dead, &[], all.clone())])
            .await;
    }
    assert_eq!(server.make_pod("web").await.code, 500);
    let server = server.restart().await;
    assert_eq!(server.make_pod("web").await.code, 500);
    for path in [MUTATING, VALIDATING] {
        assert_eq!(server.send("admin", "DELETE", &format!("{path}/all"), "").await.code, 200);
    }
    server.make_pod("web").await.created();
}

#[tokio::test]
async fn a_webhook_that_wants_to_change_what_is_deleted_is_refused() {
    let server = TestServer::start_with_account().await;
    server.make_pod("web").await.created();
    let hook =
        server.hook(|_| Say::Allow(patch(&json!([{"op": "add", "path": "/a", "value": 1}])))).await;
    let hooks = vec![webhook("m.example.com", &hook.client_config(), &["pods"], json!({}))];
    server.configure(MUTATING, "m", hooks).await;
    let refused = server.send("admin", "DELETE", &format!("{PODS}/web"), "").await;
    assert_eq!(refused.code, 500);
    assert!(
        message(&refused).contains("attempted to modify the object, which is not supported"),
        "{refused:?}"
    );
    let seen = &hook.take()[0];
    assert_eq!(
        (seen["object"].is_null(), &seen["oldObject"]["metadata"]["name"]),
        (true, &json!("web"))
    );
}
