//! `waybill login` of users whom only a name service knows, here the one of systemd.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::Value;
use waybill_testkit::{apiserver::Setup, skip::skip};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");

/// Nobody on this machine.
const UID: &str = "1894242";
const GID: &str = "1894243";

/// Records of the user database, which the module `systemd` reads without a daemon.
const RECORDS: &str = r#"
mount -t tmpfs tmpfs /run && mkdir /run/userdb && cd /run/userdb || exit 1
echo '{"userName":"carol","uid":1894242,"gid":1894243,"disposition":"regular"}' >carol.user
echo '{"groupName":"research","gid":1894243,"disposition":"regular"}' >research.group
ln -s carol.user 1894242.user
ln -s research.group 1894243.group
cd /
"#;

/// A program that starts ours where the records are; nobody else sees them.
fn wrapper(dir: &Path) -> Option<String> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let asks = fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    let asks = asks.lines().any(|line| line.starts_with("passwd:") && line.contains("systemd"));
    if !is_root || !asks {
        skip("libnss-systemd", "run as root where /etc/nsswitch.conf names systemd for passwd");
        return None;
    }
    let (inner, outer) = (dir.join("inner"), dir.join("waybill"));
    fs::write(&inner, format!("#!/bin/sh\n{RECORDS}\nexec {BINARY} \"$@\"\n")).unwrap();
    fs::write(&outer, format!("#!/bin/sh\nexec unshare --mount {} \"$@\"\n", inner.display()))
        .unwrap();
    for program in [&inner, &outer] {
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(outer.display().to_string())
}

/// The claims of the token that `waybill login` prints for `uid`.
fn claims(socket: &Path, uid: &str) -> Value {
    let output = Command::new("setpriv")
        .args(["--reuid", uid, "--regid", GID, "--clear-groups", BINARY, "login", "--socket"])
        .arg(socket)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let token = answer["status"]["token"].as_str().unwrap();
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&claims).unwrap()
}

#[test]
fn users_of_a_name_service_have_their_names_and_others_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = wrapper(dir.path()) else { return };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let server = Setup::new(&program, dir.path()).start();
    let socket = server.state().join("run/login.sock");

    let carol = claims(&socket, UID);
    assert_eq!(carol["sub"], "unix:carol");
    assert_eq!(carol["uid"], UID);
    assert_eq!(carol["groups"], serde_json::json!(["unix", "unix:research"]));

    let nobody = claims(&socket, "1894244");
    assert_eq!(nobody["sub"], "unix:#1894244");
    assert_eq!(nobody["groups"], serde_json::json!(["unix"]));
}
