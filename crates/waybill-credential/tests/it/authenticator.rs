//! One credential for many: cache, single flight, expiry, pauses.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use waybill_credential::{MetricSink, PluginError, Renewal};

use crate::support::{Plugin, eventually};

const HOUR: Duration = Duration::from_hours(1);

/// CRED-28, CRED-29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn a_thousand_first_requests_run_the_plugin_once_cred_28_29() {
    let plugin = Plugin::answering();
    let authenticator = plugin.authenticator();
    let all = (0..1000).map(|_| {
        let authenticator = Arc::clone(&authenticator);
        tokio::spawn(async move { authenticator.credential().await.unwrap() })
    });
    let all: Vec<_> = join_all(all).await.into_iter().map(Result::unwrap).collect();
    assert!(all.iter().all(|credential| Arc::ptr_eq(credential, &all[0])));
    assert_eq!(plugin.runs(), 1);
}

/// CRED-29
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_who_waits_gets_the_same_error_cred_29() {
    let plugin = Plugin::running("echo run >>\"$RUNS\"; exit 1");
    let authenticator = plugin.authenticator();
    let all = join_all((0..100).map(|_| authenticator.credential())).await;
    assert!(all.iter().all(|one| matches!(
        one.as_ref().unwrap_err().plugin_error(),
        PluginError::Exit { code: 1, .. }
    )));
    assert_eq!(plugin.runs(), 1);
}

/// CRED-28
#[tokio::test]
async fn equal_configurations_share_and_any_difference_separates_cred_28() {
    let plugin = Plugin::answering();
    let first = plugin.authenticator();
    assert!(Arc::ptr_eq(&first, &plugin.authenticator()));
    let differs = |change: &dyn Fn(&mut kube::Config)| {
        let mut config = plugin.config("http://127.0.0.1:1");
        change(&mut config);
        let other = plugin.registry.take_plugin("u", &mut config, &plugin.options).unwrap();
        !Arc::ptr_eq(&first, &other.unwrap())
    };
    assert!(!differs(&|_| {}));
    assert!(differs(&|config| config.cluster_url = "http://127.0.0.1:2".parse().unwrap()));
    assert!(differs(&|config| config.tls_server_name = Some("n".to_owned())));
    assert!(differs(&|config| config.accept_invalid_certs = true));
    let exec = |change: &dyn Fn(&mut kube::config::ExecConfig)| {
        differs(&|config| change(config.auth_info.exec.as_mut().unwrap()))
    };
    assert!(exec(&|exec| exec.args.as_mut().unwrap().push("x".to_owned())));
    assert!(exec(&|exec| exec.env = None));
    assert!(exec(&|exec| exec.install_hint = Some("h".to_owned())));
    assert!(exec(&|exec| exec.provide_cluster_info = true));
}

/// CRED-07: `kube` must not run it again.
#[test]
fn the_stanza_is_taken_out_of_the_configuration_cred_07() {
    let plugin = Plugin::answering();
    let mut config = plugin.config("http://127.0.0.1:1");
    let take = |config: &mut _| plugin.registry.take_plugin("u", config, &plugin.options).unwrap();
    assert!(take(&mut config).is_some());
    assert!(config.auth_info.exec.is_none() && take(&mut config).is_none());
}

/// CRED-30
#[tokio::test]
async fn the_plugin_runs_again_when_its_credential_has_expired_cred_30() {
    let plugin = Plugin::answering();
    plugin.token("first", Some(HOUR));
    let authenticator = plugin.authenticator();
    let first = authenticator.credential().await.unwrap();
    plugin.token("second", None);
    assert!(Arc::ptr_eq(&first, &authenticator.credential().await.unwrap()));
    plugin.clock.advance(HOUR + Duration::from_millis(1));
    let second = authenticator.credential().await.unwrap();
    assert_eq!(second.authorization().unwrap(), "Bearer second");
    plugin.clock.advance(HOUR * 10_000);
    assert!(Arc::ptr_eq(&second, &authenticator.credential().await.unwrap()), "it does not expire");
    assert_eq!(plugin.runs(), 2);
}

/// CRED-30: as client-go: whoever needs it uses it, and the next one asks again.
#[tokio::test]
async fn a_credential_that_comes_expired_is_used_once_cred_30() {
    let plugin = Plugin::answering();
    plugin.token("late", Some(Duration::ZERO));
    plugin.clock.advance(HOUR);
    let authenticator = plugin.authenticator();
    for runs in 1..=3 {
        authenticator.credential().await.unwrap();
        assert_eq!(plugin.runs(), runs);
    }
}

