//! `waybill runtime`, as a process.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;
use tonic::transport::Endpoint;
use waybill_proto::cri::{
    StatusRequest, VersionRequest, runtime_service_client::RuntimeServiceClient,
};

use crate::run::Dir;

/// A runtime that serves in a directory of its own, or `None` where it cannot.
fn start(directory: &TempDir) -> Option<Child> {
    if fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) != 0) {
        eprintln!("SKIPPED: a runtime needs root");
        return None;
    }
    let path = |name: &str| directory.path().join(name).display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_waybill"))
        .args(["runtime", "--listen", &format!("unix://{}", path("runtime.sock"))])
        .args(["--state-dir", &path("state"), "--run-dir", &path("run"), "--log-format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("serving on unix://{}\n", path("runtime.sock")));
    Some(child)
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

fn unmount(directory: &Path) {
    let status = Command::new("umount").arg(directory.join("run")).status();
    assert!(status.unwrap().success());
}

async fn client(directory: &TempDir) -> RuntimeServiceClient<tonic::transport::Channel> {
    let address = format!("unix://{}", directory.path().join("runtime.sock").display());
    RuntimeServiceClient::new(Endpoint::try_from(address).unwrap().connect().await.unwrap())
}

/// The client says goodbye while we wait for the runtime, so it needs a thread of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_serves_until_it_is_told_to_stop_and_comes_back_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut child) = start(&directory) else { return };
    let socket = directory.path().join("runtime.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let mut runtime = client(&directory).await;
    let version = runtime.version(VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!(
        (version.runtime_name.as_str(), version.runtime_api_version.as_str()),
        ("waybill", "v1")
    );
    let status = runtime.status(StatusRequest { verbose: true }).await.unwrap().into_inner();
    assert!(status.info["info"].contains("streamingAddress"));

    signal(&child, "-KILL");
    child.wait().unwrap();
    let mut child = start(&directory).unwrap();
    client(&directory).await.version(VersionRequest::default()).await.unwrap();
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
    unmount(directory.path());
}

/// D9: what its memory holds reaches no file, also when it crashes.
#[test]
fn a_runtime_that_crashes_leaves_no_core() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut child) = start(&directory) else { return };
    let limits = format!("--pid={}", child.id());
    let raised = Command::new("prlimit").args([&limits, "--core=unlimited"]).status();
    assert!(raised.unwrap().success());
    signal(&child, "-ABRT");
    assert!(!child.wait().unwrap().core_dumped());
    unmount(directory.path());
}

#[tokio::test]
async fn a_second_runtime_in_the_same_place_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut child) = start(&directory) else { return };
    let path = |name: &str| directory.path().join(name).display().to_string();
    let ran = Dir::new().run(&[
        "runtime",
        "--listen",
        &path("other.sock"),
        "--state-dir",
        &path("state"),
        "--run-dir",
        &path("run"),
    ]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("another runtime uses"), "{}", ran.stderr);
    signal(&child, "-TERM");
    child.wait().unwrap();
    unmount(directory.path());
}

#[test]
fn the_help_says_where_clients_connect_and_what_is_missing() {
    let ran = Dir::new().run(&["runtime", "--help"]);
    let text = String::from_utf8(ran.stdout).unwrap();
    for part in ["unix:///run/waybill/runtime.sock", "crictl", "CNI", "tmpfs"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_socket_that_is_no_path_is_a_usage_error() {
    assert_eq!(Dir::new().run(&["runtime", "--listen", "tcp://127.0.0.1:1"]).code, 2);
}
