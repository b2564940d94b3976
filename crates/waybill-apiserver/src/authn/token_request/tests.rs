//! What is issued, and what is refused.

use super::*;
use crate::authn::{
    jwt::SigningKey,
    service_account::{Existing, ExistingPod},
};

const NOW: i64 = 1_700_000_000;
const ROBOT: Account<'_> = Account { namespace: "ns", name: "robot" };

/// Service account `robot` with pods `web` of its own and `db` of another account.
struct Cluster;

fn existing(uid: &str) -> Option<Existing> {
    Some(Existing { uid: uid.to_owned(), deleted: None })
}

impl Objects for Cluster {
    fn service_account(&self, namespace: &str, name: &str) -> Option<Existing> {
        existing("sa-uid").filter(|_| (namespace, name) == ("ns", "robot"))
    }
    fn pod(&self, _: &str, name: &str) -> Option<ExistingPod> {
        let account = match name {
            "web" | "lost" => "robot",
            "db" => "other",
            _ => return None,
        };
        let node = if name == "lost" { "n2" } else { "n1" };
        Some(ExistingPod {
            existing: existing("pod-uid")?,
            service_account: account.to_owned(),
            node: node.to_owned(),
        })
    }
    fn secret(&self, _: &str, name: &str) -> Option<Existing> {
        existing("secret-uid").filter(|_| name == "s")
    }
    fn node(&self, name: &str) -> Option<Existing> {
        existing("node-uid").filter(|_| name == "n1")
    }
}

fn tokens() -> ServiceAccountTokens {
    let key = SigningKey::generate().unwrap();
    ServiceAccountTokens::new("iss".into(), vec!["api".into()], key, Vec::new())
}

fn run(body: &Value, account: Account<'_>) -> Result<TokenAnswer, TokenRequestError> {
    let now = Timestamp::from_second(NOW).unwrap();
    token_request(&tokens(), &Cluster, account, body, Duration::from_secs(86_400), now)
}

#[track_caller]
fn check_refused(spec: Value, text: &str) {
    let error = run(&Value::from_iter([("spec", spec)]), ROBOT).err().unwrap();
    assert_eq!(error.to_string(), text);
}

#[test]
fn an_empty_request_gives_an_hour_for_the_api_server() {
    let mut answer = run(&json!({}), ROBOT).unwrap();
    assert_eq!(answer.warning, None);
    assert!(answer.credential_id.starts_with("JTI="));
    let token = answer.body["status"]["token"].take();
    assert_eq!(token.as_str().unwrap().split('.').count(), 3);
    assert_eq!(
        answer.body,
        json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": "robot",
                "namespace": "ns",
                "creationTimestamp": "2023-11-14T22:13:20Z",
            },
            "spec": {"audiences": ["api"], "expirationSeconds": 3600, "boundObjectRef": null},
            "status": {"token": null, "expirationTimestamp": "2023-11-14T23:13:20Z"},
        })
    );
}

#[test]
fn the_issued_token_verifies_with_its_binding() {
    let (tokens, now) = (tokens(), Timestamp::from_second(NOW).unwrap());
    for (pod, node_uid) in [("web", Some("node-uid")), ("lost", None)] {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": "pod-uid"});
        let body = json!({"spec": {"audiences": ["api", "vault"], "boundObjectRef": bound}});
        let longest = Duration::from_secs(86_400);
        let answer = token_request(&tokens, &Cluster, ROBOT, &body, longest, now).unwrap();
        let token = answer.body["status"]["token"].as_str().unwrap();
        let (user, audiences) = tokens.verify(token, tokens.audiences(), &Cluster, now).unwrap();
        assert_eq!(*audiences, ["api"]);
        let extra = |key: &str| {
            let key = format!("authentication.kubernetes.io/{key}");
            user.extra.get(&key).map(|values| values[0].clone())
        };
        assert_eq!(extra("pod-name").as_deref(), Some(pod));
        assert_eq!(extra("node-uid").as_deref(), node_uid);
        assert_eq!(extra("credential-id"), Some(answer.credential_id));
    }
}

#[test]
fn lifetimes_have_bounds() {
    check_refused(
        json!({"expirationSeconds": 599}),
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid \
            value: 599: may not specify a duration less than 10 minutes",
    );
    check_refused(
        json!({"expirationSeconds": MAX_SECONDS + 1}),
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid \
            value: 4294967297: may not specify a duration larger than 2^32 seconds",
    );
    let seconds = |seconds: i64| {
        let answer = run(&json!({"spec": {"expirationSeconds": seconds}}), ROBOT).unwrap();
        (answer.body["spec"]["expirationSeconds"].as_i64().unwrap(), answer.warning)
    };
    assert_eq!(seconds(600), (600, None));
    assert_eq!(seconds(86_400), (86_400, None));
    let warning = "requested expiration of 86401 seconds shortened to 86400 seconds";
    assert_eq!(seconds(86_401), (86_400, Some(warning.to_owned())));
}

#[test]
fn tokens_are_bound_to_what_exists_and_belongs_to_the_account() {
    let bound = |version: &str, kind: &str, name: &str, uid: &str| {
        json!({"boundObjectRef":
            {"apiVersion": version, "kind": kind, "name": name, "uid": uid}})
    };
    for (kind, name) in [("Pod", "web"), ("Secret", "s"), ("Node", "n1")] {
        let body = json!({"spec": bound("v1", kind, name, "")});
        assert!(run(&body, ROBOT).is_ok(), "{kind}");
    }
    check_refused(bound("v1", "Pod", "x", ""), "pods \"x\" not found");
    check_refused(bound("v1", "Secret", "x", ""), "secrets \"x\" not found");
    check_refused(bound("v1", "Node", "x", ""), "nodes \"x\" not found");
    check_refused(
        bound("v1", "Pod", "db", ""),
        "cannot bind token for serviceaccount \"robot\" to pod running with different \
            serviceaccount name.",
    );
    check_refused(
        bound("apps/v1", "Deployment", "x", ""),
        "cannot bind token to object of type apps/v1, Kind=Deployment",
    );
    check_refused(
        bound("v1", "Pod", "web", "old"),
        "Operation cannot be fulfilled on Pod \"web\": the UID in the bound object reference \
            (old) does not match the UID in record. The object might have been deleted and then \
            recreated",
    );
}

#[test]
fn the_body_must_speak_about_the_account_of_the_url() {
    let error = |body: Value, account| run(&body, account).err().unwrap().to_string();
    assert_eq!(
        error(json!({}), Account { namespace: "ns", name: "nobody" }),
        "serviceaccounts \"nobody\" not found"
    );
    assert_eq!(
        error(json!({"metadata": {"name": "other"}}), ROBOT),
        "the name of the object (other) does not match the name on the URL (robot)"
    );
    assert!(run(&json!({"metadata": {"name": "robot", "namespace": "ns"}}), ROBOT).is_ok());
    assert_eq!(error(json!({"spec": 3}), ROBOT), "the request body is not a TokenRequest");
    assert_eq!(error(json!(null), ROBOT), "the request body is not a TokenRequest");
}
