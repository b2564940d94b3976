//! Who gets what, who runs the plugin, and who waits.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn ask(asker: i32) -> Ask {
    Ask {
        key: Key::test(1),
        plugin: "plugin".to_owned(),
        server: None,
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        interactive: false,
        asker: Some(Asker::test(asker)),
        max_age: 100 * SECOND,
        idle: 1_000_000 * SECOND,
    }
}

fn other_key(number: u8, ask: Ask) -> Ask {
    Ask { key: Key::test(number), ..ask }
}

fn interactive(ask: Ask) -> Ask {
    Ask { interactive: true, ..ask }
}

fn token(token: &str, expires: Option<i64>) -> SecretBytes {
    let expires = expires.map(|second| format!(",\"expirationTimestamp\":\"{}\"", at(second)));
    let answer = format!(
        "{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{{\"token\":\"{token}\"{}}}}}",
        expires.unwrap_or_default()
    );
    SecretBytes::from(answer.into_bytes())
}

fn no() -> Failure {
    Failure { code: 7, message: "no".to_owned() }
}

/// In one word, with the token if there is one.
fn word(decision: &Decision) -> String {
    let token = |answer: &SecretBytes| {
        let answer: serde_json::Value = serde_json::from_slice(answer.expose()).unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    match decision {
        Decision::Have(answer) => token(answer),
        Decision::Run(lease) => format!("run {lease}"),
        Decision::Renew(lease, answer) => format!("renew {lease} {}", token(answer)),
        Decision::Wait(lease, holder) => format!("wait {lease} {}", holder.pid),
        Decision::Failed(failure) => format!("failed {}", failure.code),
    }
}

#[track_caller]
fn check(store: &mut Store, ask: &Ask, waited: Option<u64>, second: i64, expected: &str) {
    assert_eq!(word(&store.decide(ask, 1, waited, at(second))), expected);
}

/// The first asker has run the plugin.
fn holding(answer: SecretBytes) -> Store {
    let mut store = Store::default();
    check(&mut store, &ask(1), None, 0, "run 1");
    store.printed(&ask(1), 1, answer, at(0));
    store
}

/// CRED-28, CRED-29
#[test]
fn one_runs_the_plugin_and_all_have_the_result_cred_28_29() {
    let mut store = Store::default();
    assert_eq!(word(&store.decide(&ask(1), 11, None, at(0))), "run 1");
    check(&mut store, &ask(2), None, 0, "wait 1 11");
    check(&mut store, &other_key(2, ask(3)), None, 0, "run 2");
    store.printed(&ask(1), 1, token("a", Some(1000)), at(1));
    check(&mut store, &ask(2), Some(1), 1, "a");
    check(&mut store, &ask(4), None, 1, "a");
    check(&mut store, &other_key(2, ask(4)), None, 1, "wait 2 1");
}

/// CRED-29: those who waited share the error; whoever comes later tries again.
#[test]
fn a_failure_is_told_to_those_who_waited_cred_29() {
    let mut store = Store::default();
    check(&mut store, &ask(1), None, 0, "run 1");
    check(&mut store, &ask(2), None, 0, "wait 1 1");
    store.failed(&ask(1), 1, no());
    check(&mut store, &ask(2), Some(1), 0, "failed 7");
    check(&mut store, &ask(3), None, 0, "run 2");
    check(&mut store, &ask(4), Some(1), 0, "failed 7");
    store.printed(&ask(3), 2, SecretBytes::copy_of(b"nonsense"), at(0));
    check(&mut store, &ask(4), Some(2), 0, "failed 1");
}

/// Where one failed for want of a terminal, somebody with a terminal does not fail.
#[test]
fn a_failure_without_a_terminal_says_nothing_to_people_with_one() {
    let mut store = Store::default();
    check(&mut store, &ask(1), None, 0, "run 1");
    store.failed(&ask(1), 1, no());
    check(&mut store, &interactive(ask(2)), Some(1), 0, "run 2");
    store.failed(&interactive(ask(2)), 2, no());
    check(&mut store, &interactive(ask(3)), Some(2), 0, "failed 7");
    check(&mut store, &ask(4), Some(2), 0, "failed 7");
}

#[test]
fn somebody_who_is_gone_is_followed_by_the_next() {
    let mut store = Store::default();
    check(&mut store, &ask(1), None, 0, "run 1");
    store.abandoned(&ask(1), 1);
    check(&mut store, &ask(2), Some(1), 0, "run 2");
    check(&mut store, &ask(3), Some(1), 0, "wait 2 1");
    // A word of the first comes too late, and ends nothing.
    store.failed(&ask(1), 1, no());
    store.printed(&ask(1), 1, token("late", None), at(0));
    check(&mut store, &ask(3), Some(2), 0, "wait 2 1");
}

/// CRED-33, CRED-34: the same process comes back only if its credential was refused.
#[test]
fn a_process_that_comes_back_gets_another_credential_cred_33_34() {
    let mut store = holding(token("a", Some(1000)));
    check(&mut store, &ask(2), None, 1, "a");
    check(&mut store, &ask(3), None, 1, "a");
    check(&mut store, &ask(2), None, 2, "run 2");
    check(&mut store, &ask(3), None, 2, "wait 2 1");
    check(&mut store, &ask(4), None, 2, "a");
    store.printed(&ask(2), 2, token("b", Some(1000)), at(3));
    check(&mut store, &ask(3), Some(2), 3, "b");
    check(&mut store, &ask(4), None, 3, "b");
    check(&mut store, &ask(2), None, 3, "run 3");
    // Nothing is known of processes that cannot be told apart.
    let nobody = Ask { asker: None, ..ask(0) };
    check(&mut store, &nobody, None, 3, "b");
    check(&mut store, &nobody, None, 3, "b");
}

/// CRED-33. Hole: whoever came after so many others was never believed to be refused.
#[test]
fn a_refusal_is_noticed_however_many_came_before_cred_33() {
    let mut store = holding(token("a", Some(1000)));
    for asker in 2..6000 {
        check(&mut store, &ask(asker), None, 1, "a");
    }
    check(&mut store, &ask(5999), None, 2, "run 2");
}

/// CRED-33: `kubectl apply -f -` has two caches, each of which asks once; it may also have been refused.
#[test]
fn a_process_that_asks_twice_in_any_case_is_believed_for_a_minute_cred_33() {
    let mut store = holding(token("a", Some(1000)));
    let apply = |pid| Ask { asker: Some(Asker::test_reading_stdin(pid)), ..ask(pid) };
    check(&mut store, &apply(2), None, 59, "a");
    check(&mut store, &apply(2), None, 59, "a");
    check(&mut store, &apply(2), None, 59, "run 2");
    store.failed(&apply(2), 2, no());
    check(&mut store, &apply(3), None, 60, "a");
    check(&mut store, &apply(3), None, 60, "run 3");
}

/// CRED-39
#[test]
fn a_refused_credential_outlives_a_plugin_that_fails_cred_39() {
    let mut store = holding(token("a", Some(1000)));
    check(&mut store, &ask(1), None, 1, "run 2");
    store.failed(&ask(1), 2, no());
    check(&mut store, &ask(2), None, 1, "a");
    check(&mut store, &ask(1), None, 1, "run 3");
}

/// CRED-30
#[test]
fn an_expired_credential_is_not_handed_out_cred_30() {
    let mut store = holding(token("a", Some(10)));
    check(&mut store, &interactive(ask(2)), None, 9, "a");
    check(&mut store, &ask(3), None, 10, "run 2");
    // One that was expired from the beginning serves those who waited, as in client-go.
    check(&mut store, &ask(4), None, 10, "wait 2 1");
    store.printed(&ask(3), 2, token("old", Some(5)), at(10));
    check(&mut store, &ask(4), Some(2), 10, "old");
    check(&mut store, &ask(5), None, 10, "run 3");
}

/// CRED-48: one renews, the others do not notice.
#[test]
fn one_asker_renews_shortly_before_the_end_cred_48() {
    let mut store = holding(token("a", Some(1000)));
    check(&mut store, &ask(2), None, 989, "a");
    check(&mut store, &interactive(ask(3)), None, 991, "a");
    check(&mut store, &ask(4), None, 991, "renew 2 a");
    check(&mut store, &ask(5), None, 991, "a");
    store.failed(&ask(4), 2, no());
    check(&mut store, &ask(6), None, 992, "a");
    store.sweep(at(1000));
    check(&mut store, &ask(7), None, 1000, "run 3");
}

/// CRED-24: without a time of expiry, for a while that its asker sets.
#[test]
fn a_credential_without_expiry_is_kept_for_a_while_cred_24() {
    let mut store = holding(token("a", None));
    check(&mut store, &ask(2), None, 99, "a");
    check(&mut store, &ask(3), None, 100, "run 2");
}

#[test]
fn a_certificate_is_not_kept_beyond_its_end() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_after = rcgen::date_time_ymd(1970, 1, 20);
    let answer = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {
            "token": "a", "expirationTimestamp": at(9_000_000).to_string(),
            "clientCertificateData": params.self_signed(&key).unwrap().pem(),
            "clientKeyData": key.serialize_pem(),
        },
    });
    let mut store = holding(SecretBytes::from(answer.to_string().into_bytes()));
    // The 20th of January begins 641,600 seconds after our time.
    check(&mut store, &interactive(ask(2)), None, 641_599, "a");
    check(&mut store, &interactive(ask(3)), None, 641_600, "run 2");
}

