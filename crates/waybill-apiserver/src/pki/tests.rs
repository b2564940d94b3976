//! Keys and certificates over restarts, renewals and handshakes.

use std::{fs, os::unix::fs::PermissionsExt};

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion, crypto::aws_lc_rs,
    time_provider::TimeProvider,
};
use rustls_pki_types::{PrivateKeyDer, ServerName, UnixTime};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use waybill_core::chain::Chain;

use super::{
    authority::{Validity, parse},
    pair::covers,
    *,
};

const NOW: i64 = 1_700_000_000;
const DAY: i64 = 24 * 3600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn config(dir: &Path) -> PkiConfig {
    PkiConfig { dir: dir.join("pki"), ..PkiConfig::default() }
}

fn open(dir: &Path, second: i64) -> Pki {
    Pki::open(config(dir), at(second)).unwrap()
}

fn snapshot(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir.join("pki")).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn the_first_start_makes_everything_and_later_ones_keep_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), NOW);
    let files = snapshot(dir.path());
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "apiserver-kubelet-client.crt",
            "apiserver-kubelet-client.key",
            "apiserver.crt",
            "apiserver.key",
            "ca.crt",
            "ca.key",
            "exec-session.key",
            "front-proxy-ca.crt",
            "front-proxy-ca.key",
            "sa.key",
        ]
    );
    let second = open(dir.path(), NOW + 100 * DAY);
    assert_eq!(snapshot(dir.path()), files);
    assert_eq!(first.cluster_authority(), second.cluster_authority());
    assert_eq!(first.serving().chain(), second.serving().chain());
    assert!(second.service_account_key().constant_time_eq(first.service_account_key().expose()));
    assert!(second.exec_session_key().constant_time_eq(first.exec_session_key().expose()));
    assert!(!first.exec_session_key().constant_time_eq(first.service_account_key().expose()));
    assert_ne!(first.cluster_authority(), &first.front_proxy_authorities()[0]);
}

#[test]
fn keys_are_private_and_certificates_are_not() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), NOW);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("pki")), 0o700);
    for (name, _) in snapshot(dir.path()) {
        let expected = if name.ends_with(".key") { 0o600 } else { 0o644 };
        assert_eq!(mode(&dir.path().join("pki").join(&name)), expected, "{name}");
    }
}

#[test]
fn certificates_are_renewed_before_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path(), NOW);
    let (first, node) = (pki.serving().chain(), pki.node_client().certificate.clone());
    assert_eq!(pki.refresh(at(NOW + 255 * DAY)).unwrap(), Refreshed::Unchanged);
    assert_eq!(pki.refresh(at(NOW + 256 * DAY)).unwrap(), Refreshed::Replaced);
    assert_ne!(pki.serving().chain(), first);
    assert_ne!(pki.node_client().certificate, node);
    assert_eq!(pki.refresh(at(NOW + 256 * DAY)).unwrap(), Refreshed::Unchanged);
    let again = open(dir.path(), NOW + 257 * DAY);
    assert_eq!(again.serving().chain(), pki.serving().chain());
}

#[test]
fn a_wanted_name_that_is_missing_makes_a_new_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let before = open(dir.path(), NOW).serving().chain();
    for name in ["api.example.org", "192.0.2.7", "2001:db8::1"] {
        let named = || PkiConfig { names: vec![name.to_owned()], ..config(dir.path()) };
        let with_name = Pki::open(named(), at(NOW)).unwrap().serving().chain();
        assert_ne!(with_name, before);
        assert!(covers(&parse(&with_name[0]).unwrap(), name));
        assert_eq!(Pki::open(named(), at(NOW)).unwrap().serving().chain(), with_name);
    }
}

#[test]
fn a_crash_between_key_and_certificate_heals() {
    let dir = tempfile::tempdir().unwrap();
    let ca = open(dir.path(), NOW).cluster_authority().clone();
    let key = KeyPair::generate().unwrap().serialize_pem();
    fs::write(dir.path().join("pki/apiserver.key"), key).unwrap();
    fs::write(dir.path().join("pki/apiserver-kubelet-client.crt"), "half").unwrap();
    let pki = open(dir.path(), NOW);
    assert_eq!(*pki.cluster_authority(), ca);
    assert!(pki.node_client().certificate.starts_with("-----BEGIN"));
}

#[test]
fn a_lost_authority_key_is_not_replaced_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), NOW);
    fs::remove_file(dir.path().join("pki/ca.key")).unwrap();
    let error = Pki::open(config(dir.path()), at(NOW)).err().unwrap().to_string();
    assert!(error.contains("/pki/ca.key is missing; put it back"), "{error}");
    fs::write(dir.path().join("pki/ca.key"), "rubbish").unwrap();
    let error = Pki::open(config(dir.path()), at(NOW)).err().unwrap();
    assert!(Chain(&error).to_string().contains("/pki/ca.crt: not usable as PEM"), "{error:?}");
}

