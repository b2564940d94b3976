//! Certificates from plugins: handshakes, rotation, what happens to connections.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::Config;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use waybill_credential::{MetricSink, OnRotation};

use crate::support::{Plugin, answer, serve};

/// Signs the certificates of clients and of the server.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { issuer: Issuer::new(params, key), der }
    }

    /// What a plugin answers.
    pub(crate) fn issue(&self, name: &str) -> serde_json::Value {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        serde_json::json!({"clientCertificateData": certificate, "clientKeyData": key.serialize_pem()})
    }

    /// A server that demands certificates.
    pub(crate) fn server(&self) -> ServerConfig {
        let (certificate, key) = self.serving();
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone().into()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .unwrap()
    }

    /// A server that demands none.
    pub(crate) fn open_server(&self) -> ServerConfig {
        let (certificate, key) = self.serving();
        ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap()
    }

    fn serving(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        (certificate, PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())))
    }

    pub(crate) fn config(&self, plugin: &Plugin, address: std::net::SocketAddr) -> Config {
        let mut config = plugin.config(&format!("https://{address}"));
        config.root_cert = Some(vec![self.der.clone()]);
        config
    }
}

/// The number of the connection over which the last request came.
async fn server(authority: &Authority) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let last = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&last);
    let address = serve(Some(authority.server()), move |number, _| {
        seen.store(number, Ordering::SeqCst);
        answer(200)
    });
    (address.await, last)
}

#[derive(Default)]
struct Rotations {
    ages: AtomicUsize,
    expiries: Mutex<Vec<bool>>,
}

impl MetricSink for Rotations {
    fn set_expiry(&self, earliest: Option<jiff::Timestamp>) {
        self.expiries.lock().unwrap().push(earliest.is_some());
    }

    fn observe_rotation_age(&self, _: Duration) {
        self.ages.fetch_add(1, Ordering::SeqCst);
    }
}

/// CRED-25, CRED-31, CRED-44, CRED-45: ten rotations: no request comes over a connection that was there before the last of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_means_a_new_connection_cred_25_31_45() {
    for on_rotation in [OnRotation::Drain, OnRotation::Close] {
        let authority = Authority::new();
        let mut plugin = Plugin::answering();
        plugin.options.on_rotation = on_rotation;
        let rotations = Arc::new(Rotations::default());
        plugin.registry.add_sink(rotations.clone());
        let (address, last) = server(&authority).await;
        plugin.answer(&authority.issue("0"), Some(Duration::from_secs(10)));
        let client = plugin.client_of(authority.config(&plugin, address));
        let mut before = None;
        for round in 1..=10 {
            let mut newest = before;
            for _ in 0..3 {
                client.apiserver_version().await.unwrap();
                let used = Some(last.load(Ordering::SeqCst));
                assert!(used > before, "{on_rotation:?}, round {round}");
                newest = newest.max(used);
            }
            before = newest;
            plugin.clock.advance(Duration::from_secs(11));
            let next = authority.issue(&round.to_string());
            plugin.answer(&next, Some(Duration::from_secs(10)));
        }
        assert_eq!(plugin.runs(), 10);
        assert_eq!(rotations.ages.load(Ordering::SeqCst), 9, "none for the first");
        assert_eq!(rotations.expiries.lock().unwrap().last(), Some(&true));
    }
}

/// CRED-31: the same certificate again is no rotation.
#[tokio::test]
async fn an_unchanged_certificate_keeps_its_connections_cred_31() {
    let authority = Authority::new();
    let plugin = Plugin::answering();
    let (address, last) = server(&authority).await;
    let certificate = authority.issue("same");
    let client = plugin.client_of(authority.config(&plugin, address));
    let life = Some(Duration::from_secs(10));
    plugin.answer(&certificate, life);
    client.apiserver_version().await.unwrap();
    plugin.clock.advance(Duration::from_secs(11));
    plugin.answer(&certificate, life);
    // A connection is idle a moment after its answer is read.
    for _ in 0..100 {
        client.apiserver_version().await.unwrap();
        if last.load(Ordering::SeqCst) == 0 {
            assert_eq!(plugin.runs(), 2);
            return;
        }
    }
    panic!("the first connection is not used again");
}