#[test]
fn what_nobody_asks_for_goes() {
    let mut store = Store::default();
    let brief = |asker| Ask { idle: 10 * SECOND, ..ask(asker) };
    check(&mut store, &brief(1), None, 0, "run 1");
    store.sweep(at(20));
    assert!(!store.is_empty(), "somebody runs the plugin");
    store.printed(&brief(1), 1, token("a", None), at(20));
    store.sweep(at(5));
    check(&mut store, &brief(2), None, 25, "a");
    store.sweep(at(34));
    assert!(!store.is_empty());
    store.sweep(at(35));
    assert!(store.is_empty() && store.entries.is_empty());
}

#[test]
fn what_is_forgotten_is_gone_even_if_it_was_on_its_way() {
    let mut store = holding(token("a", None));
    check(&mut store, &other_key(2, ask(1)), None, 1, "run 2");
    check(&mut store, &other_key(2, ask(2)), None, 1, "wait 2 1");
    assert_eq!(store.forget(Some("another")), 0);
    assert_eq!(store.forget(Some("plugin")), 1);
    check(&mut store, &ask(2), None, 1, "run 3");
    store.printed(&other_key(2, ask(1)), 2, token("b", None), at(1));
    assert!(store.list().is_empty());
    check(&mut store, &other_key(2, ask(2)), Some(2), 1, "b");
    check(&mut store, &other_key(2, ask(3)), None, 1, "run 4");
}

