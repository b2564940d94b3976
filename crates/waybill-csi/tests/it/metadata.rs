//! The metadata driver: EC2 as ministack knows it, GCE and Azure as `clouds` does.

use std::slice;

use http::StatusCode;
use waybill_csi::{
    driver::{Call, Driver, FailureKind},
    drivers::metadata::Metadata,
};
use waybill_testkit::aws::{AwsServer, Make};

use crate::{
    account::{call, failure, only, pod, query, values},
    clouds::{AZURE_TOKEN, GCE_TOKEN, azure, gce},
    conformance::{all_passed, judge_driver},
    web::{Web, chunked, page},
};

pub(crate) fn class(cloud: &str, endpoint: &str, more: &[(&str, &str)]) -> Call {
    let parameters = [&[("cloud", cloud), ("endpoint", endpoint)], more].concat();
    call(pod("web"), &parameters)
}

/// CSI-50
#[tokio::test]
async fn ec2_is_asked_with_a_token_only_csi_50() {
    let Some(stack) = AwsServer::start(Make::Ministack) else { return };
    let call = class("ec2", stack.address(), &[]);
    let queries = [query("placement/availability-zone", &[]), query("instance-id", &[])];
    let driver = Metadata::new().at(only(stack.address()));
    let answers = values(driver.fetch(&call, &queries).await);
    assert!(answers[0].ends_with('a') && answers[1].starts_with("i-"), "{answers:?}");
    assert_eq!(values(driver.fetch(&call, &queries).await), answers);

    let none = driver.fetch(&call, &[query("no/such/thing", &[])]).await;
    assert_eq!(failure(none).0, FailureKind::NotFound);
}

#[tokio::test]
async fn credentials_of_the_machine_are_for_classes_that_say_so() {
    let Some(stack) = AwsServer::start(Make::Ministack) else { return };
    let driver = Metadata::new().at(only(stack.address()));
    let role = "iam/security-credentials/ministack-instance-role";
    let queries = [query(role, &[("field", "Type")])];
    let (kind, text) = failure(driver.fetch(&class("ec2", stack.address(), &[]), &queries).await);
    assert_eq!(kind, FailureKind::Denied);
    assert!(text.contains("allowCredentials"), "{text}");
    let open = class("ec2", stack.address(), &[("allowCredentials", "true")]);
    assert_eq!(values(driver.fetch(&open, &queries).await), ["AWS-HMAC"]);
    for trick in ["IAM/Security-Credentials/x", "iam/info/../security-credentials/x", "iam%2fx"] {
        let answers = driver.fetch(&class("ec2", stack.address(), &[]), &[query(trick, &[])]).await;
        let (kind, _) = failure(answers);
        assert!(matches!(kind, FailureKind::Denied | FailureKind::Invalid), "{trick}");
    }
}

#[tokio::test]
async fn gce_tells_facts_and_keeps_its_tokens() {
    let web = Web::start(gce).await;
    let (driver, call) = (Metadata::new().at(only(&web.address)), class("gce", &web.address, &[]));
    let zone = query("instance/zone", &[]);
    let answers = driver.fetch(&call, &[zone.clone(), zone]).await;
    assert_eq!(values(answers), ["projects/1/zones/europe-west3-a"; 2]);
    let token = query("instance/service-accounts/default/token", &[("field", "access_token")]);
    let kept = driver.fetch(&call, slice::from_ref(&token)).await;
    assert_eq!(failure(kept).0, FailureKind::Denied);
    let open = class("gce", &web.address, &[("allowCredentials", "true")]);
    assert_eq!(values(driver.fetch(&open, &[token]).await), [GCE_TOKEN]);
    let folder = driver.fetch(&call, &[query("instance", &[])]).await;
    assert_eq!(failure(folder).0, FailureKind::Invalid);
}

