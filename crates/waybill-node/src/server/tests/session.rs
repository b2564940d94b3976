//! Which exec sessions are served: those that the API server signed, where it signs any.

use std::time::Duration;

use http::{Method, StatusCode};
use waybill_api::exec::{SessionClaims, SessionKind};

use super::{ExecSessionPolicy, Fixture, Setup, client::Said, signer::Signer, until};

const PATH: &str = "/exec/default/web/main";
const QUERY: &str = "command=sh&output=1&env=A=b";

/// Longer than the node believes what it knows of keys.
const MOMENT: Duration = Duration::from_secs(11);

const MISSING: &str = "exec is only served to sessions that the API server opened, and this request \
    has no token of one: use pods/exec (kubectl exec, waybill exec) in place of nodes/proxy or the \
    node's own address";

async fn signed(policy: ExecSessionPolicy) -> (Fixture, Signer) {
    let signer = Signer::new();
    let keys = Ok(signer.key_set());
    let fixture = Fixture::with(Setup { exec_sessions: policy, keys, ..Setup::default() }).await;
    (fixture, signer)
}

/// The exec of [`QUERY`] with these tokens.
async fn exec(fixture: &Fixture, method: Method, tokens: &[&str]) -> Result<(), Said> {
    let client = tokens.iter().fold(fixture.client(), |client, token| client.with_session(token));
    client.upgrade(method, &format!("{PATH}?{QUERY}")).await.map(drop)
}

async fn refused(fixture: &Fixture, tokens: &[&str]) -> Said {
    exec(fixture, Method::POST, tokens).await.unwrap_err()
}

