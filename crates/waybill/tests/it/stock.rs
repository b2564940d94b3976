//! `waybill gate` and the manifests in `deploy` on Kubernetes' own API server, with its own kubectl, as
//! `deploy/gate/README.md` has them applied. Skipped, and says so, where nobody has built that server.

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;
use waybill_testkit::{
    gate,
    kubectl::{Kubectl, PATIENCE, Ran},
    stock::StockApiServer,
};

use crate::gate::Asked;

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");
const GROUP: &str = "waybill.dev";

/// CSI-15, CSI-17, CSI-20, CSI-21, CSI-22
#[tokio::test]
async fn a_stock_api_server_asks_the_gate_csi_15_csi_17_csi_20_csi_21_csi_22() {
    let Some(cluster) = Cluster::install() else { return };
    let gate = cluster.start_gate();
    gate.until_ready().await;
    cluster.apply_webhooks(&gate);
    cluster.classes_are_judged();
    cluster.roles_grant_what_they_say(&gate).await;
    cluster.csi_secret_ref_is_unknown(&gate).await;
    cluster.certificates_are_renewed();
    drop(gate);
    cluster.a_gate_that_is_down_closes_the_doors_it_should();
}

struct Cluster {
    server: StockApiServer,
    kubectl: Kubectl,
    dir: TempDir,
}

impl Cluster {
    fn install() -> Option<Self> {
        let keys = KeyPair::generate().unwrap();
        let server = StockApiServer::start((&keys.serialize_pem(), &keys.public_key_pem()))?;
        let kubectl = server.kubectl("admin")?;
        kubectl.apply(&deployed("gate/crd.yaml")).succeeds();
        kubectl.apply(&deployed("gate/gate.yaml")).succeeds();
        let established = "--for=condition=Established crd/providerclasses.waybill.dev";
        kubectl.line(&format!("wait {established} --timeout=60s")).succeeds();
        // A controller would make the second one.
        kubectl.line("create namespace app").succeeds();
        kubectl.line("-n app create serviceaccount default").succeeds();
        Some(Self { server, kubectl, dir: tempfile::tempdir().unwrap() })
    }

    /// It has the rights of its service account, and no others.
    fn start_gate(&self) -> Asked {
        let token = self.kubectl.line("-n waybill-system create token waybill-gate");
        let kubeconfig = self.server.kubeconfig(token.succeeds().stdout.trim());
        let certified = certificate();
        self.write(&certified);
        let setup = gate::Setup {
            binary: BINARY,
            dir: self.dir.path(),
            pair: self.pair(),
            kubeconfig: &kubeconfig,
            group: GROUP,
            flags: &["--caller=anyone", "--key-lead=0"],
        };
        Asked::new(setup.start(), certified.cert.der())
    }

    fn pair(&self) -> (PathBuf, PathBuf) {
        (self.dir.path().join("tls.crt"), self.dir.path().join("tls.key"))
    }

    /// Puts a certificate in its place, by rename as volumes of Secrets do.
    fn write(&self, CertifiedKey { cert, signing_key }: &CertifiedKey<KeyPair>) {
        let (certificate, key) = self.pair();
        for (path, text) in [(key, signing_key.serialize_pem()), (certificate, cert.pem())] {
            let fresh = path.with_extension("new");
            fs::write(&fresh, text).unwrap();
            fs::rename(fresh, path).unwrap();
        }
    }

    /// The gate runs outside of the cluster, so a URL stands for its Service.
    fn apply_webhooks(&self, gate: &Asked) {
        for mut document in documents("gate/webhooks.yaml") {
            for webhook in document["webhooks"].as_array_mut().unwrap() {
                let client = &mut webhook["clientConfig"];
                let path = client["service"]["path"].as_str().unwrap();
                *client = json!({"url": format!("https://{}{path}", gate.address())});
            }
            self.kubectl.apply(&document.to_string()).succeeds();
        }
        self.trust(&fs::read_to_string(self.pair().0).unwrap());
    }

