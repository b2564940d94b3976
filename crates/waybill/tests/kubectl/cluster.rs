//! A server with a state directory of its own, and kubectl that talks to it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use tempfile::TempDir;
use waybill_testkit::{
    apiserver::{ApiServer, Setup},
    kubectl::{Kubectl, Ran, Running},
};

/// Users of the token file; neither has any right of its own.
const TOKENS: &str = "alice-token,alice,1,\"devs\"\nbob-token,bob,2\n";

const GATES: &str = "--feature-gates=ExecEnvVar=true,ExecRequestID=true,CSIDirectEnvInjection=true";

/// A running server; it ends when this is dropped.
pub(crate) struct Cluster {
    setup: Setup,
    kubectl: Kubectl,
    // Before the directory, which it uses.
    _server: ApiServer,
    dir: TempDir,
}

impl Cluster {
    /// Starts a server and waits until it serves; nothing if this machine has no kubectl.
    pub(crate) fn start() -> Option<Self> {
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let kubectl = Kubectl::find(&dir.path().join("state/kubeconfig"), dir.path())?;
        let mut setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path()).flag(GATES);
        setup.tokens = TOKENS.to_owned();
        let server = setup.start();
        Some(Self { setup, kubectl, _server: server, dir })
    }

    /// Runs kubectl with the arguments in `line`, split at spaces.
    pub(crate) fn kubectl(&self, line: &str) -> Ran {
        self.kubectl.line(line)
    }

    /// Runs our own binary as kubectl's user.
    pub(crate) fn waybill(&self, arguments: &[&str]) -> Ran {
        let program = Path::new(env!("CARGO_BIN_EXE_waybill"));
        let mut command = self.kubectl.command(program);
        command.args(arguments);
        let child = command.spawn().expect("the binary was just built");
        Ran::of(format!("waybill {}", arguments.join(" ")), child)
    }

    /// A program that finds kubectl and its kubeconfig in its environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        self.kubectl.command(program)
    }

    /// Where the server keeps what it keeps.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// The same, as the user of a static token.
    pub(crate) fn kubectl_as(&self, user: &str, line: &str) -> Ran {
        self.kubectl(&format!("--token={user}-token {line}"))
    }

    pub(crate) fn kubectl_with_input(&self, line: &str, input: &str) -> Ran {
        let arguments: Vec<_> = line.split_whitespace().collect();
        // Without the dashes kubectl takes what begins with a brace for JSON.
        self.kubectl.with_input(&arguments, &format!("---\n{input}"))
    }

    /// `kubectl apply` of `manifest`.
    pub(crate) fn apply(&self, manifest: &str) -> Ran {
        self.kubectl.apply(manifest)
    }

    /// Starts a kubectl that goes on until it is dropped.
    pub(crate) fn follow(&self, line: &str) -> Running {
        self.kubectl.follow(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `line` until its standard output is `expected`.
    #[track_caller]
    pub(crate) fn eventually(&self, line: &str, expected: &str) {
        self.kubectl.eventually(line, expected);
    }

    /// Adds a node that takes pods.
    #[track_caller]
    pub(crate) fn add_ready_node(&self, name: &str) {
        self.apply(&format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"))
            .prints(&format!("node/{name} created"));
        let status = "{\"status\":{\"capacity\":{\"cpu\":\"2\",\"memory\":\"4Gi\",\"pods\":\"10\"},\
                      \"allocatable\":{\"cpu\":\"2\",\"memory\":\"4Gi\",\"pods\":\"10\"},\
                      \"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}";
        self.kubectl(&format!("patch node {name} --subresource=status --type=merge -p {status}"))
            .prints(&format!("node/{name} patched"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("the server's log:\n{}", self.setup.log());
        }
    }
}
