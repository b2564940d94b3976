//! Stock containerd with the wrapper as the runtime of a handler: what it calls, and what users see.

use std::{collections::BTreeMap, fs, path::Path, process::Command, sync::Arc};

use serde_json::json;
use sha2::{Digest, Sha256};
use waybill_api::stock::{Mode, SESSION_VARIABLE, StockClaims, Verdict as Decision, stamped};
use waybill_testkit::{
    conformance::{self, ConformanceError, Report, Stamp, Target, Verdict},
    containerd::Containerd,
    program::RUNC,
};

use crate::lab::{self, Lab, Setting, digest, owned, sealed, signed};

const IMAGE: &str = "localhost/wrapped:1";

/// A node whose containerd calls the wrapper; `None` if this machine cannot have one.
fn node(mode: Mode) -> Option<(Lab, Containerd)> {
    let setting = lab::settings().into_iter().find(Setting::is_plain_runc)?;
    RUNC.find()?;
    let lab = Lab::new(&setting, mode);
    let containerd = Containerd::start_behind(IMAGE, &lab.path("opt/bin/waybill-oci"))?;
    containerd.import(&archive(&lab.path("image")));
    Some((lab, containerd))
}

/// The suite of KEP-6035 in a pod of the handler.
fn suite(containerd: &Containerd, stamp: Option<Stamp>) -> Result<Vec<Report>, ConformanceError> {
    let target =
        Target { handler: "waybill".to_owned(), stamp, ..Target::new(containerd.socket(), IMAGE) };
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    threads.block_on(conformance::run(&target))
}

/// What gate does, for the one container of the suite.
fn gate() -> Stamp {
    let make = Arc::new(|command: &[&str], variables: &[(&str, &[u8])]| {
        // Of a repeated name, a client of ours sends the last.
        let last: BTreeMap<_, _> = variables.iter().copied().collect();
        let texts: Vec<_> = last
            .iter()
            .map(|(name, value)| (*name, str::from_utf8(value).unwrap_or("not text")))
            .collect();
        let uid = format!("conformance-{}", std::process::id());
        let word = (!texts.is_empty()).then(|| {
            sealed(&texts, |sealed| {
                sealed.uid.clone_from(&uid);
                sealed.container = "sleeper".to_owned();
            })
        });
        let claims = StockClaims {
            namespace: "default".to_owned(),
            pod: "exec-env-conformance".to_owned(),
            container: "sleeper".to_owned(),
            uid,
            words: digest(&stamped(word.as_deref(), &owned(command))),
            ..lab::claims()
        };
        signed(&claims, word.as_deref(), command)
    });
    Stamp { make, adds: SESSION_VARIABLE }
}

/// EXEC-57: what stock containerd does not know works behind the wrapper, but for two things that its formats cannot say.
#[test]
fn stock_containerd_behind_the_wrapper_gives_sessions_their_variables_exec_57() {
    let Some((lab, containerd)) = node(Mode::Enforce) else { return };
    let reports = suite(&containerd, Some(gate())).expect("the suite runs");
    let not_passed: Vec<_> = reports
        .iter()
        .filter(|report| report.verdict != Verdict::Passed)
        .map(|report| report.case)
        .collect();
    let expected = [
        "32 KiB of every byte but NUL arrive unchanged",
        "the runtime's status says that it knows them",
    ];
    assert_eq!(not_passed, expected, "{reports:#?}");
    let records = fs::read_dir(lab.layout.sessions()).unwrap().count();
    assert!(records > 10, "{records} records");
    assert_eq!(lab.strangers().len(), 0);
}

/// The kubelet's port, crictl: whoever asks the runtime itself has no session.
#[test]
fn who_asks_containerd_itself_is_refused_and_told_so() {
    let Some((lab, containerd)) = node(Mode::Enforce) else { return };
    let error = suite(&containerd, None).expect_err("no session is let through");
    assert!(error.to_string().contains("waybill: exec refused: no session"), "{error}");
    let records = lab.strangers();
    assert!(
        !records.is_empty() && records.iter().all(|record| record.verdict == Decision::Refused),
        "{records:?}"
    );
    assert_eq!(
        (records[0].pod.as_str(), records[0].container.as_str()),
        ("exec-env-conformance", "sleeper")
    );
}

/// In a namespace that only records, everything works as before.
#[test]
fn in_record_mode_containerd_works_as_without_the_wrapper() {
    let Some((lab, containerd)) = node(Mode::Record) else { return };
    let reports = suite(&containerd, None).expect("the suite runs");
    let failed: Vec<_> =
        reports.iter().filter(|report| matches!(report.verdict, Verdict::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let records = lab.strangers();
    assert!(
        !records.is_empty()
            && records.iter().all(|record| record.verdict == Decision::Unattributed),
        "{records:?}"
    );
}

/// An archive of one image with one static program.
fn archive(folder: &Path) -> Vec<u8> {
    let layer = folder.join("layer");
    fs::create_dir_all(layer.join("proc")).unwrap();
    fs::copy("/bin/busybox", layer.join("busybox")).unwrap();
    tar(&layer, &folder.join("layer.tar"), &["busybox", "proc"]);
    let content = Sha256::digest(fs::read(folder.join("layer.tar")).unwrap());
    let content: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
    let config = json!({"architecture": architecture(), "os": "linux",
        "config": {"Entrypoint": ["/busybox", "sleep", "86400"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{content}")]}});
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let manifest = json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    tar(folder, &folder.join("image.tar"), &["manifest.json", "config.json", "layer.tar"]);
    fs::read(folder.join("image.tar")).unwrap()
}

fn tar(folder: &Path, file: &Path, names: &[&str]) {
    let done = Command::new("tar")
        .arg("-C")
        .arg(folder)
        .arg("-cf")
        .arg(file)
        .args(names)
        .status()
        .unwrap();
    assert!(done.success());
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}
