//! Everything for stock clusters at once, from Debian's packages alone: gate, agent, wrapper and a driver, on our API server and node over
//! stock containerd with the handler `waybill`. What stock containerd cannot do by itself works here: sessions have their user,
//! their variables and a cgroup of their own, and values of drivers are in processes, sessions and probes, and on no disk.
//!
//! Our node brings no CSI volumes to plugins, so this file does that for it, as a kubelet would. It runs in a mount namespace of its own with
//! `/run` in memory, as systemd has it: runc keeps its state there.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tonic::transport::Endpoint;
use waybill_api::stock::{Mode, SessionRecord, Verdict, WrapperConfig};
use waybill_proto::csi::{NodePublishVolumeRequest, node_client::NodeClient};
use waybill_testkit::{
    apiserver::ADMIN_TOKEN,
    containerd::Containerd,
    gate::{self, Gate},
    kubectl::PATIENCE,
    skip::skip,
    stack::IMAGE,
};

use crate::{BINARY, image, roles::Roles};

const TEST: &str =
    "stock_whole::sessions_and_values_on_stock_containerd_behind_gate_agent_and_wrapper";
/// Set in the test that the test runs.
const WITHIN: &str = "WAYBILL_TEST_WITHIN";
const CANARY: &str = "canary-5f1d0c77";
const NODE: &str = crate::roles::NODE;

/// Issue 18; EXEC-57, CSI-60
#[test]
#[expect(clippy::disallowed_methods, reason = "it runs itself again")]
fn sessions_and_values_on_stock_containerd_behind_gate_agent_and_wrapper() {
    if env::var_os(WITHIN).is_none() {
        run_again();
        return;
    }
    let Some(wrapper) = wrapper() else { return };
    let place = tempfile::tempdir().unwrap();
    let Some(whole) = Whole::start(place.path(), &wrapper) else { return };
    whole.sessions_are_those_of_their_users();
    whole.nobody_else_enters();
    whole.values_are_in_processes_and_on_no_disk();
    whole.stop();
}

/// No mount and no process outlives the inner one.
fn run_again() {
    let script = "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
    let status = Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ])
        .args(["sh", "-c", script])
        .arg(env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(WITHIN, "1")
        .status();
    match status {
        Ok(status) => assert!(status.success()),
        Err(_) => skip("root", "only root may have a mount namespace of its own"),
    }
}

/// The wrapper stands beside our program where all of the workspace was built.
fn wrapper() -> Option<PathBuf> {
    let wrapper = Path::new(BINARY).with_file_name("waybill-oci");
    if wrapper.exists() {
        return Some(wrapper);
    }
    skip("waybill-oci", "build the whole workspace");
    None
}

struct Whole {
    roles: Roles,
    gate: Gate,
    agent: Role,
    _driver: Role,
    place: PathBuf,
}

/// A process that ends with the test.
struct Role(Child);

