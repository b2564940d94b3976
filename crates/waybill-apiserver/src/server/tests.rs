//! The whole server, over its own TLS.

mod admission;
mod apply;
mod audit;
mod bad_input;
mod bodies;
mod certificate_requests;
mod certificates;
mod classes;
mod client;
mod components;
mod csi_objects;
mod deadlines;
mod encryption;
mod exec_env;
mod forms;
mod limits;
mod login;
mod namespaces;
mod node_credentials;
mod numbers;
mod options;
mod policies;
mod provider_classes;
mod resize;
mod rights;
mod scheduling;
mod session_keys;
mod smuggling;
mod updates;
mod verbs;
mod versions;
mod watches;
mod webhooks;

use std::{fs, path::Path, sync::Arc, time::Duration};

use tempfile::TempDir;
use waybill_api::{
    gates::{FeatureGates, KubeVersion},
    pod::EnvOptions,
};

use super::{
    AnonymousAccess, AuditFailure, AuditRotation, Config, Encryption, RequestLimits, Server,
    StoreConfig,
};
use crate::{admission::DynamicAdmission, proxy::address::NodeAddressType};

/// `admin` may do everything, `alice` nothing.
const TOKENS: &str = "admin-token,admin,1,\"system:masters\"\nalice-token,alice,2,\"devs\"\n";

/// Records every request, so that nothing escapes the tests by policy.
const RECORD_ALL: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";

/// A server with a state directory of its own.
struct TestServer {
    dir: TempDir,
    server: Server,
    tls: Arc<rustls::ClientConfig>,
    /// For those who send no token.
    certificate: Option<Arc<rustls::ClientConfig>>,
}

impl TestServer {
    async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Starts a server and waits until pods and tokens can be made: their service account is there.
    async fn start_with_account() -> Self {
        let server = Self::start().await;
        let accounts = "/api/v1/namespaces/default/serviceaccounts?watch=1";
        assert!(server.watch(accounts).await.next().await.is_some());
        server
    }

    /// Starts a server whose configuration is changed by `change`.
    async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tokens.csv"), TOKENS).unwrap();
        fs::write(dir.path().join("policy.yaml"), RECORD_ALL).unwrap();
        let mut config = config(dir.path());
        change(&mut config);
        Self::start_as(dir, config).await
    }

    /// Stops the server and starts another one in its place.
    async fn restart(self) -> Self {
        let Self { dir, server, .. } = self;
        server.stop().await;
        Self::start_in(dir).await
    }

    async fn start_in(dir: TempDir) -> Self {
        let config = config(dir.path());
        Self::start_as(dir, config).await
    }

    async fn start_as(dir: TempDir, config: Config) -> Self {
        Self::of(dir, Server::start(config).await.unwrap())
    }

    /// Starts a server whose admission asks `rules`, too.
    async fn start_gated(rules: Arc<dyn DynamicAdmission>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tokens.csv"), TOKENS).unwrap();
        fs::write(dir.path().join("policy.yaml"), RECORD_ALL).unwrap();
        let server = Server::start_with(config(dir.path()), Some(rules)).await.unwrap();
        Self::of(dir, server)
    }

    fn of(dir: TempDir, server: Server) -> Self {
        let tls = client::trusting(server.ca_certificate());
        Self { dir, server, tls, certificate: None }
    }

    /// From now on who sends without a token shows a certificate of `user` in `groups`.
    fn show_certificate(&mut self, user: &str, groups: &[&str]) {
        let hour = Duration::from_secs(3600);
        let (certificate, key) = self.server.issue_client(user, groups, hour).unwrap();
        let tls = client::trusting_with(self.server.ca_certificate(), &certificate, key.expose());
        self.certificate = Some(tls);
    }
}

fn config(dir: &Path) -> Config {
    Config {
        state_dir: dir.to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        store: StoreConfig::Embedded,
        gates: FeatureGates::new(KubeVersion::NEWEST),
        env: EnvOptions::default(),
        token_file: Some(dir.join("tokens.csv")),
        audit_policy: Some(dir.join("policy.yaml")),
        strict_audit: false,
        audit_failure: AuditFailure::default(),
        audit_rotation: AuditRotation::default(),
        audit_webhook: None,
        anonymous: AnonymousAccess::default(),
        service_account_keys: Vec::new(),
        node_address_types: NodeAddressType::USUAL.to_vec(),
        limits: RequestLimits::default(),
        encryption: Encryption::default(),
        login_lifetime: Duration::from_secs(600),
    }
}
