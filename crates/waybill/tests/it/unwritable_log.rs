//! Roles whose log lines have nowhere to go, as on a full disk.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
};

use waybill_testkit::apiserver::Setup;

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");

/// Starts `command` with a standard error that takes nothing; returns it with its standard output and
/// the first line of that.
fn start(command: &mut Command) -> (Child, BufReader<ChildStdout>, String) {
    let full = File::options().write(true).open("/dev/full").expect("Linux has /dev/full");
    let mut child =
        command.env("RUST_LOG", "trace").stdout(Stdio::piped()).stderr(full).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    (child, output, line)
}

/// The audit log's writer, the store's writer and the node died of this on a full disk: a log line
/// that could not be written was a panic.
#[test]
fn a_role_goes_on_when_its_log_lines_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _output, line) = start(&mut Setup::new(BINARY, dir.path()).command());
    assert!(line.starts_with("serving on https://"), "{line:?}");
    let asked = Command::new(BINARY)
        .args(["get", "namespaces", "--kubeconfig"])
        .arg(dir.path().join("state/kubeconfig"))
        .output()
        .unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    child.kill().unwrap();
    child.wait().unwrap();
}
