//! Kubernetes' own API server, where somebody has built one. No package holds it, so a variable names its folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    child::Killed,
    etcd::EtcdServer,
    kubectl::{Kubectl, PATIENCE},
    port,
    skip::skip,
};

/// Names the folder with `kube-apiserver`.
const VARIABLE: &str = "WAYBILL_STOCK_BIN";

/// What xtask calls it; tests that lack it are no fault.
const NAME: &str = "stock-kube-apiserver";

/// A server with RBAC on an etcd of its own, without any controller. Stopped on drop.
#[derive(Debug)]
pub struct StockApiServer {
    child: Killed,
    _etcd: EtcdServer,
    directory: TempDir,
    port: u16,
}

impl StockApiServer {
    /// Starts it and waits until it is ready; `None`, with a word about it, if this machine has not all that it takes.
    /// The pair of keys, private and public in PEM, is for the tokens of service accounts.
    pub fn start(keys: (&str, &str)) -> Option<Self> {
        Self::start_with(keys, &[])
    }

    /// The same with more flags, such as those by which it reaches nodes.
    pub fn start_with((private, public): (&str, &str), flags: &[String]) -> Option<Self> {
        let Some(folder) = env::var_os(VARIABLE) else {
            skip(NAME, &format!("build one, and name its folder with {VARIABLE}"));
            return None;
        };
        let binary = Path::new(&folder).join("kube-apiserver");
        assert!(binary.is_file(), "{VARIABLE} names a folder without {}", binary.display());
        let etcd = EtcdServer::start()?;
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("the directory is writable");
            path
        };
        let (private, public) = (write("sa.key", private), write("sa.pub", public));
        let tokens = "admin,admin,1,system:masters\nann,ann,2,secrets-team\n\
                      node,system:node:stock-node,3,system:nodes\n";
        let tokens = write("tokens", tokens);
        let [port] = port::lasting();
        let mut command = Command::new(binary);
        command.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]);
        command.args([format!("--secure-port={port}"), format!("--etcd-servers={}", etcd.url())]);
        command.arg("--cert-dir").arg(directory.path().join("tls"));
        command.arg("--token-auth-file").arg(tokens).arg("--authorization-mode=Node,RBAC");
        command.arg("--enable-admission-plugins=NodeRestriction");
        // It would tell clients inside of the cluster of its address, and refuses to tell of loopback.
        command.arg("--endpoint-reconciler-type=none").args(flags);
        command.arg("--service-account-issuer=https://kubernetes.default.svc");
        command.arg("--service-account-key-file").arg(public);
        command.arg("--service-account-signing-key-file").arg(private);
        command.arg("--service-cluster-ip-range=10.96.0.0/16");
        let log =
            fs::File::create(directory.path().join("log")).expect("the directory is writable");
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = Killed::spawn(&mut command);
        let mut server = Self { child, _etcd: etcd, directory, port };
        server.wait(&server.kubectl("admin")?);
        Some(server)
    }

    /// Stock kubectl with the token of `admin`, who may do everything, of `ann`, who is of the group `secrets-team`, or of `node`, which
    /// is the node `stock-node`; `None` if this machine has none.
    pub fn kubectl(&self, token: &str) -> Option<Kubectl> {
        Kubectl::find(&self.kubeconfig(token), self.directory.path())
    }

    /// Writes a kubeconfig for whoever has this token.
    pub fn kubeconfig(&self, token: &str) -> PathBuf {
        let directory = self.directory.path();
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{}', \
             certificate-authority: '{}/tls/apiserver.crt'}}}}], \
             users: [{{name: u, user: {{token: '{token}'}}}}]}}\n",
            self.port,
            directory.display(),
        );
        // Tokens of service accounts are long.
        let name: String = token.chars().rev().take(32).collect();
        let path = directory.join(format!("kubeconfig-{name}"));
        fs::write(&path, text).expect("the directory is writable");
        path
    }

    fn wait(&mut self, kubectl: &Kubectl) {
        let start = Instant::now();
        while !kubectl.line("get --raw /readyz").succeeded() {
            let has_ended = self.child.get_mut().try_wait().is_ok_and(|status| status.is_some());
            let log = || fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            let in_time = !has_ended && start.elapsed() < PATIENCE;
            assert!(in_time, "{NAME} is not ready; its log:\n{}", log());
            thread::sleep(Duration::from_millis(100));
        }
    }
}
