//! `waybill driver`, as a process.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use tonic::transport::{Channel, Endpoint};
use waybill_proto::{
    csi::{EnvVarQuery, NodeGetEnvVarsRequest, node_client::NodeClient},
    registration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
};

use crate::run::Dir;

/// A driver that serves below `dir`.
fn start(dir: &Path, kind: &[&str]) -> Child {
    let socket = dir.join("plugins/csi.sock");
    let mut child = Command::new(env!("CARGO_BIN_EXE_waybill"))
        .arg("driver")
        .args(kind)
        .arg("--socket")
        .arg(&socket)
        .arg("--registration-dir")
        .arg(dir.join("registry"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("serving on unix://{}\n", socket.display()));
    child
}

async fn channel(socket: &Path) -> Channel {
    let address = format!("unix://{}", socket.display());
    Endpoint::try_from(address).unwrap().connect().await.unwrap()
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

async fn value(
    dir: &Path,
    parameters: &[(&str, &str)],
    key: &str,
) -> Result<String, tonic::Status> {
    let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let context = [("namespace", "n"), ("serviceAccount", "s"), ("podName", "p"), ("podUID", "u")];
    let request = NodeGetEnvVarsRequest {
        provider_class_name: "class".to_owned(),
        class_parameters: parameters.iter().map(text).collect(),
        queries: vec![EnvVarQuery {
            name: "V".to_owned(),
            key: key.to_owned(),
            ..EnvVarQuery::default()
        }],
        pod_context: context.iter().map(text).collect(),
        version: String::new(),
    };
    let mut node = NodeClient::new(channel(&dir.join("plugins/csi.sock")).await);
    let results = node.node_get_env_vars(request).await?.into_inner().results;
    Ok(String::from_utf8(results[0].value.clone()).unwrap())
}

/// CSI-50
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_serves_until_it_is_told_to_stop_csi_50() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path(), &["os"]);
    let found = value(dir.path(), &[("allowedFields", "os/**")], "os/kernel/release").await;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(found.unwrap(), release.trim_end());
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!dir.path().join("plugins/csi.sock").exists());
    assert_eq!(fs::read_dir(dir.path().join("registry")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_was_killed_is_replaced_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path(), &["os"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child = start(dir.path(), &["os"]);
    value(dir.path(), &[("a", "b")], "os/kernel/name").await.unwrap();
    signal(&child, "-TERM");
    child.wait().unwrap();
}

/// As the reference registrar does, so that whoever started it starts it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_the_kubelet_refuses_ends_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path(), &["os"]);
    let socket = dir.path().join("registry/os.csi.waybill.dev-reg.sock");
    let mut registration = RegistrationClient::new(channel(&socket).await);
    let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "os.csi.waybill.dev");
    let refusal = RegistrationStatus { plugin_registered: false, error: "no".to_owned() };
    // It may be gone before the answer is here.
    let _ = registration.notify_registration_status(refusal).await;
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// CSI-47: by time is tested beside the cache, by a restart of the pod at the node.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_empties_the_cache_csi_47() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    let write = |text: &str| {
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o600)).unwrap();
    };
    write("values: {a: old}");
    let mut child = start(dir.path(), &["mock", "--script", &script.display().to_string()]);
    let class = &[("cacheTTL", "1h")];
    assert_eq!(value(dir.path(), class, "a").await.unwrap(), "old");
    write("values: {a: new}");
    assert_eq!(value(dir.path(), class, "a").await.unwrap(), "old");
    signal(&child, "-HUP");
    while value(dir.path(), class, "a").await.unwrap() == "old" {
        tokio::task::yield_now().await;
    }
    assert_eq!(value(dir.path(), class, "a").await.unwrap(), "new");
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_script_that_others_can_read_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "values: {a: hunter2}").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o644)).unwrap();
    let socket = dir.path().join("csi.sock").display().to_string();
    let script = script.display().to_string();
    let ran = Dir::new().run(&["driver", "mock", "--socket", &socket, "--script", &script]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("`chmod 600` it"), "{}", ran.stderr);
}

#[test]
fn the_help_teaches() {
    let help = |arguments: &[&str]| String::from_utf8(Dir::new().run(arguments).stdout).unwrap();
    let text = help(&["driver", "--help"]);
    for part in ["csiSecretRef", "allowedNamespaces", "cacheTTL", "plugins_registry", "SIGHUP"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(help(&["driver", "os", "--help"]).contains("os/basic/os-release/FIELD"));
    assert!(help(&["driver", "mock", "--help"]).contains("wrong-order"));
}
