//! The driver of Secrets Store providers, against a provider that is as picky as the real ones.

mod picky;

use std::{fs, path::Path};

use tempfile::TempDir;
use waybill_csi::{
    driver::{Call, Driver, FailureKind, Query},
    drivers::provider::Provider,
};

use self::picky::{Mood, Picky};
use crate::{
    account::{Issuer, call, failure, pod, query, values},
    conformance::{all_passed, judge_driver},
};

const OBJECTS: &str = "\
- objectName: db-password
  secretPath: secret/data/db
- objectName: api-key
  secretPath: secret/data/api
- objectName: gone
  secretPath: secret/data/gone
";

/// A directory with the socket of a provider called `picky`.
struct Lab {
    dir: TempDir,
    picky: Picky,
    driver: Provider,
}

impl Lab {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let picky = Picky::start(&dir.path().join("picky.sock"));
        let driver = Provider::new(vec![dir.path().join("older"), dir.path().to_owned()]);
        Self { dir, picky, driver }
    }

    fn call(&self) -> Call {
        let parameters = [
            ("provider", "picky"),
            ("roleName", "shop"),
            ("objects", OBJECTS),
            ("allowedFields", "*"),
            ("envInjection.refreshInterval", "1m"),
        ];
        Issuer::new().call(pod("web"), "vault", &parameters)
    }

    async fn failure(&self, key: &str) -> (FailureKind, String) {
        failure(self.driver.fetch(&self.call(), &[query(key, &[])]).await)
    }
}

fn keys(keys: &[&str]) -> Vec<Query> {
    keys.iter().map(|key| query(key, &[])).collect()
}

/// CSI-23
#[tokio::test]
async fn all_variables_are_one_mount_of_what_is_wanted_csi_23() {
    let lab = Lab::start();
    let queries = keys(&["db-password", "api-key", "db-password"]);
    let answers = values(lab.driver.fetch(&lab.call(), &queries).await);
    assert_eq!(answers, ["value of db-password", "value of api-key", "value of db-password"]);
    let asked = lab.picky.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].objects, ["db-password", "api-key"]);
    let attribute = |name: &str| asked[0].attributes.get(name).map(String::as_str);
    assert_eq!(attribute("csi.storage.k8s.io/pod.name"), Some("web-0"));
    assert_eq!(attribute("csi.storage.k8s.io/pod.namespace"), Some("shop"));
    assert_eq!(attribute("csi.storage.k8s.io/serviceAccount.name"), Some("web"));
    assert_eq!(attribute("roleName"), Some("shop"));
    for ours in ["provider", "allowedFields", "envInjection.refreshInterval"] {
        assert_eq!(attribute(ours), None);
    }
}

/// CSI-29
#[tokio::test]
async fn one_missing_object_takes_no_other_with_it_csi_29() {
    let lab = Lab::start();
    let queries = keys(&["db-password", "gone", "api-key"]);
    let answers = lab.driver.fetch(&lab.call(), &queries).await.unwrap();
    let kinds: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().err().map(|error| error.kind)).collect();
    assert_eq!(kinds, [None, Some(FailureKind::Backend), None]);
}

/// CSI-44
#[tokio::test]
async fn a_key_that_is_no_file_of_the_answer_is_not_found_csi_44() {
    let lab = Lab::start();
    let mut call = lab.call();
    call.parameters.insert("objects".into(), "- objectName: api-key\n".into());
    let (kind, text) = failure(lab.driver.fetch(&call, &keys(&["api-kee"])).await);
    assert_eq!(kind, FailureKind::NotFound);
    assert!(text.contains("no file \"api-kee\""), "{text}");
    let odd = [query("api-key", &[("field", "a")])];
    assert_eq!(failure(lab.driver.fetch(&call, &odd).await).0, FailureKind::Invalid);
}

/// CSI-49
#[tokio::test]
async fn answers_that_stock_drivers_refuse_are_refused_and_texts_are_kept_back_csi_49() {
    let lab = Lab::start();
    let moods = [
        (Mood::NoVersions, FailureKind::Backend, "named no version"),
        (Mood::ErrorCode, FailureKind::Backend, "the provider failed; its log says why"),
        (Mood::NoFiles, FailureKind::Invalid, "driver-writes-secrets"),
        (Mood::Twice, FailureKind::Backend, "two files of one path"),
        (Mood::Denied, FailureKind::Denied, "refused (PermissionDenied)"),
        (Mood::Busy, FailureKind::Unavailable, "does not answer"),
    ];
    for (mood, kind, part) in moods {
        lab.picky.be(mood);
        let (found, text) = lab.failure("api-key").await;
        assert_eq!(found, kind, "{mood:?}");
        assert!(text.contains(part), "{text}");
        assert!(!text.contains("value of"), "{text}");
    }
}

/// CSI-62
#[tokio::test]
async fn a_provider_that_writes_by_itself_finds_no_place_csi_62() {
    let lab = Lab::start();
    assert_eq!(values(lab.driver.fetch(&lab.call(), &keys(&["api-key"])).await).len(), 1);
    let target = lab.picky.asked()[0].target_path.clone();
    assert!(!Path::new(&target).exists());
    let made = fs::create_dir_all(&target);
    assert!(made.is_err(), "{target} can be made");
}

/// CSI-43
#[tokio::test]
async fn a_provider_may_come_and_go_csi_43() {
    let mut lab = Lab::start();
    let queries = keys(&["api-key"]);
    assert_eq!(values(lab.driver.fetch(&lab.call(), &queries).await).len(), 1);
    lab.picky.stop().await;
    assert_eq!(lab.failure("api-key").await.0, FailureKind::Unavailable);
    let socket = lab.dir.path().join("picky.sock");
    fs::remove_file(&socket).unwrap();
    let (kind, text) = lab.failure("api-key").await;
    assert_eq!(kind, FailureKind::Unavailable);
    assert!(text.starts_with("there is no picky.sock in "), "{text}");
    lab.picky = Picky::start(&socket);
    assert_eq!(values(lab.driver.fetch(&lab.call(), &queries).await).len(), 1);

    let named = |name: &str| call(pod("web"), &[("provider", name)]);
    let (kind, _) = failure(lab.driver.fetch(&named("../picky"), &queries).await);
    assert_eq!(kind, FailureKind::Invalid);
}

/// CSI-50
#[tokio::test]
async fn it_passes_every_case_csi_50() {
    let lab = Lab::start();
    let driver = Provider::new(vec![lab.dir.path().to_owned()]);
    let mut call = lab.call();
    let objects = "- objectName: db-password\n- objectName: api-key\n";
    call.parameters.insert("objects".into(), objects.into());
    all_passed(&judge_driver(driver, &call, &["db-password", "api-key"]).await);
}
