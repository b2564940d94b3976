//! The token of a plugin is in the memory of the client and in its connection, and nowhere else (CRED-26).

use std::{
    fs,
    io::Read,
    net::TcpListener,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use waybill_testkit::skip::skip;

const CANARY: &str = "kanarie-fedcba9876543210";

/// Starts a command that may leave a core behind, in `dir`.
fn start(dir: &Path, command: &str) -> Child {
    Command::new("/bin/sh")
        .args(["-c", &format!("ulimit -c unlimited; exec {command}")])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn abort(child: &mut Child) -> ExitStatus {
    let status = Command::new("kill").args(["-ABRT", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
    child.wait().unwrap()
}

/// CRED-26
#[test]
fn a_client_leaves_no_token_in_argv_environment_output_or_core_cred_26() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let answer = format!(
        r#"{{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{{"token":"{CANARY}"}}}}"#
    );
    fs::write(path("answer"), answer).unwrap();
    let kubeconfig = format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}], users: [{{name: u, user: {{exec: \
         {{apiVersion: client.authentication.k8s.io/v1beta1, command: sh, \
         args: [-c, 'env >>plugin-environment; cat answer']}}}}}}]}}",
        listener.local_addr().unwrap()
    );
    fs::write(path("kubeconfig"), kubeconfig).unwrap();
    let binary = env!("CARGO_BIN_EXE_waybill");
    let mut client = start(dir.path(), &format!("{binary} get pods --kubeconfig kubeconfig"));

    // From here on it waits for an answer, with the token in its memory.
    let (mut connection, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(String::from_utf8(head).unwrap().contains(&format!("Bearer {CANARY}")));

    let of_process = ["cmdline", "environ"].map(|file| format!("/proc/{}/{file}", client.id()));
    let plugin = path("plugin-environment").display().to_string();
    for file in of_process.into_iter().chain([plugin]) {
        let content = fs::read(&file).unwrap();
        assert!(!content.is_empty(), "{file}");
        assert!(!String::from_utf8_lossy(&content).contains(CANARY), "{file}");
    }

    let ended = abort(&mut client);
    assert_eq!(ended.signal(), Some(6));
    let mut said = String::new();
    client.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    client.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!said.contains(CANARY));
    // Another program shows that this machine would write one.
    let shell = "ulimit -c unlimited; kill -ABRT $$";
    let other = Command::new("/bin/sh").args(["-c", shell]).current_dir(dir.path()).status();
    if other.unwrap().core_dumped() {
        assert!(!ended.core_dumped(), "the client left a core with its token");
    } else {
        skip("core dumps", "set /proc/sys/kernel/core_pattern to a file");
    }
}