    fn trust(&self, certificates: &str) {
        let bundle = STANDARD.encode(certificates);
        let path = "/webhooks/0/clientConfig/caBundle";
        let patch = json!([{"op": "add", "path": path, "value": bundle}]).to_string();
        for webhook in ["waybill-providerclasses", "waybill-pods"] {
            let patch =
                ["patch", "validatingwebhookconfiguration", webhook, "--type=json", "-p", &patch];
            self.kubectl.run(&patch).succeeds();
        }
    }

    /// Asks without making it.
    fn dry_run(&self, name: &str, spec: &Value) -> Ran {
        let arguments = ["apply", "--dry-run=server", "-f", "-"];
        self.kubectl.with_input(&arguments, &class(name, spec))
    }

    fn classes_are_judged(&self) {
        let bad = json!({"driver": "", "parameters": {"allowedFields": "a,,b"}});
        let told = "admission webhook \"providerclasses.gate.waybill.dev\" denied the request: \
            ProviderClass.waybill.dev \"bad\" is invalid: [spec.driver: Required value: driver name is required, \
            spec.parameters[allowedFields]: Invalid value: \"a,,b\": item 2 is empty]";
        // The API server learns of webhooks a moment after they are made.
        until(|| self.dry_run("bad", &bad), |ran| ran.stderr.contains(told));
        self.kubectl.apply(&class("bad", &bad)).fails_with(1, told);
        let mistyped = json!({"driver": "d", "paramters": {}});
        self.dry_run("bad", &mistyped).fails_with(1, "unknown field \"spec.paramters\"");

        let open = self.kubectl.apply(&class("open", &json!({"driver": "d.example.com"})));
        let warning =
            "Warning: spec.parameters[allowedNamespaces]: not set, pods of every namespace";
        assert!(open.succeeds().stderr.contains(warning), "{open:#?}");
        self.dry_run("never", &good("d.example.com")).succeeds();
        self.kubectl.apply(&class("vault", &good("d.example.com"))).succeeds();
        self.kubectl
            .line("get providerclasses -o name")
            .prints("providerclass.waybill.dev/open\nproviderclass.waybill.dev/vault");

        let fixed = "spec.driver: Invalid value: \"e.example.com\": field is immutable";
        self.kubectl.apply(&class("vault", &good("e.example.com"))).fails_with(1, fixed);
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let changed = class("vault", &good("e.example.com"));
        self.kubectl.with_input(&apply, &changed).fails_with(1, fixed);
        self.kubectl.line("annotate providerclass vault team=a").succeeds();
        self.kubectl.line("delete providerclass open").succeeds();
    }

    /// They are written for our group as the guide says.
    async fn roles_grant_what_they_say(&self, gate: &Asked) {
        let ann = self.server.kubectl("ann").unwrap();
        let other = class("other", &good("d.example.com"));
        ann.apply(&other).fails_with(1, "Forbidden");
        let denied = "access denied to ProviderClass \"vault\": service account app/default needs the verb \
            \"use\" on providerclasses.waybill.dev";
        gate.until_pod_of("default", "app", "secret/x", denied).await;
        for role in ["roles/providerclass-manager.yaml", "roles/providerclass-user.yaml"] {
            let ours = deployed(role).replace("storage.k8s.io", GROUP);
            self.kubectl.apply(&ours).succeeds();
        }
        until(|| ann.apply(&other), Ran::succeeded);
        gate.until_pod_of("default", "app", "secret/x", "").await;
        gate.until_pod_of("web", "app", "secret/x", &denied.replace("default", "web")).await;
        let elsewhere = "Unauthorized: namespace not in allowedNamespaces";
        gate.until_pod_of("default", "elsewhere", "secret/x", elsewhere).await;
    }