/// Hole: whoever asked after `forget` still got the credential of a run that had begun before.
#[test]
fn whoever_asks_after_it_was_forgotten_runs_the_plugin_anew() {
    let mut store = Store::default();
    check(&mut store, &ask(1), None, 1, "run 1");
    check(&mut store, &ask(2), None, 1, "wait 1 1");
    store.forget(None);
    check(&mut store, &ask(3), None, 2, "run 2");
    store.printed(&ask(1), 1, token("old", None), at(3));
    check(&mut store, &ask(2), Some(1), 3, "wait 2 1");
    store.printed(&ask(3), 2, token("new", None), at(4));
    check(&mut store, &ask(2), Some(2), 4, "new");
    check(&mut store, &ask(4), None, 4, "new");
}

#[test]
fn the_store_is_bounded() {
    let mut store = Store::default();
    for number in 0..=u8::try_from(COUNT).unwrap() {
        let ask = other_key(number, ask(1));
        let Decision::Run(lease) = store.decide(&ask, 1, None, at(i64::from(number))) else {
            panic!()
        };
        store.printed(&ask, lease, token("a", None), at(i64::from(number)));
    }
    assert_eq!(store.list().len(), COUNT);
    check(&mut store, &other_key(0, ask(2)), None, 65, "run 66");
    check(&mut store, &other_key(1, ask(2)), None, 65, "a");

    let large = "x".repeat(1 << 19);
    for number in 100..120 {
        let ask = other_key(number, ask(1));
        let Decision::Run(lease) = store.decide(&ask, 1, None, at(70)) else { panic!() };
        store.printed(&ask, lease, token(&large, None), at(70));
    }
    let bytes: usize = store
        .entries
        .values()
        .filter_map(|entry| entry.held.as_ref())
        .map(|held| held.answer.len())
        .sum();
    assert!(bytes <= BYTES && bytes > BYTES / 2, "{bytes}");
}

#[test]
fn a_list_shows_no_secret() {
    let mut store = holding(token("CANARY", Some(1000)));
    check(&mut store, &ask(2), None, 1, "CANARY");
    let list = store.list();
    assert_eq!((list[0].plugin.as_str(), list[0].uses), ("plugin", 2));
    assert!(!format!("{list:?}").contains("CANARY"));
}