/// CRED-48
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shortly_before_expiry_the_next_is_fetched_behind_everybodys_back_cred_48() {
    // The second run waits until the test lets it go on.
    let plugin = Plugin::running(
        "echo run >>\"$RUNS\"; [ $(wc -l <\"$RUNS\") = 1 ] || while [ ! -e \"$DIR/go\" ]; do sleep 0.01; done; \
         cat \"$ANSWER\"",
    );
    plugin.token("first", Some(HOUR));
    let authenticator = plugin.authenticator();
    authenticator.credential().await.unwrap();
    plugin.clock.advance(HOUR - Duration::from_secs(36));
    plugin.token("second", Some(HOUR));
    for _ in 0..100 {
        let cached = authenticator.credential().await.unwrap();
        assert_eq!(cached.authorization().unwrap(), "Bearer first", "nobody waits");
    }
    std::fs::write(plugin.file("go"), "").unwrap();
    eventually("the second token is there", || {
        authenticator.cached().unwrap().authorization().unwrap() == "Bearer second"
    })
    .await;
    assert_eq!(plugin.runs(), 2);
}

/// CRED-39
#[tokio::test]
async fn a_plugin_that_fails_is_left_alone_for_a_while_cred_39() {
    let plugin = Plugin::running("echo run >>\"$RUNS\"; [ -e \"$DIR/good\" ] && cat \"$ANSWER\"");
    let authenticator = plugin.authenticator();
    for (pause, runs) in [(1, 1), (2, 2), (4, 3)] {
        for _ in 0..10 {
            authenticator.credential().await.unwrap_err();
        }
        assert_eq!(plugin.runs(), runs, "no hot loop");
        plugin.clock.advance(Duration::from_secs(pause));
    }
    std::fs::write(plugin.file("good"), "").unwrap();
    authenticator.credential().await.unwrap();
    assert_eq!(plugin.runs(), 4);
}

/// CRED-33, CRED-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn a_thousand_refusals_run_the_plugin_once_more_cred_33_34() {
    let plugin = Plugin::answering();
    let authenticator = plugin.authenticator();
    let first = authenticator.credential().await.unwrap();
    plugin.token("second", None);
    let all = (0..1000).map(|_| {
        let (authenticator, first) = (Arc::clone(&authenticator), Arc::clone(&first));
        tokio::spawn(async move { authenticator.renew(&first).await })
    });
    for renewal in join_all(all).await {
        let Renewal::Changed(fresh) = renewal.unwrap() else { panic!("it is another") };
        assert_eq!(fresh.authorization().unwrap(), "Bearer second");
    }
    assert_eq!(plugin.runs(), 2);
}

/// CRED-39
#[tokio::test]
async fn a_credential_that_stays_the_same_is_not_asked_for_at_each_refusal_cred_39() {
    let plugin = Plugin::answering();
    let authenticator = plugin.authenticator();
    for (pause, runs) in [(1, 2), (2, 3), (4, 4)] {
        for _ in 0..5 {
            let used = authenticator.credential().await.unwrap();
            assert!(matches!(authenticator.renew(&used).await, Renewal::Unchanged));
        }
        assert_eq!(plugin.runs(), runs);
        plugin.clock.advance(Duration::from_secs(pause));
    }
}

/// CRED-39: a server that refuses everything, and a plugin that has a new token each time.
#[tokio::test]
async fn new_credentials_that_nobody_accepts_are_not_asked_for_at_each_refusal_cred_39() {
    let plugin = Plugin::answering();
    let authenticator = plugin.authenticator();
    for number in 0..20 {
        let used = authenticator.credential().await.unwrap();
        plugin.token(&format!("number-{number}"), None);
        authenticator.renew(&used).await;
    }
    assert_eq!(plugin.runs(), 3);
}

/// CRED-39
#[tokio::test]
async fn a_refresh_that_fails_discards_nothing_cred_39() {
    let plugin = Plugin::running("echo run >>\"$RUNS\"; [ ! -e \"$DIR/bad\" ] && cat \"$ANSWER\"");
    let authenticator = plugin.authenticator();
    let first = authenticator.credential().await.unwrap();
    std::fs::write(plugin.file("bad"), "").unwrap();
    assert!(matches!(authenticator.renew(&first).await, Renewal::Failed(_)));
    assert!(Arc::ptr_eq(&first, &authenticator.credential().await.unwrap()));
}

#[derive(Default)]
struct Calls(std::sync::Mutex<Vec<(i32, &'static str)>>);

impl MetricSink for Calls {
    fn count_call(&self, code: i32, status: waybill_credential::CallStatus) {
        self.0.lock().unwrap().push((code, status.as_str()));
    }
}

/// CRED-46, CRED-47
#[tokio::test]
async fn sinks_hear_of_calls_from_their_registration_on_cred_46_47() {
    let plugin = Plugin::running("echo run >>\"$RUNS\"; [ ! -e \"$DIR/bad\" ] && cat \"$ANSWER\"");
    let authenticator = plugin.authenticator();
    let first = authenticator.credential().await.unwrap();
    let calls = Arc::new(Calls::default());
    plugin.registry.add_sink(calls.clone());
    std::fs::write(plugin.file("bad"), "").unwrap();
    authenticator.renew(&first).await;
    std::fs::remove_file(plugin.file("bad")).unwrap();
    plugin.clock.advance(HOUR);
    authenticator.renew(&first).await;
    assert_eq!(*calls.0.lock().unwrap(), [(1, "plugin_execution_error"), (0, "no_error")]);
}