impl Role {
    fn start(place: &Path, name: &str, arguments: &[String]) -> Self {
        let log = fs::File::create(place.join(format!("{name}.log"))).unwrap();
        let mut command = Command::new(BINARY);
        command.arg(name).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Whole {
    fn start(place: &Path, wrapper: &Path) -> Option<Self> {
        let roles = Roles::start_on_other_containerd(|pause| containerd(pause, place, wrapper))?;
        let admin = kubeconfig(&roles, place);
        for object in objects() {
            roles.kubectl().apply(&object.to_string()).succeeds();
        }
        let driver = driver(place);
        let gate = gate(&roles, place, &admin);
        let arguments = [
            format!("--node-name={NODE}"),
            format!("--run-dir={}", place.join("run").display()),
            format!("--kubelet-dir={}", place.join("kubelet").display()),
            "--provider-class-group=storage.k8s.io".to_owned(),
            "--records-address=127.0.0.1".to_owned(),
            "--records-port=0".to_owned(),
            format!("--kubeconfig={}", admin.display()),
        ];
        fs::create_dir_all(place.join("kubelet/plugins_registry")).unwrap();
        let agent = Role::start(place, "agent", &arguments);
        let whole = Self { roles, gate, agent, _driver: driver, place: place.to_owned() };
        whole.install();
        Some(whole)
    }

    /// Webhooks of `deploy/gate` for sessions, with an address in place of a Service.
    fn install(&self) {
        let deployed = |name: &str| -> Vec<Value> {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/gate").join(name);
            serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
        };
        let kubectl = self.roles.kubectl();
        kubectl.line("label namespace default waybill.dev/exec=enforce").succeeds();
        for mut object in deployed("webhooks.yaml") {
            if object["metadata"]["name"] != "waybill-enforce" {
                continue;
            }
            let webhooks = object["webhooks"].as_array_mut().unwrap();
            webhooks.retain(|it| !it["name"].as_str().unwrap().starts_with("new-pods"));
            for webhook in webhooks {
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
                let url = format!("https://{}{path}", self.gate.address());
                webhook["clientConfig"] = json!({"url": url});
            }
            kubectl.apply(&object.to_string()).succeeds();
        }
        // The agent must know gate's key, and gate has to have written its authority.
        self.eventually("gate's keys", || fs::metadata(self.place.join("run/keys.json")).is_ok());
        let bundle = "get mutatingwebhookconfiguration waybill-enforce -o jsonpath={.webhooks[*].clientConfig.caBundle}";
        self.eventually("gate's authority", || !kubectl.line(bundle).stdout.is_empty());
    }

    fn sessions_are_those_of_their_users(&self) {
        self.run_pod("app", &[], None);
        let kubectl = self.roles.kubectl();
        self.eventually("a signed session", || kubectl.line("exec app -- true").succeeded());
        for user in ["anna", "boris"] {
            let ran = kubectl.run(&[
                "--token",
                &format!("{user}-token"),
                "exec",
                "app",
                "--",
                "sh",
                "-c",
                &format!("echo {user} $WAYBILL_SESSION_ID; cat /proc/self/cgroup"),
            ]);
            let said = ran.succeeds().stdout.clone();
            let session = said.split_whitespace().nth(1).unwrap().to_owned();
            assert!(said.contains(&format!("waybill-{session}")), "{said}");
            let of_gate = self
                .gate
                .records()
                .into_iter()
                .map(|it| serde_json::from_str::<Value>(&it).unwrap());
            let of_gate = of_gate.into_iter().find(|it| it["session"] == session.as_str()).unwrap();
            assert_eq!(of_gate["user"]["username"], user, "{of_gate}");
            assert_eq!(of_gate["node"], NODE);
            let record = self.record(&session);
            assert_eq!((record.verdict, record.pod.as_str()), (Verdict::Attributed, "app"));
            assert!(record.argv[2].contains(user), "{record:?}");
            self.eventually("the end of a session", || self.record(&session).ended_ns.is_some());
        }
        // Code, input and output are the user's own.
        kubectl.line("exec app -- sh -c exit${IFS}7").fails_with(7, "");
        let echoed = kubectl.with_input(&["exec", "-i", "app", "--", "cat"], "a line");
        assert_eq!(echoed.succeeds().stdout, "a line");
    }

    fn nobody_else_enters(&self) {
        let kubectl = self.roles.kubectl();
        kubectl.line("exec app -- waybill-exec:x - id").fails_with(1, "only gate may write");
        // The runtime itself, as whoever has its socket, or the kubelet's port.
        let strangers = || {
            let all = fs::read_dir(self.place.join("run/sessions")).unwrap().flatten();
            all.filter(|it| it.file_name().to_string_lossy().starts_with("unattributed-")).count()
        };
        let before = strangers();
        let config = "delete mutatingwebhookconfiguration waybill-enforce";
        kubectl.line(config).succeeds();
        self.eventually("a refusal", || {
            kubectl.line("exec app -- id").stderr.contains("waybill: exec refused: no session")
        });
        assert!(strangers() > before, "a refusal is on record");
        self.install();
        self.eventually("a signed session", || kubectl.line("exec app -- true").succeeded());
    }

    fn values_are_in_processes_and_on_no_disk(&self) {
        // The value itself would stand in the pod.
        let check =
            ["sh", "-c", &format!("test ${{#SECRET}} = {}", CANARY.len())].map(str::to_owned);
        self.run_pod("secret", &[("SECRET", "waybill{vault/app/password}")], Some(&check));
        let kubectl = self.roles.kubectl();
        let env = kubectl.line("exec secret -- env").succeeds().stdout.clone();
        assert!(env.contains(&format!("SECRET={CANARY}")), "{env}");
        let main = kubectl.line("exec secret -- cat /proc/1/environ").succeeds().stdout.clone();
        assert!(main.contains(CANARY), "{main}");
        let inspected = kubectl.line("get pod secret -o yaml").succeeds().stdout.clone();
        assert!(!inspected.contains(CANARY) && inspected.contains("waybill{vault/app/password}"));
        let mut searched = 0;
        for folder in [self.place.join("containerd"), self.roles.dir().to_owned()] {
            search(&folder, &mut searched);
        }
        assert!(searched > 20, "{searched} files");
    }

    /// A pod of the class. The kubelet's part for its references is played here.
    fn run_pod(&self, name: &str, variables: &[(&str, &str)], probe: Option<&[String; 3]>) {
        let env: Vec<_> =
            variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let mut container = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "env": env,
            "command": ["sleep", "3600"]});
        if let Some(command) = probe {
            container["readinessProbe"] = json!({"exec": {"command": command}, "periodSeconds": 1});
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"runtimeClassName": "waybill", "containers": [container]}});
        let kubectl = self.roles.kubectl();
        kubectl.apply(&pod.to_string()).succeeds();
        if !variables.is_empty() {
            let uid = kubectl
                .line(&format!("get pod {name} -o jsonpath={{.metadata.uid}}"))
                .succeeds()
                .stdout
                .clone();
            self.eventually("a node for the pod", || {
                kubectl.line(&format!("get pod {name} -o jsonpath={{.spec.nodeName}}")).stdout
                    == NODE
            });
            self.publish(name, uid.trim());
        }
        kubectl.wait_until_ready(name);
    }

    fn publish(&self, pod: &str, uid: &str) {
        let socket = self.place.join("kubelet/plugins/values.csi.waybill.dev/csi.sock");
        self.eventually("the plugin", || socket.exists());
        let mut request = NodePublishVolumeRequest::default();
        request.volume_id = format!("v-{uid}");
        request.target_path =
            self.place.join(format!("kubelet/pods/{uid}/volumes/v/mount")).display().to_string();
        for (name, value) in [("pod.name", pod), ("pod.namespace", "default"), ("pod.uid", uid)] {
            request.volume_context.insert(format!("csi.storage.k8s.io/{name}"), value.to_owned());
        }
        let tokens = "csi.storage.k8s.io/serviceAccount.tokens".to_owned();
        request.volume_context.insert(tokens, "{}".to_owned());
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        threads.block_on(async {
            let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
            let mut node = NodeClient::new(endpoint.connect().await.unwrap());
            node.node_publish_volume(request).await.unwrap();
        });
    }

    fn record(&self, session: &str) -> SessionRecord {
        let path = self.place.join(format!("run/sessions/{session}.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[track_caller]
    fn eventually(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            let log = || fs::read_to_string(self.place.join("agent.log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "not in time: {what}; the agent:\n{}", log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn stop(self) {
        let Self { roles, agent, .. } = self;
        roles.stop();
        drop(agent);
    }
}

/// A containerd whose handler `waybill` is the wrapper, with its state in memory.
fn containerd(pause: &str, place: &Path, wrapper: &Path) -> Option<Containerd> {
    let program = place.join("opt/bin/waybill-oci");
    fs::create_dir_all(place.join("opt/bin")).ok()?;
    fs::copy(wrapper, &program).ok()?;
    let runc = waybill_testkit::program::RUNC.find()?;
    let config = WrapperConfig {
        version: WrapperConfig::VERSION,
        runtime: runc,
        run: place.join("run"),
        mode: Mode::Enforce,
        engine: None,
    };
    fs::write(place.join("opt/oci.json"), serde_json::to_vec(&config).ok()?).ok()?;
    let containerd = Containerd::start_configured(pause, |directory, runc, configuration| {
        let state = directory.join("state");
        fs::create_dir_all(&state).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&state).status();
        assert!(mounted.unwrap().success());
        std::os::unix::fs::symlink(directory, place.join("containerd")).unwrap();
        let runtimes = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes";
        let kind = "runtime_type = \"io.containerd.runc.v2\"";
        let handler = |name: &str, program: &Path| {
            format!(
                "{runtimes}.{name}]\n{kind}\n{runtimes}.{name}.options]\nBinaryName = \"{}\"\n",
                program.display()
            )
        };
        configuration + &handler("runc", runc) + &handler("waybill", &program)
    })?;
    containerd.import(&image(fs::read("/bin/busybox").ok()?));
    Some(containerd)
}

/// Of an administrator, with a token.
fn kubeconfig(roles: &Roles, place: &Path) -> PathBuf {
    let text = fs::read_to_string(roles.kubeconfig()).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"] = json!({"token": ADMIN_TOKEN});
    let path = place.join("admin.kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

fn objects() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let admins = json!([{"kind": "User", "name": "anna", "apiGroup": rbac}, {"kind": "User", "name": "boris", "apiGroup": rbac}]);
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "waybill-system"}}),
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "waybill"}, "handler": "waybill"}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "people"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": admins}),
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "ProviderClass", "metadata": {"name": "vault"},
            "spec": {"driver": "mock.csi.waybill.dev", "parameters": {"allowedNamespaces": "default", "allowedFields": "app/*"}}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "uses-vault"},
            "rules": [{"apiGroups": ["storage.k8s.io"], "resources": ["providerclasses"], "resourceNames": ["vault"], "verbs": ["use"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "uses-vault", "namespace": "default"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "uses-vault"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]}),
    ]
}