#[tokio::test]
async fn azure_tells_facts_and_keeps_its_tokens() {
    let web = Web::start(azure).await;
    let (driver, call) =
        (Metadata::new().at(only(&web.address)), class("azure", &web.address, &[]));
    let answers = driver.fetch(&call, &[query("compute/location", &[])]).await;
    assert_eq!(values(answers), ["germanywestcentral"]);
    let parameters = [("resource", "https://vault.azure.net"), ("field", "access_token")];
    let token = query("identity/oauth2/token", &parameters);
    let kept = driver.fetch(&call, slice::from_ref(&token)).await;
    assert_eq!(failure(kept).0, FailureKind::Denied);
    let open = class("azure", &web.address, &[("allowCredentials", "true")]);
    assert_eq!(values(driver.fetch(&open, slice::from_ref(&token)).await), [AZURE_TOKEN]);

    // Microsoft's client waits and asks again, too: tokens are there always, but not while the service is renewed.
    let web = Web::start(|_| page(StatusCode::NOT_FOUND, "")).await;
    let renewed = class("azure", &web.address, &[("allowCredentials", "true")]);
    let driver = Metadata::new().at(only(&web.address));
    let answers = driver.fetch(&renewed, &[token, query("compute/none", &[])]).await.unwrap();
    let kinds: Vec<_> =
        answers.into_iter().filter_map(Result::err).map(|error| error.kind).collect();
    assert_eq!(kinds, [FailureKind::Unavailable, FailureKind::NotFound]);
}

#[tokio::test]
async fn connections_are_kept_and_answers_are_bounded() {
    let web = Web::start(|request| match request.uri().path() {
        "/computeMetadata/v1/long" => page(StatusCode::OK, &"x".repeat((1 << 20) + 1)),
        "/computeMetadata/v1/endless" => chunked(65, &[b'x'; 16 << 10]),
        "/computeMetadata/v1/chunked" => chunked(3, b"abc"),
        "/computeMetadata/v1/full" => chunked(64, &[b'x'; 16 << 10]),
        _ => page(StatusCode::OK, "value"),
    });
    let web = web.await;
    let (driver, call) = (Metadata::new().at(only(&web.address)), class("gce", &web.address, &[]));
    for _ in 0..5 {
        assert_eq!(values(driver.fetch(&call, &[query("a", &[])]).await), ["value"]);
    }
    assert_eq!(web.connections(), 1);
    assert_eq!(values(driver.fetch(&call, &[query("chunked", &[])]).await), ["abcabcabc"]);
    assert_eq!(values(driver.fetch(&call, &[query("full", &[])]).await)[0].len(), 1 << 20);
    for key in ["long", "endless"] {
        let (kind, text) = failure(driver.fetch(&call, &[query(key, &[])]).await);
        assert_eq!(kind, FailureKind::Backend);
        assert!(text.ends_with("has more than 1048576 bytes"), "{text}");
    }
}

/// CSI-49
#[tokio::test]
async fn a_redirect_is_not_followed_csi_49() {
    let elsewhere = Web::start(|_| page(StatusCode::OK, "stolen")).await;
    let target = elsewhere.address.clone();
    let web = Web::start(move |_| {
        let mut page = page(StatusCode::TEMPORARY_REDIRECT, "");
        page.headers_mut().insert("location", target.parse().unwrap());
        page
    });
    let web = web.await;
    let answers = Metadata::new()
        .at(only(&web.address))
        .fetch(&class("gce", &web.address, &[]), &[query("a", &[])])
        .await;
    assert_eq!(failure(answers).0, FailureKind::Invalid);
    assert_eq!(elsewhere.connections(), 0);
}

/// CSI-50
#[tokio::test]
async fn it_passes_every_case_csi_50() {
    let Some(stack) = AwsServer::start(Make::Ministack) else { return };
    let call = class("ec2", stack.address(), &[]);
    let keys = ["placement/availability-zone", "instance-id"];
    all_passed(&judge_driver(Metadata::new().at(only(stack.address())), &call, &keys).await);
}