#[test]
fn files_of_the_user_are_used_and_read_again() {
    let (dir, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let theirs = open(user.path(), NOW);
    let supplied = |stem: &str| Some(paths(&user.path().join("pki"), stem));
    let config = PkiConfig {
        supplied: Supplied {
            cluster_ca: supplied("ca"),
            front_proxy_ca: Some(user.path().join("pki/front-proxy-ca.crt")),
            serving: supplied("apiserver"),
            node_client: supplied("apiserver-kubelet-client"),
            service_account_key: Some(user.path().join("pki/sa.key")),
        },
        ..config(dir.path())
    };
    let pki = Pki::open(config, at(NOW)).unwrap();
    let own: Vec<_> = snapshot(dir.path()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(own, ["exec-session.key"]);
    assert_eq!(pki.serving().chain(), theirs.serving().chain());
    assert_eq!(pki.front_proxy_authorities(), theirs.front_proxy_authorities());
    theirs.refresh(at(NOW + 300 * DAY)).unwrap();
    assert_eq!(pki.refresh(at(NOW)).unwrap(), Refreshed::Replaced);
    assert_eq!(pki.serving().chain(), theirs.serving().chain());
}

#[test]
fn what_does_not_fit_is_refused_with_the_path() {
    let (dir, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    open(user.path(), NOW);
    let file = |name: &str| user.path().join("pki").join(name);
    let check = |supplied: Supplied, expected: &str| {
        let config = PkiConfig { supplied, ..config(dir.path()) };
        let error = Pki::open(config, at(NOW)).err().unwrap();
        let text = Chain(&error).to_string();
        assert!(text.contains(expected), "{text}");
    };
    let pair = |certificate: &str, key: &str| {
        Some(PairPaths { certificate: file(certificate), key: file(key) })
    };
    check(
        Supplied { cluster_ca: pair("ca.crt", "sa.key"), ..Supplied::default() },
        "/ca.crt: the certificate and the private key do not belong together",
    );
    check(
        Supplied { cluster_ca: pair("apiserver.crt", "apiserver.key"), ..Supplied::default() },
        "/apiserver.crt: the certificate is not one of a certificate authority",
    );
    check(
        Supplied { serving: pair("apiserver.crt", "sa.key"), ..Supplied::default() },
        "/apiserver.crt: not usable for TLS",
    );
    check(
        Supplied { front_proxy_ca: Some(file("sa.key")), ..Supplied::default() },
        "/sa.key: no certificate in it; expected PEM",
    );
    check(
        Supplied { front_proxy_ca: Some(file("none")), ..Supplied::default() },
        "/none: No such file",
    );
}

#[test]
fn client_certificates_do_not_outlive_their_authority() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path(), NOW);
    let issue = |second| pki.issue_client("a", &[], 20 * YEAR, at(second));
    let issued = issue(NOW).unwrap();
    let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let authority = Validity::of(&parse(pki.cluster_authority()).unwrap());
    assert_eq!(Validity::of(&parse(&der).unwrap()).not_after, authority.not_after);
    assert!(matches!(issue(NOW + 3650 * DAY), Err(IssueError::AuthorityExpired(_))));
    assert!(matches!(
        pki.issue_client("a", &["1", "2", "3"], YEAR, at(NOW)),
        Err(IssueError::TooManyGroups(3))
    ));
}

#[derive(Debug)]
struct FixedTime;

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(NOW.unsigned_abs())))
    }
}

/// Connects over loopback; returns what each side saw of the other's certificates, and the protocol.
async fn handshake(
    pki: &Pki,
    client: Option<&Issued>,
    version: &'static SupportedProtocolVersion,
) -> (Vec<CertificateDer<'static>>, Vec<CertificateDer<'static>>, Vec<u8>) {
    let hints = [pki.cluster_authority().clone()];
    let server = tls::server_config(pki.serving(), &hints).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pki.cluster_authority().clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(FixedTime))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(issued) => {
            let chain = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(issued.key.expose()).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accept = async {
        let (stream, _) = listener.accept().await.unwrap();
        TlsAcceptor::from(Arc::new(server)).accept(stream).await.unwrap()
    };
    let connect = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    };
    let (accepted, connected) = tokio::join!(accept, connect);
    let (_, server) = accepted.get_ref();
    let (_, client) = connected.get_ref();
    (
        server.peer_certificates().unwrap_or_default().to_vec(),
        client.peer_certificates().unwrap_or_default().to_vec(),
        server.alpn_protocol().unwrap_or_default().to_vec(),
    )
}

#[tokio::test]
async fn clients_connect_with_and_without_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path(), NOW);
    let alice = pki.issue_client("alice", &["dev"], YEAR, at(NOW)).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (seen, shown, protocol) = handshake(&pki, None, version).await;
        assert!(seen.is_empty());
        assert_eq!(shown, pki.serving().chain());
        assert_eq!(protocol, b"h2");
        let (seen, _, _) = handshake(&pki, Some(&alice), version).await;
        let der = CertificateDer::from_pem_slice(alice.certificate.as_bytes()).unwrap();
        assert_eq!(seen, [der]);
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections() {
    let dir = tempfile::tempdir().unwrap();
    let pki = open(dir.path(), NOW - 300 * DAY);
    fs::remove_file(dir.path().join("pki/apiserver.crt")).unwrap();
    let (_, before, _) = handshake(&pki, None, &rustls::version::TLS13).await;
    assert_eq!(pki.refresh(at(NOW)).unwrap(), Refreshed::Replaced);
    let (_, after, _) = handshake(&pki, None, &rustls::version::TLS13).await;
    assert_ne!(before, after);
    assert_eq!(after, pki.serving().chain());
}