#[tokio::test]
async fn an_exec_around_the_api_server_is_refused_whatever_its_shape() {
    for policy in [ExecSessionPolicy::Auto, ExecSessionPolicy::Require] {
        let (fixture, _) = signed(policy).await;
        for method in [Method::GET, Method::POST] {
            let said = exec(&fixture, method, &[]).await.unwrap_err();
            assert_eq!(said.summary(), (403, MISSING));
        }
        // Not an upgrade, as `kubectl get --raw` sends it; and in the long form of the path.
        for target in
            [PATH, "/exec/default/web/u-1/main?command=sh&output=1", "/%65xec/default/web/main"]
        {
            assert_eq!(fixture.client().get(target).await.summary(), (403, MISSING), "{target}");
        }
        assert!(fixture.runtime.state().calls.is_empty());
        let metrics = fixture.client().get("/metrics").await.text;
        let line = "waybill_node_exec_session_refusals_total{reason=\"missing\"} 5\n";
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn a_session_of_the_api_server_is_served_once() {
    let (fixture, signer) = signed(ExecSessionPolicy::Require).await;
    for method in [Method::GET, Method::POST] {
        let token = signer.sign(&signer.claims(QUERY));
        exec(&fixture, method.clone(), &[&token]).await.unwrap();
        let said = exec(&fixture, method, &[&token]).await.unwrap_err();
        let text =
            "the token of this exec session has been used before; begin sessions with pods/exec";
        assert_eq!(said.summary(), (403, text));
    }
    assert_eq!(fixture.runtime.state().execs.len(), 2);
    // One is still one when many come at the same time.
    let token = signer.sign(&signer.claims(QUERY));
    let tokens = [token.as_str()];
    let (first, second) =
        tokio::join!(exec(&fixture, Method::POST, &tokens), exec(&fixture, Method::POST, &tokens));
    assert_eq!([first, second].iter().filter(|session| session.is_ok()).count(), 1);
}

/// EXEC-22: nor does the token go on to the runtime.
#[tokio::test]
async fn the_token_stays_at_the_node_exec_22() {
    let (fixture, signer) = signed(ExecSessionPolicy::Require).await;
    let token = signer.sign(&signer.claims(QUERY));
    exec(&fixture, Method::POST, &[&token]).await.unwrap();
    let head = fixture.streaming.heads().pop().unwrap();
    assert!(!head.contains("waybill-exec-session"), "{head}");
    assert_eq!(fixture.runtime.state().execs[0].envs.len(), 1);
}

#[tokio::test]
async fn a_token_for_something_else_is_refused() {
    let (fixture, signer) = signed(ExecSessionPolicy::Auto).await;
    let check = async |change: fn(&mut SessionClaims), text: &str| {
        let mut claims = signer.claims(QUERY);
        change(&mut claims);
        let said = refused(&fixture, &[&signer.sign(&claims)]).await;
        assert_eq!(said.code, 403);
        assert!(said.text.contains(text), "{text:?} is not in {}", said.text);
    };
    check(|claims| claims.uid = "u-9".to_owned(), "for another pod, or for an earlier one").await;
    check(|claims| claims.pod = "other".to_owned(), "for another pod").await;
    check(|claims| claims.container = "shell".to_owned(), "for another container").await;
    check(|claims| claims.query = "x".to_owned(), "for another command, or for other").await;
    check(|claims| claims.expires_at = 61, "is malformed").await;
    let past = |claims: &mut SessionClaims| (claims.issued_at, claims.expires_at) = (-99, -39);
    check(past, "has ended").await;
    let future = |claims: &mut SessionClaims| (claims.issued_at, claims.expires_at) = (31, 91);
    check(future, "is from the future").await;
    assert!(fixture.runtime.state().execs.is_empty());
}

/// A pod of the same name may have been there before.
#[tokio::test]
async fn a_session_is_in_the_life_of_the_pod_that_was_signed() {
    let (fixture, signer) = signed(ExecSessionPolicy::Require).await;
    let target = |name: &str, uid: &str| format!("/exec/default/{name}/{uid}main?{QUERY}");
    let ask = async |name: &str, uid: &str, signed: &str| {
        let mut claims = signer.claims(QUERY);
        (claims.pod, claims.uid) = (name.to_owned(), signed.to_owned());
        let client = fixture.client().with_session(&signer.sign(&claims));
        client.upgrade(Method::POST, &target(name, uid)).await.map(drop)
    };
    ask("web", "", "u-1").await.unwrap();
    ask("web", "u-1/", "u-1").await.unwrap();
    assert_eq!(ask("web", "", "u-9").await.unwrap_err().code, 403);
    assert_eq!(ask("web", "u-9/", "u-1").await.unwrap_err().code, 404);
    assert_eq!(ask("other", "", "u-1").await.unwrap_err().code, 404);
    assert_eq!(fixture.runtime.state().execs.len(), 2);
}

#[tokio::test]
async fn a_token_that_is_none_is_refused_and_never_shown() {
    let (fixture, signer) = signed(ExecSessionPolicy::Auto).await;
    let good = signer.sign(&signer.claims(QUERY));
    let forged = Signer::new().sign(&signer.claims(QUERY));
    let (head, _) = good.rsplit_once('.').unwrap();
    let cut = format!("{head}.{}", "A".repeat(86));
    for (tokens, text) in [
        (&["hunter2"][..], "is malformed"),
        (&[""], "is malformed"),
        (&[good.as_str(), good.as_str()], "is malformed"),
        (&[good.as_str(), "hunter2"], "is malformed"),
        (&[forged.as_str()], "was signed with a key that the API server does not publish"),
        (&[cut.as_str()], "has a wrong signature"),
    ] {
        let said = refused(&fixture, tokens).await;
        assert_eq!(said.code, 403);
        assert!(said.text.contains(text) && !said.text.contains("hunter2"), "{}", said.text);
    }
    exec(&fixture, Method::POST, &[&good]).await.unwrap();
}

/// EXEC-52
#[tokio::test]
async fn an_api_server_that_signs_nothing_is_served_exec_52() {
    for code in [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN] {
        let fixture = Fixture::with(Setup { keys: Err(code), ..Setup::default() }).await;
        exec(&fixture, Method::POST, &[]).await.unwrap();
        // Another API server of the same cluster may sign, and this one may not have been asked.
        let signer = Signer::new();
        let token = signer.sign(&signer.claims(QUERY));
        exec(&fixture, Method::POST, &[&token]).await.unwrap();
    }
    let setup = Setup { exec_sessions: ExecSessionPolicy::Require, ..Setup::default() };
    let fixture = Fixture::with(setup).await;
    assert_eq!(refused(&fixture, &[]).await.summary(), (403, MISSING));
}

/// EXEC-53: neither order of upgrades needs a hand at the node.
#[tokio::test]
async fn a_change_at_the_api_server_is_noticed_without_a_restart_exec_53() {
    let fixture = Fixture::new().await;
    exec(&fixture, Method::POST, &[]).await.unwrap();
    let signer = Signer::new();
    for round in 0..3 {
        fixture.cluster().publish(Ok(signer.key_set()));
        let token = signer.sign(&signer.claims(QUERY));
        exec(&fixture, Method::POST, &[&token]).await.unwrap();
        fixture.pass(MOMENT);
        assert_eq!(refused(&fixture, &[]).await.summary(), (403, MISSING), "{round}");
        fixture.cluster().publish(Err(StatusCode::NOT_FOUND));
        fixture.pass(MOMENT);
        exec(&fixture, Method::POST, &[]).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_key_of_the_api_server_is_read_when_it_is_first_seen() {
    let (fixture, first) = signed(ExecSessionPolicy::Require).await;
    exec(&fixture, Method::POST, &[&first.sign(&first.claims(QUERY))]).await.unwrap();
    let second = Signer::new();
    fixture.cluster().publish(Ok(second.key_set()));
    fixture.pass(MOMENT);
    exec(&fixture, Method::POST, &[&second.sign(&second.claims(QUERY))]).await.unwrap();
    let said = refused(&fixture, &[&first.sign(&first.claims(QUERY))]).await;
    assert_eq!(said.code, 403);
}

/// EXEC-49: keys are read once, whatever comes; not even strangers make the node ask again and again.
#[tokio::test]
async fn sessions_cost_the_api_server_nothing_exec_49() {
    let (fixture, signer) = signed(ExecSessionPolicy::Auto).await;
    until(|| fixture.cluster().key_reads() == 1).await;
    for _ in 0..5 {
        exec(&fixture, Method::POST, &[&signer.sign(&signer.claims(QUERY))]).await.unwrap();
        refused(&fixture, &[]).await;
        refused(&fixture, &[&Signer::new().sign(&signer.claims(QUERY))]).await;
    }
    assert_eq!(fixture.cluster().key_reads(), 1);
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_opens_nothing() {
    let (fixture, signer) = signed(ExecSessionPolicy::Auto).await;
    exec(&fixture, Method::POST, &[&signer.sign(&signer.claims(QUERY))]).await.unwrap();
    fixture.cluster().publish(Err(StatusCode::INTERNAL_SERVER_ERROR));
    fixture.pass(MOMENT);
    // What was published counts on.
    assert_eq!(refused(&fixture, &[]).await.summary(), (403, MISSING));
    exec(&fixture, Method::POST, &[&signer.sign(&signer.claims(QUERY))]).await.unwrap();
    // A node that never had an answer knows nothing.
    let keys = Err(StatusCode::INTERNAL_SERVER_ERROR);
    let fixture = Fixture::with(Setup { keys, ..Setup::default() }).await;
    assert_eq!(refused(&fixture, &[]).await.summary(), (403, MISSING));
    let said = refused(&fixture, &[&signer.sign(&signer.claims(QUERY))]).await;
    assert_eq!(said.code, 503);
    let text = "the API server could not be asked for the keys of exec sessions: ";
    assert!(said.text.starts_with(text), "{}", said.text);
}

#[tokio::test]
async fn a_node_can_be_told_not_to_look_at_tokens() {
    let (fixture, _) = signed(ExecSessionPolicy::Ignore).await;
    exec(&fixture, Method::POST, &[]).await.unwrap();
    exec(&fixture, Method::POST, &["rubbish"]).await.unwrap();
    assert_eq!(fixture.cluster().key_reads(), 0);
}

#[tokio::test]
async fn a_node_without_api_server_serves_its_administrators() {
    let fixture = Fixture::with(Setup { cluster: false, ..Setup::default() }).await;
    exec(&fixture, Method::POST, &[]).await.unwrap();
    let said = refused(&fixture, &[&Signer::new().sign(&Signer::new().claims(QUERY))]).await;
    assert_eq!(said.code, 403);
}

#[tokio::test]
async fn port_forward_and_logs_need_no_token() {
    let (fixture, _) = signed(ExecSessionPolicy::Require).await;
    let target = "/portForward/default/web?port=80";
    fixture.client().upgrade(Method::POST, target).await.unwrap();
    std::fs::write(fixture.runtime.dir().join("0.log"), "").unwrap();
    assert_eq!(fixture.client().get("/containerLogs/default/web/main").await.code, 200);
    assert_eq!(fixture.client().get("/pods").await.code, 200);
}

const ATTACH: &str = "/attach/default/web/main";
const STREAMS: &str = "input=1&output=1";

async fn attach(fixture: &Fixture, tokens: &[&str]) -> Result<(), Said> {
    let client = tokens.iter().fold(fixture.client(), |client, token| client.with_session(token));
    client.upgrade(Method::POST, &format!("{ATTACH}?{STREAMS}")).await.map(drop)
}

/// Whoever types into a container's own process is recorded as whoever starts one.
#[tokio::test]
async fn an_attach_around_the_api_server_is_refused_whatever_its_shape() {
    let missing = "attach is only served to sessions that the API server opened, and this request \
        has no token of one: use pods/attach (kubectl attach) in place of nodes/proxy or the node's \
        own address";
    for policy in [ExecSessionPolicy::Auto, ExecSessionPolicy::Require] {
        let (fixture, _) = signed(policy).await;
        assert_eq!(attach(&fixture, &[]).await.unwrap_err().summary(), (403, missing));
        for target in
            [ATTACH, "/attach/default/web/u-1/main?output=1", "/%61ttach/default/web/main"]
        {
            assert_eq!(fixture.client().get(target).await.summary(), (403, missing), "{target}");
        }
        assert!(fixture.runtime.state().calls.is_empty());
    }
}

#[tokio::test]
async fn an_attach_of_the_api_server_is_served_once() {
    let (fixture, signer) = signed(ExecSessionPolicy::Require).await;
    let claims = SessionClaims { kind: SessionKind::Attach, ..signer.claims(STREAMS) };
    let token = signer.sign(&claims);
    attach(&fixture, &[&token]).await.unwrap();
    let text =
        "the token of this attach session has been used before; begin sessions with pods/attach";
    assert_eq!(attach(&fixture, &[&token]).await.unwrap_err().summary(), (403, text));
    assert_eq!(fixture.runtime.state().attaches.len(), 1);
}

/// A right to attach is no right to exec.
#[tokio::test]
async fn a_token_of_one_kind_begins_no_session_of_another() {
    let (fixture, signer) = signed(ExecSessionPolicy::Auto).await;
    let exec_token = signer.sign(&signer.claims(STREAMS));
    let said = attach(&fixture, &[&exec_token]).await.unwrap_err();
    assert!(said.code == 403 && said.text.contains("is for another kind of session"), "{said:?}");
    let claims = SessionClaims { kind: SessionKind::Attach, ..signer.claims(QUERY) };
    let said = refused(&fixture, &[&signer.sign(&claims)]).await;
    assert!(said.code == 403 && said.text.contains("is for another kind of session"), "{said:?}");
    let state = fixture.runtime.state();
    assert!(state.attaches.is_empty() && state.execs.is_empty());
}

/// EXEC-52: an API server that signs exec alone, or nothing, is served.
#[tokio::test]
async fn attach_needs_no_token_of_an_api_server_that_signs_none_exec_52() {
    let signer = Signer::new();
    let mut exec_alone = signer.key_set();
    exec_alone.as_object_mut().unwrap().remove("sessions");
    for keys in [Ok(exec_alone), Err(StatusCode::NOT_FOUND)] {
        let fixture = Fixture::with(Setup { keys, ..Setup::default() }).await;
        attach(&fixture, &[]).await.unwrap();
    }
    let (fixture, _) = signed(ExecSessionPolicy::Ignore).await;
    attach(&fixture, &["rubbish"]).await.unwrap();
}
