//! `waybill driver vault`, real OpenBao and our own API server: tokens that the API server issues are
//! reviewed by it when OpenBao logs a pod in.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Namespace, ServiceAccount},
};
use kube::{Api, Client, Config, api::PostParams};
use rustix::process::{Pid, Signal};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;
use tonic::{Code, Status, transport::Endpoint};
use waybill_proto::csi::{EnvVarQuery, NodeGetEnvVarsRequest, node_client::NodeClient};
use waybill_testkit::{
    apiserver::{ADMIN_TOKEN, ApiServer, Setup},
    openbao::OpenBao,
};

const CA: &str = "ca.crt";

/// Killed on drop.
struct Driver(Child);

impl Driver {
    /// Returns when it serves.
    fn start(socket: &Path, bao: &OpenBao) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_waybill"))
            .args(["driver", "vault", "--allow-address", bao.address(), "--socket"])
            .arg(socket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(socket.exists(), "it said {first:?}");
        Self(child)
    }

    /// Asks it to end, and waits until it did.
    fn stop(mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.0);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CSI-46
#[tokio::test]
async fn openbao_has_our_api_server_review_the_token_of_the_pod_csi_46() {
    let Some(bao) = OpenBao::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path()).start();
    let client = connect(&server);
    prepare(&bao, &server);
    let socket = dir.path().join("csi.sock");
    let driver = Driver::start(&socket, &bao);

    let web = token(&client, "web", "vault").await;
    assert_eq!(ask(&socket, &bao, "web", &web).await.unwrap(), "s3cr3t");
    let other = token(&client, "other", "vault").await;
    let refused = ask(&socket, &bao, "other", &other).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    // The token is for somebody else than OpenBao.
    let elsewhere = token(&client, "second", "elsewhere").await;
    let refused = ask(&socket, &bao, "second", &elsewhere).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("role \"web\" at auth/kubernetes"), "{refused}");

    // The login of the first does not outlive the driver.
    let revocations = || bao.requests("update", "auth/token/revoke-self");
    let before = revocations();
    assert!(driver.stop().success());
    assert_eq!(revocations() - before, 1);
}

fn connect(server: &ApiServer) -> Client {
    let mut config = Config::new(format!("https://{}", server.address()).parse().unwrap());
    let ca = fs::read(server.state().join(CA)).unwrap();
    config.root_cert = Some(vec![CertificateDer::from_pem_slice(&ca).unwrap().to_vec()]);
    config.auth_info.token = Some(ADMIN_TOKEN.to_owned().into());
    Client::try_from(config).unwrap()
}

fn prepare(bao: &OpenBao, server: &ApiServer) {
    bao.line("auth enable kubernetes");
    let config = json!({
        "kubernetes_host": format!("https://{}", server.address()),
        "kubernetes_ca_cert": fs::read_to_string(server.state().join(CA)).unwrap(),
        "token_reviewer_jwt": ADMIN_TOKEN,
        "disable_local_ca_jwt": true,
    });
    bao.write("auth/kubernetes/config", &config);
    let role = json!({
        "bound_service_account_names": ["web", "second"],
        "bound_service_account_namespaces": ["shop"],
        "audience": "vault",
        "token_policies": ["web"],
    });
    bao.write("auth/kubernetes/role/web", &role);
    let policy = json!({"policy": r#"path "secret/data/app" { capabilities = ["read"] }"#});
    bao.write("sys/policies/acl/web", &policy);
    bao.write("secret/data/app", &json!({"data": {"password": "s3cr3t"}}));
}

/// Makes the account and asks for a token of it.
async fn token(client: &Client, account: &str, audience: &str) -> String {
    let shop = serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
    // The second account finds it there.
    let _ = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &shop).await;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "shop");
    let object = serde_json::from_value(json!({"metadata": {"name": account}})).unwrap();
    accounts.create(&PostParams::default(), &object).await.unwrap();
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": [audience]}})).unwrap();
    let issued = accounts.create_token_request(account, &PostParams::default(), &request).await;
    issued.unwrap().status.unwrap().token.unwrap()
}

/// Asks the driver as a node does, whose CSIDriver object asks for tokens for `vault`.
async fn ask(socket: &Path, bao: &OpenBao, account: &str, token: &str) -> Result<String, Status> {
    let tokens = json!({"vault": {"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"}});
    let map = |pairs: &[(&str, String)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let request = NodeGetEnvVarsRequest {
        provider_class_name: "vault-secrets".into(),
        class_parameters: map(&[
            ("vaultAddr", bao.address().into()),
            ("vaultRole", "web".into()),
            ("caBundle", bao.ca_bundle()),
            ("allowedNamespaces", "shop".into()),
            ("allowedFields", "secret/data/*".into()),
        ]),
        queries: vec![EnvVarQuery {
            name: "PASSWORD".into(),
            key: "secret/data/app".into(),
            ..EnvVarQuery::default()
        }],
        pod_context: map(&[
            ("namespace", "shop".into()),
            ("serviceAccount", account.into()),
            ("podName", format!("{account}-0")),
            ("podUID", "7d0fb9a6-1111-4000-8000-000000000001".into()),
            ("nodeName", "node-1".into()),
            ("csi.storage.k8s.io/serviceAccount.tokens", tokens.to_string()),
        ]),
        version: String::new(),
    };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let mut node = NodeClient::new(endpoint.connect().await.unwrap());
    let mut answer = node.node_get_env_vars(request).await?.into_inner();
    Ok(String::from_utf8(std::mem::take(&mut answer.results[0].value)).unwrap())
}