    /// It refuses such a pod itself, however it is sent, and the gate sees none of it.
    async fn csi_secret_ref_is_unknown(&self, gate: &Asked) {
        let reference =
            json!({"driver": "d.example.com", "providerClassName": "vault", "key": "secret/x"});
        let env = json!([{"name": "A", "valueFrom": {"csiSecretRef": reference}}]);
        let pod = pod("app", "fetches", &env);
        for (flag, told) in [
            (
                "--validate=strict",
                "unknown field \"spec.containers[0].env[0].valueFrom.csiSecretRef\"",
            ),
            (
                "--validate=ignore",
                "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of",
            ),
            ("--server-side", "valueFrom.csiSecretRef: field not declared in schema"),
        ] {
            self.kubectl.with_input(&["apply", flag, "-f", "-"], &pod).fails_with(1, told);
        }
        let before = pods_allowed(gate).await;
        self.kubectl.apply(&self::pod("app", "plain", &json!([]))).succeeds();
        assert_eq!(pods_allowed(gate).await, before + 1);
    }

    fn certificates_are_renewed(&self) {
        let old = fs::read_to_string(self.pair().0).unwrap();
        let new = certificate();
        self.trust(&format!("{old}{}", new.cert.pem()));
        self.write(&new);
        let log = || fs::read_to_string(self.dir.path().join("gate.log")).unwrap();
        let ask = || self.dry_run("never", &good("d.example.com"));
        until(ask, |ran| ran.succeeded() && log().contains("the certificate was read again"));
        self.trust(&new.cert.pem());
        until(ask, Ran::succeeded);
    }

    fn a_gate_that_is_down_closes_the_doors_it_should(&self) {
        let closed = "failed calling webhook \"providerclasses.gate.waybill.dev\"";
        self.dry_run("never", &good("d.example.com")).fails_with(1, closed);
        self.kubectl.line("delete providerclass other").succeeds();
        self.kubectl.apply(&pod("app", "open", &json!([]))).succeeds();

        let patch =
            json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"}]);
        let webhook =
            ["patch", "validatingwebhookconfiguration", "waybill-pods", "--type=json", "-p"];
        self.kubectl.run(&[&webhook[..], &[&patch.to_string()]].concat()).succeeds();
        let apply = |namespace: &str| {
            let apply = ["apply", "--dry-run=server", "-f", "-"];
            self.kubectl.with_input(&apply, &pod(namespace, "closed", &json!([])))
        };
        until(|| apply("app"), |ran| !ran.succeeded())
            .fails_with(1, "failed calling webhook \"pods.gate.waybill.dev\"");
        self.kubectl.line("-n kube-system create serviceaccount default").succeeds();
        apply("kube-system").succeeds();
    }
}

/// How many pods a gate has let pass.
async fn pods_allowed(gate: &Asked) -> u32 {
    let (_, metrics) = gate.get("/metrics").await;
    let counter = "waybill_gate_reviews_total{webhook=\"pods\",outcome=\"allowed\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(counter)).unwrap().parse().unwrap()
}

fn until(run: impl Fn() -> Ran, holds: impl Fn(&Ran) -> bool) -> Ran {
    let begun = Instant::now();
    loop {
        let ran = run();
        if holds(&ran) {
            return ran;
        }
        assert!(begun.elapsed() < PATIENCE, "not in time: {ran:#?}");
        sleep(Duration::from_millis(100));
    }
}

fn deployed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    fs::read_to_string(path).unwrap()
}

fn documents(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&deployed(name)).unwrap()
}

fn certificate() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap()
}

fn good(driver: &str) -> Value {
    json!({"driver": driver, "parameters": {"allowedNamespaces": "app", "allowedFields": "secret/*"}})
}

fn class(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "waybill.dev/v1", "kind": "ProviderClass", "metadata": {"name": name},
        "spec": spec})
    .to_string()
}

fn pod(namespace: &str, name: &str, env: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "busybox", "env": env}]}})
    .to_string()
}
