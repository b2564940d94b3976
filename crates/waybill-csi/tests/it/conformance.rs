//! Drivers over their sockets, judged by the suite that authors can run.

#[path = "../../examples/greeting.rs"]
#[expect(dead_code, reason = "it has a main function of its own")]
mod greeting;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use waybill_csi::{
    driver::{Call, Driver},
    drivers::{mock::Mock, os::Os},
    server::{Config, Server},
};
use waybill_testkit::{
    conformance::{Report, Verdict},
    driver_conformance::{self, Target},
};

use crate::account::target;

pub(crate) async fn judge(server: Server, target: &Target) -> Vec<Report> {
    let reports = driver_conformance::run(target).await.unwrap();
    server.stop().await;
    reports
}

/// Serves `driver` and asks it as a node would for `call`.
pub(crate) async fn judge_driver<D: Driver>(driver: D, call: &Call, keys: &[&str]) -> Vec<Report> {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let server = Server::start(driver, Config::new(&socket)).await.unwrap();
    judge(server, &target(&socket, call, keys)).await
}

#[track_caller]
pub(crate) fn all_passed(reports: &[Report]) {
    assert!(reports.iter().all(|report| report.verdict == Verdict::Passed), "{reports:#?}");
}

fn failed(reports: &[Report]) -> Vec<&str> {
    let failed = reports.iter().filter(|it| matches!(it.verdict, Verdict::Failed(_)));
    failed.map(|report| report.requirement).collect()
}

async fn mock(dir: &Path, script: &str) -> (Server, Target) {
    let path = dir.join("script");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let socket = dir.join("csi.sock");
    let mock = Mock::new("mock.example.com", path).unwrap();
    let server = mock.serve(Config::new(&socket)).await.unwrap();
    (server, Target::new(socket, &["app/password", "app/user"]))
}

/// CSI-50
#[tokio::test]
async fn the_driver_os_passes_every_case_csi_50() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let server = Server::start(Os::new("/"), Config::new(&socket)).await.unwrap();
    let keys = ["os/kernel/release", "os/basic/hostname", "os/memory/total"];
    all_passed(&judge(server, &Target::new(socket, &keys)).await);
}

/// CSI-50
#[tokio::test]
async fn the_example_of_the_guide_passes_every_case_csi_50() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let server = Server::start(greeting::Greeting, Config::new(&socket)).await.unwrap();
    let mut target = Target::new(socket, &["english", "latin"]);
    target.parameters.insert("mark".to_owned(), "!".to_owned());
    all_passed(&judge(server, &target).await);
}

/// CSI-50
#[tokio::test]
async fn a_good_mock_passes_every_case_csi_50() {
    let dir = tempfile::tempdir().unwrap();
    let script = "values: {app/password: correct horse, app/user: battery staple}";
    let (server, target) = mock(dir.path(), script).await;
    all_passed(&judge(server, &target).await);
}

/// The suite can fail: each of these breaks a rule, and the case for it says so.
#[tokio::test]
async fn drivers_that_misbehave_are_caught() {
    let values = "values: {app/password: correct horse, app/user: battery staple}";
    for (otherwise, requirement) in [
        ("wrong-order", "CSI-05"),
        ("missing-result", "CSI-05"),
        ("extra-result", "CSI-08"),
        ("value-and-error", "CSI-05"),
        ("nul", "CSI-05"),
        ("{status: {code: 13, message: the value is correct horse}}", "CSI-44"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (server, target) = mock(dir.path(), &format!("{values}\notherwise: {otherwise}")).await;
        let reports = judge(server, &target).await;
        assert!(failed(&reports).contains(&requirement), "{otherwise}: {reports:#?}");
    }
}

/// CSI-49
#[tokio::test]
async fn a_failure_that_tells_a_value_is_caught_csi_49() {
    let dir = tempfile::tempdir().unwrap();
    let script = "
values: {app/password: correct horse, app/user: battery staple}
errors: {app/password-waybill-missing: {kind: not-found, message: 'not correct horse'}}";
    let (server, target) = mock(dir.path(), script).await;
    assert_eq!(failed(&judge(server, &target).await), ["CSI-49"]);
}

/// CSI-06
#[tokio::test]
async fn a_driver_without_the_capability_is_unsupported_and_not_wrong_csi_06() {
    let dir = tempfile::tempdir().unwrap();
    let (server, target) = mock(dir.path(), "capability: false").await;
    let reports = judge(server, &target).await;
    assert!(failed(&reports).is_empty(), "{reports:#?}");
    assert!(reports.iter().any(|report| report.verdict == Verdict::Unsupported));
}

/// CSI-50
#[test]
fn the_guide_shows_the_example_as_it_is_and_every_key_of_os_csi_50() {
    let guide = include_str!("../../../../docs/guide/driver-author.md");
    assert!(guide.contains(include_str!("../../examples/greeting.rs")));
    for (key, meaning) in waybill_csi::drivers::os::KEYS {
        assert!(guide.contains(&format!("| `{key}` | {meaning} |")), "{key}");
    }
}
