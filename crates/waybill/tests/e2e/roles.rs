//! A cluster whose roles are processes of their own, so that each can be of another version than the others:
//! any of them is started again with other flags while the rest goes on.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tempfile::TempDir;
use waybill_apiserver::{NodeFiles, NodeIdentity, issue_node};
use waybill_testkit::{
    apiserver::{self, ApiServer},
    containerd::Containerd,
    kubectl::{Kubectl, PATIENCE, Ran},
    node::{self, Node},
    port,
    runtime::{self, Runtime},
    skip::skip,
    stack::IMAGE,
};

use crate::{BINARY, image, raw::Raw};

/// The one node.
pub(crate) const NODE: &str = "roles-node";

/// Gates of roles that know exec sessions with variables.
pub(crate) const NEW: &str = "ExecEnvVar=true,ExecRequestID=true";

/// Gates of roles as they were before.
pub(crate) const OLD: &str = "ExecEnvVar=false,ExecRequestID=false";

/// Users of the token file, besides the administrator: token, name, uid, groups.
const PEOPLE: &str = "anna-token,anna,u-anna,\"devs,ops\"\nboris-token,boris,u-boris,\"devs\"\n";

/// Records every request.
const RECORD_ALL: &str =
    "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived],
    rules: [{level: Metadata}]}";

/// Everything runs until it is dropped.
pub(crate) struct Roles {
    node: Option<Node>,
    api_server: Option<ApiServer>,
    runtime: OwnOrContainerd,
    kubectl: Kubectl,
    listen: SocketAddr,
    node_listen: SocketAddr,
    files: NodeFiles,
    cgroup: String,
    dir: TempDir,
}

enum OwnOrContainerd {
    Own { setup: runtime::Setup, process: Runtime },
    Containerd(Containerd),
}

impl Roles {
    /// On our own runtime, all roles new; `None`, with a word about it, where it cannot run.
    pub(crate) fn start() -> Option<Self> {
        Self::start_on(|dir| {
            let setup = runtime::Setup::new(BINARY, dir);
            let process = setup.start();
            let archive = dir.join("image.tar");
            fs::write(&archive, image(fs::read("/bin/busybox").ok()?)).ok()?;
            let socket = format!("unix://{}", setup.socket().display());
            let mut import = Command::new(BINARY);
            import.args(["image", "--runtime", &socket, "import"]).arg(&archive);
            assert!(import.output().expect("waybill starts").status.success());
            Some(OwnOrContainerd::Own { setup, process })
        })
    }

    /// The same on stock containerd, which does not know variables of exec sessions.
    pub(crate) fn start_on_containerd() -> Option<Self> {
        Self::start_on(|_| {
            let containerd = Containerd::start(IMAGE)?;
            containerd.import(&image(fs::read("/bin/busybox").ok()?));
            Some(OwnOrContainerd::Containerd(containerd))
        })
    }

    /// The same on a containerd that the test has set up; it is told the image that holds sandboxes.
    pub(crate) fn start_on_other_containerd(
        start: impl FnOnce(&str) -> Option<Containerd>,
    ) -> Option<Self> {
        Self::start_on(|_| Some(OwnOrContainerd::Containerd(start(IMAGE)?)))
    }

    /// Where containerd has its files.
    pub(crate) fn runtime_dir(&self) -> &Path {
        match &self.runtime {
            OwnOrContainerd::Own { .. } => self.dir.path(),
            OwnOrContainerd::Containerd(containerd) => containerd.dir(),
        }
    }

