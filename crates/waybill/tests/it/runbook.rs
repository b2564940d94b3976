//! CSI-64: the runbook for a compromised driver says what there is.

use std::{fs, path::Path, process::Command};

fn runbook() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join("docs/guide/compromised-driver.md")).unwrap()
}

/// CSI-64
#[test]
fn the_runbook_deletes_classes_rotates_and_finds_pods_csi_64() {
    let text = runbook();
    for (step, command) in [
        ("**Stop it.**", "kubectl delete providerclass"),
        ("**Find the pods**", ".valueFrom.csiSecretRef.providerClassName"),
        ("**Rotate**", "vault lease revoke -prefix"),
    ] {
        let at = text.find(step).unwrap_or_else(|| panic!("{step}"));
        assert!(text[at..].contains(command), "{step}: {command}");
    }
}

/// CSI-64: flags and files that it names are there.
#[test]
fn what_the_runbook_names_exists_csi_64() {
    let text = runbook();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert!(text.contains("deploy/prometheus/waybill-csi-rules.yaml"));
    assert!(root.join("deploy/prometheus/waybill-csi-rules.yaml").exists());
    for (role, flag) in [
        (&["driver", "vault"][..], "--allow-address"),
        (&["driver", "os"], "--socket"),
        (&["node"], "--csi-plugins-dir"),
    ] {
        assert!(text.contains(flag), "{flag}");
        let help = Command::new(env!("CARGO_BIN_EXE_waybill")).args(role).arg("--help").output();
        let help = String::from_utf8(help.unwrap().stdout).unwrap();
        assert!(help.contains(flag), "{role:?} {flag}");
    }
}
