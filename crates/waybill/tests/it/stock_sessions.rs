//! `waybill gate` signs sessions for Kubernetes' own API server, which calls itself and has its aggregator pass the question on. The
//! manifests are those of `deploy/gate`; the Service leads out of the cluster. Skipped, and says so, where nobody has built that server.

use std::{
    fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use waybill_testkit::{
    gate::{self, Gate},
    kubectl::{Kubectl, PATIENCE, Ran},
    stock::StockApiServer,
};

const BINARY: &str = env!("CARGO_BIN_EXE_waybill");

/// Issue 18
#[test]
fn a_stock_api_server_has_its_sessions_signed_through_its_aggregator() {
    let Some(cluster) = Cluster::start() else { return };
    let gate = cluster.gate();
    cluster.aggregate(&gate);
    cluster.install();
    cluster.sessions_are_signed(&gate);
    cluster.nobody_else_gets_a_verdict(&gate);
    drop(gate);
    cluster.without_a_gate_doors_are_closed_where_they_should_be();
}

struct Cluster {
    server: StockApiServer,
    kubectl: Kubectl,
    dir: TempDir,
}

impl Cluster {
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let keys = KeyPair::generate().unwrap();
        let flags = front_proxy(dir.path());
        let server =
            StockApiServer::start_with((&keys.serialize_pem(), &keys.public_key_pem()), &flags)?;
        let kubectl = server.kubectl("admin")?;
        for file in ["crd.yaml", "gate.yaml"] {
            kubectl.apply(&deployed(file)).succeeds();
        }
        let established = "--for=condition=Established crd/providerclasses.waybill.dev";
        kubectl.line(&format!("wait {established} --timeout=60s")).succeeds();
        kubectl.line("create namespace app").succeeds();
        // Controllers would make it.
        kubectl.line("-n app create serviceaccount default").succeeds();
        Some(Self { server, kubectl, dir })
    }

    /// It has the rights of its service account, and no others, and makes its own certificate.
    fn gate(&self) -> Gate {
        let token = self.kubectl.line("-n waybill-system create token waybill-gate");
        let kubeconfig = self.server.kubeconfig(token.succeeds().stdout.trim());
        let setup = gate::Setup {
            binary: BINARY,
            dir: self.dir.path(),
            pair: Default::default(),
            kubeconfig: &kubeconfig,
            group: "waybill.dev",
            flags: &["--caller=aggregator", "--key-lead=1"],
        };
        setup.start()
    }

    /// The gate is outside of the cluster, so its Service is a name.
    fn aggregate(&self, gate: &Gate) {
        self.kubectl.line("-n waybill-system delete service waybill-gate").succeeds();
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "waybill-gate", "namespace": "waybill-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        self.kubectl.apply(&service.to_string()).succeeds();
        let mut group: Value = serde_saphyr::from_str(&deployed("apiservice.yaml")).unwrap();
        group["spec"]["service"]["port"] = gate.address().port().into();
        self.kubectl.apply(&group.to_string()).succeeds();
        let available =
            "wait --for=condition=Available apiservice/v1.exec.waybill.dev --timeout=90s";
        self.kubectl.line(available).succeeds();
    }

    fn install(&self) {
        for file in ["policies.yaml", "webhooks.yaml"] {
            self.kubectl.apply(&deployed(file)).succeeds();
        }
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "waybill"}, "handler": "waybill"});
        self.kubectl.apply(&class.to_string()).succeeds();
        self.kubectl.line("label namespace app waybill.dev/exec=enforce").succeeds();
        let rights = "create clusterrolebinding ann --clusterrole=cluster-admin --user=ann";
        self.kubectl.line(rights).succeeds();
        // It refuses every exec, and shows its command: there is no kubelet here.
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
            "resources": ["pods/exec"]});
        let spy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "spy"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [
                {"expression": "false", "messageExpression": "object.container + ' ' + object.command.join(' ')"}]}});
        let bound = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "spy"},
            "spec": {"policyName": "spy", "validationActions": ["Deny"]}});
        for object in [spy, bound] {
            self.kubectl.apply(&object.to_string()).succeeds();
        }
    }

    fn sessions_are_signed(&self, gate: &Gate) {
        let made = until(|| self.kubectl.apply(&pod("web", "x")), Ran::succeeded);
        assert!(made.succeeded());
        let class = "-n app get pod web -o jsonpath={.spec.runtimeClassName}";
        self.kubectl.line(class).prints("waybill");
        let ann = self.server.kubectl("ann").unwrap();
        let told = until(
            || ann.line("-n app exec web -- id"),
            |ran| ran.stderr.contains("c waybill-exec:"),
        );
        assert!(told.stderr.contains(" - id"), "{told:?}");
        let records = gate.records();
        let last: Value = serde_json::from_str(records.last().unwrap()).unwrap();
        assert_eq!(last["user"]["username"], "ann", "{last}");
        ann.line("-n app exec web -- waybill-exec:x - id").fails_with(1, "only gate may write");
        let refers = self.kubectl.apply(&pod("refers", "waybill{vault/p}"));
        refers.fails_with(1, "ProviderClass 'vault' not found");
    }

    fn nobody_else_gets_a_verdict(&self, gate: &Gate) {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CONNECT", "name": "web", "namespace": "app", "subResource": "exec",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "mallory"}, "object": {"command": ["id"]}}});
        let before = gate.records().len();
        let post = ["create", "--raw", "/apis/exec.waybill.dev/v1/hooks/exec-enforce", "-f", "-"];
        let forged = self.kubectl.with_input(&post, &review.to_string());
        assert!(!forged.succeeded() && !forged.stdout.contains("patch"), "{forged:?}");
        assert_eq!(gate.records().len(), before);
        self.kubectl.line("get --raw /apis/exec.waybill.dev/v1/keys").shows(&["P-256"]);
        self.kubectl.line("get --raw /apis/exec.waybill.dev/v1/sessions").shows(&["\"ann\""]);
    }

    fn without_a_gate_doors_are_closed_where_they_should_be(&self) {
        let closed = "failed calling webhook \"exec.enforce.gate.waybill.dev\"";
        until(|| self.kubectl.line("-n app exec web -- id"), |ran| ran.stderr.contains(closed));
        self.kubectl.line("delete mutatingwebhookconfiguration waybill-enforce").succeeds();
        self.kubectl.line("delete validatingadmissionpolicybinding spy").succeeds();
        let policy = "this namespace allows exec sessions that gate has signed";
        until(|| self.kubectl.line("-n app exec web -- id"), |ran| ran.stderr.contains(policy));
        let refers = self.kubectl.apply(&pod("refers", "waybill{vault/p}"));
        refers.fails_with(1, "needs the RuntimeClass \"waybill\"");
    }
}

/// The flags of an API server with a front proxy, whose files are made in `dir`.
fn front_proxy(dir: &Path) -> Vec<String> {
    let named = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = named("front-proxy-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = ca.self_signed(&ca_key).unwrap().pem();
    let mut client = named("front-proxy-client");
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let issuer = Issuer::from_ca_cert_pem(&authority, ca_key).unwrap();
    let certificate = client.signed_by(&key, &issuer).unwrap().pem();
    let write = |name: &str, text: &str| {
        fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    vec![
        format!("--requestheader-client-ca-file={}", write("front-proxy-ca.crt", &authority)),
        format!("--proxy-client-cert-file={}", write("front-proxy.crt", &certificate)),
        format!("--proxy-client-key-file={}", write("front-proxy.key", &key.serialize_pem())),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]
}

fn pod(name: &str, value: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "app"},
        "spec": {"containers": [{"name": "c", "image": "busybox", "env": [{"name": "A", "value": value}]}]}})
    .to_string()
}

fn deployed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/gate").join(name);
    fs::read_to_string(path).unwrap()
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