/// A driver whose script is in memory, as everything that has the value must be.
fn driver(place: &Path) -> Role {
    let secrets = Path::new("/run/waybill-test-secrets");
    fs::create_dir_all(secrets).unwrap();
    let script = secrets.join("script.json");
    fs::write(&script, json!({"values": {"app/password": CANARY}}).to_string()).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o600)).unwrap();
    let socket = place.join("kubelet/plugins/mock.csi.waybill.dev/csi.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let arguments = [
        "mock".to_owned(),
        format!("--script={}", script.display()),
        format!("--socket={}", socket.display()),
    ];
    Role::start(place, "driver", &arguments)
}

fn gate(roles: &Roles, place: &Path, admin: &Path) -> Gate {
    let authority = roles.dir().join("state/pki/ca.crt");
    let authority = format!("--client-ca={}", authority.display());
    let flags = [
        "--key-lead=0",
        "--serving-name=127.0.0.1",
        "--caller=mtls",
        &authority,
        "--client-name=kube-apiserver-kubelet-client",
    ];
    let setup = gate::Setup {
        binary: BINARY,
        dir: place,
        pair: Default::default(),
        kubeconfig: admin,
        group: "storage.k8s.io",
        flags: &flags,
    };
    setup.start()
}

/// No file on a disk has the value.
fn search(folder: &Path, searched: &mut usize) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        // What is in memory may have it, and does.
        if kind.is_dir() && !path.ends_with("state/io.containerd.runtime.v2.task") {
            search(&path, searched);
        } else if kind.is_file() {
            let found = fs::read(&path).unwrap_or_default();
            let has = found.windows(CANARY.len()).any(|part| part == CANARY.as_bytes());
            assert!(!has, "{} has it", path.display());
            *searched += 1;
        }
    }
}