    fn start_on(runtime: impl FnOnce(&Path) -> Option<OwnOrContainerd>) -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").expect("proc is mounted");
        if !status.lines().any(|line| line.starts_with("Uid:\t0\t0")) {
            skip("root", "only root may run containers");
            return None;
        }
        if fs::metadata("/bin/busybox").is_err() {
            skip("busybox", "install the Debian package busybox-static");
            return None;
        }
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let kubectl = Kubectl::find(&dir.path().join("state/kubeconfig"), dir.path())?;
        fs::write(dir.path().join("policy.yaml"), RECORD_ALL).expect("the directory is ours");
        let runtime = runtime(dir.path())?;
        let [port, node_port] = port::lasting();
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let identity = NodeIdentity {
            name: NODE.to_owned(),
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            server: format!("https://{}", local(port)),
            dir: dir.path().join("node-pki"),
        };
        let files = issue_node(&dir.path().join("state"), &identity, Timestamp::now());
        let mut roles = Self {
            node: None,
            api_server: None,
            runtime,
            kubectl,
            listen: local(port),
            node_listen: local(node_port),
            files: files.expect("the directory is ours"),
            cgroup: format!("/waybill-roles-{}-{port}", std::process::id()),
            dir,
        };
        roles.api_server(NEW);
        roles.node(NEW, &[]);
        let ready = format!("wait --for=condition=Ready node/{NODE} --timeout=60s");
        roles.kubectl.until_it_succeeds(&ready);
        Some(roles)
    }

    /// Starts the API server again with these gates.
    pub(crate) fn api_server(&mut self, gates: &str) {
        self.api_server = None;
        let dir = self.dir.path();
        let mut setup = apiserver::Setup::new(BINARY, dir)
            .flag("--kubelet-preferred-address-types=InternalIP")
            .flag(format!("--audit-policy-file={}", dir.join("policy.yaml").display()))
            .flag(format!("--feature-gates={gates}"));
        setup.listen = self.listen;
        setup.tokens.push_str(PEOPLE);
        self.api_server = Some(setup.start());
    }

    /// Stops the API server.
    pub(crate) fn stop_api_server(&mut self) {
        self.api_server = None;
    }

    /// Starts the node again with these gates and flags.
    pub(crate) fn node(&mut self, gates: &str, flags: &[&str]) {
        self.node = None;
        let socket = match &self.runtime {
            OwnOrContainerd::Own { setup, .. } => setup.socket(),
            OwnOrContainerd::Containerd(containerd) => containerd.socket(),
        };
        let NodeFiles { kubeconfig, serving_certificate, serving_key, authority, .. } = &self.files;
        let setup = node::Setup::new(BINARY, self.dir.path())
            .flag("--drain")
            .flag(format!("--name={NODE}"))
            .flag(format!("--runtime=unix://{}", socket.display()))
            .flag(format!("--listen={}", self.node_listen))
            .flag(format!("--kubeconfig={}", kubeconfig.display()))
            .flag(format!("--tls-cert-file={}", serving_certificate.display()))
            .flag(format!("--tls-key-file={}", serving_key.display()))
            .flag(format!("--client-ca-file={}", authority.display()))
            .flag(format!("--cgroup-root={}", self.cgroup))
            .flag(format!("--feature-gates={gates}"));
        let setup = flags.iter().fold(setup, |setup, flag| setup.flag(*flag));
        self.node = Some(setup.start());
    }

    /// An administrator's.
    pub(crate) fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Requests to the API server with a token.
    pub(crate) fn raw(&self, token: &str) -> Raw {
        Raw::new(self.listen, &self.files.authority, token)
    }

    /// The kubeconfig of administrators.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("state/kubeconfig")
    }

    /// A directory that ends with it.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.path().join("state/audit/audit.log")
    }

    /// Ends everything, and checks that nothing is left.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.kubectl.line("delete pods --all --wait=true --grace-period=1").succeeds();
        let node = self.node.take().map(Node::stop);
        assert!(node.is_some_and(|status| status.success()), "{node:?}");
        self.api_server = None;
        let place = format!("/sys/fs/cgroup/unified{}", self.cgroup);
        let places = [place, format!("/sys/fs/cgroup{}", self.cgroup)];
        let start = Instant::now();
        while places.iter().any(|place| fs::metadata(place).is_ok()) {
            assert!(start.elapsed() < PATIENCE, "left: one of {places:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        if thread::panicking() {
            for log in ["server.log", "node.log", "runtime.log"] {
                let log = fs::read_to_string(self.dir.path().join(log)).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                println!("{}", lines[lines.len().saturating_sub(30)..].join("\n"));
            }
            // Containers outlive everything else.
            self.kubectl.line("delete pods --all --wait=true --grace-period=1 --timeout=30s");
            self.node.take().map(Node::stop);
        }
        self.node = None;
        self.api_server = None;
        if let OwnOrContainerd::Own { setup, process } = &mut self.runtime {
            process.kill();
            let _ = Command::new("umount").arg(setup.run_dir()).status();
        }
    }
}

/// What a test of roles that come and go needs of kubectl.
pub(crate) trait Patient {
    /// Runs `line` until it succeeds.
    fn until_it_succeeds(&self, line: &str) -> Ran;
}

impl Patient for Kubectl {
    #[track_caller]
    fn until_it_succeeds(&self, line: &str) -> Ran {
        let start = Instant::now();
        loop {
            let ran = self.line(line);
            if ran.succeeded() {
                return ran;
            }
            assert!(start.elapsed() < PATIENCE, "not in time: {ran:#?}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}
