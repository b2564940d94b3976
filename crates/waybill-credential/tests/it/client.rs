//! A `kube` client whose credential comes from a plugin.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use http::Request;
use waybill_credential::OnUnauthorized;

use crate::support::{Plugin, answer, serve, token};

/// Lets the tokens in `good` pass.
async fn server(good: &Arc<Mutex<Vec<&'static str>>>) -> (String, Arc<AtomicUsize>) {
    let (good, requests) = (Arc::clone(good), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&requests);
    let address = serve(None, move |_, request| {
        count.fetch_add(1, Ordering::SeqCst);
        let good = good.lock().unwrap().contains(&token(request).as_str());
        answer(if good { 200 } else { 401 })
    })
    .await;
    (format!("http://{address}"), requests)
}

fn good(tokens: &[&'static str]) -> Arc<Mutex<Vec<&'static str>>> {
    Arc::new(Mutex::new(tokens.to_vec()))
}

/// CRED-25
#[tokio::test]
async fn the_token_goes_with_every_request_and_the_plugin_runs_once_cred_25_28() {
    let plugin = Plugin::answering();
    let (server, _) = server(&good(&["first"])).await;
    let client = plugin.client(&server);
    for _ in 0..5 {
        client.apiserver_version().await.unwrap();
    }
    assert_eq!(plugin.runs(), 1);
}

/// CRED-33
#[tokio::test]
async fn a_refused_token_is_replaced_and_the_request_repeated_cred_33() {
    let plugin = Plugin::answering();
    let good = good(&["first"]);
    let (server, requests) = server(&good).await;
    let client = plugin.client(&server);
    client.apiserver_version().await.unwrap();
    plugin.token("second", None);
    *good.lock().unwrap() = vec!["second"];
    client.apiserver_version().await.unwrap();
    assert_eq!((plugin.runs(), requests.load(Ordering::SeqCst)), (2, 3));
}

/// CRED-33
#[tokio::test]
async fn without_repetition_the_401_is_returned_and_the_next_request_passes_cred_33() {
    let mut plugin = Plugin::answering();
    plugin.options.on_unauthorized = OnUnauthorized::Renew;
    let good = good(&["second"]);
    let (server, requests) = server(&good).await;
    let client = plugin.client(&server);
    // The credential is "first"; by the time of the refusal the plugin has another.
    let mut config = plugin.config(&server);
    let authenticator =
        plugin.registry.take_plugin("u", &mut config, &plugin.options).unwrap().unwrap();
    authenticator.credential().await.unwrap();
    plugin.token("second", None);
    assert!(matches!(
        client.apiserver_version().await.unwrap_err(),
        kube::Error::Api(status) if status.code == 401
    ));
    client.apiserver_version().await.unwrap();
    assert_eq!((plugin.runs(), requests.load(Ordering::SeqCst)), (2, 2));
}

/// CRED-33: as stock kubectl: one run for the token, one because it was refused.
#[tokio::test]
async fn a_token_that_is_always_refused_costs_two_runs_cred_33() {
    let plugin = Plugin::answering();
    let (server, requests) = server(&good(&[])).await;
    plugin.client(&server).apiserver_version().await.unwrap_err();
    assert_eq!((plugin.runs(), requests.load(Ordering::SeqCst)), (2, 1));
}

/// CRED-29, CRED-34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_share_one_run_and_one_more_when_refused_cred_29_34() {
    let plugin = Plugin::answering();
    let good = good(&["first"]);
    let (server, _) = server(&good).await;
    let client = plugin.client(&server);
    let all = || join_all((0..1000).map(|_| client.apiserver_version()));
    assert!(all().await.iter().all(Result::is_ok));
    assert_eq!(plugin.runs(), 1);
    plugin.token("second", None);
    *good.lock().unwrap() = vec!["second"];
    assert!(all().await.iter().all(Result::is_ok));
    assert_eq!(plugin.runs(), 2);
}

/// CRED-35
#[tokio::test]
async fn an_authorization_header_of_the_caller_wins_cred_35() {
    let plugin = Plugin::answering();
    let (server, _) = server(&good(&["mine"])).await;
    let request = Request::get("/version").header("authorization", "Bearer mine");
    let answer = plugin.client(&server).request_text(request.body(Vec::new()).unwrap()).await;
    answer.unwrap();
    assert_eq!(plugin.runs(), 0);
}

/// CRED-35
#[tokio::test]
async fn a_static_token_wins_cred_35() {
    let plugin = Plugin::answering();
    let (server, _) = server(&good(&["static"])).await;
    let mut config = plugin.config(&server);
    let token: Box<str> = "static".into();
    config.auth_info.token = Some(token.into());
    plugin.client_of(config).apiserver_version().await.unwrap();
    assert_eq!(plugin.runs(), 0);
}

/// CRED-33: a body that is there is sent twice.
#[tokio::test]
async fn writes_are_repeated_too_cred_33() {
    let plugin = Plugin::answering();
    let good = good(&["second"]);
    let (server, requests) = server(&good).await;
    let client = plugin.client(&server);
    let mut config = plugin.config(&server);
    let authenticator =
        plugin.registry.take_plugin("u", &mut config, &plugin.options).unwrap().unwrap();
    authenticator.credential().await.unwrap();
    plugin.token("second", None);
    let request = Request::post("/api/v1/namespaces").body(b"{}".to_vec()).unwrap();
    client.request_text(request).await.unwrap();
    assert_eq!((plugin.runs(), requests.load(Ordering::SeqCst)), (2, 2));
}

/// CRED-37
#[tokio::test]
async fn a_failing_plugin_is_told_in_upstreams_words_cred_37() {
    let plugin = Plugin::running("exit 1");
    let error = plugin.client("http://127.0.0.1:1").apiserver_version().await.unwrap_err();
    let kube::Error::Service(error) = error else { panic!("{error:?}") };
    assert_eq!(
        error.to_string(),
        "getting credentials: exec: executable /bin/sh failed with exit code 1"
    );
}

/// CRED-32
#[tokio::test]
async fn token_rotation_closes_no_connection_cred_32() {
    let plugin = Plugin::answering();
    plugin.token("t", Some(Duration::from_secs(10)));
    let last = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&last);
    let address = serve(None, move |number, _| {
        seen.store(number, Ordering::SeqCst);
        answer(200)
    })
    .await;
    let client = plugin.client(&format!("http://{address}"));
    client.apiserver_version().await.unwrap();
    plugin.clock.advance(Duration::from_secs(11));
    plugin.token("another", None);
    // A connection is idle a moment after its answer is read.
    for _ in 0..100 {
        client.apiserver_version().await.unwrap();
        if last.load(Ordering::SeqCst) == 0 {
            assert_eq!(plugin.runs(), 2);
            return;
        }
    }
    panic!("the first connection is not used again");
}
