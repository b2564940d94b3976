//! Which credential wins, and what no credential means.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header::AUTHORIZATION};
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use waybill_core::{chain::Chain, secret::SecretBytes};

use super::{
    jwt::SigningKey,
    local::LocalTokens,
    review::{ReviewError, self_subject_review, token_review},
    service_account::{Binding, Existing, ExistingPod, Objects, Reference, ServiceAccountTokens},
    token_file::TokenFile,
    *,
};
use crate::pki::{Issued, Pki, PkiConfig};

const NOW: i64 = 1_700_000_000;
const HOUR: Duration = Duration::from_secs(3600);
const STATIC: &str = "static-canary-77aa";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A cluster with one service account and nothing else.
struct OneAccount;

impl Objects for OneAccount {
    fn service_account(&self, _: &str, name: &str) -> Option<Existing> {
        (name == "robot").then(|| Existing { uid: "u".into(), deleted: None })
    }
    fn pod(&self, _: &str, _: &str) -> Option<ExistingPod> {
        None
    }
    fn secret(&self, _: &str, _: &str) -> Option<Existing> {
        None
    }
    fn node(&self, _: &str) -> Option<Existing> {
        None
    }
}

struct World {
    /// Kept for as long as the files are needed.
    _dir: tempfile::TempDir,
    pki: Pki,
    authenticator: Authenticator,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = PkiConfig { dir: dir.path().to_owned(), ..PkiConfig::default() };
        let pki = Pki::open(config, at(NOW)).unwrap();
        let key = SigningKey::from_pem(pki.service_account_key()).unwrap();
        let file = format!("{STATIC},bob,7,\"dev,ops\"");
        let authenticator = Authenticator {
            clients: ClientAuthorities::new(&[pki.cluster_authority().clone()]).unwrap(),
            front_proxies: ClientAuthorities::new(pki.front_proxy_authorities()).unwrap(),
            proxy_names: ProxyNames::default(),
            tokens: BearerTokens {
                file: TokenFile::parse(&SecretBytes::from(file.into_bytes())).unwrap(),
                local: Some(Arc::new(LocalTokens::new(HOUR).unwrap())),
                service_accounts: ServiceAccountTokens::new(
                    "api".into(),
                    vec!["api".into()],
                    key,
                    Vec::new(),
                ),
                objects: Arc::new(OneAccount),
            },
            anonymous: Anonymous::default(),
        };
        Self { _dir: dir, pki, authenticator }
    }

    fn peer(&self, user: &str, groups: &[&str]) -> Peer {
        let issued = self.pki.issue_client(user, groups, HOUR, at(NOW)).unwrap();
        self.authenticator.peer(&chain(&issued), at(NOW))
    }

    /// The same world, trusting the cluster authority for proxies, but only under one name.
    fn with_proxy(mut self) -> Self {
        let roots = [self.pki.cluster_authority().clone()];
        self.authenticator.front_proxies = ClientAuthorities::new(&roots).unwrap();
        self.authenticator.proxy_names = ProxyNames::new(vec!["front-proxy-client".into()]);
        self
    }

    fn service_account_token(&self, name: &str) -> String {
        let account = Binding {
            namespace: "ns".into(),
            node: None,
            pod: None,
            secret: None,
            serviceaccount: Reference { name: name.into(), uid: "u".into() },
        };
        let tokens = &self.authenticator.tokens.service_accounts;
        let issued = tokens.issue(account, &[], HOUR, at(NOW)).unwrap();
        String::from_utf8(issued.token.expose().to_vec()).unwrap()
    }

    fn local_token(&self) -> String {
        let groups = vec!["unix".to_owned()];
        let user = User { name: "unix:alice".into(), groups, ..User::default() };
        let local = self.authenticator.tokens.local.as_ref().unwrap();
        let credential = local.issue(&user, at(NOW)).unwrap().credential;
        let value: Value = serde_json::from_slice(credential.expose()).unwrap();
        value["status"]["token"].as_str().unwrap().to_owned()
    }

    fn ask(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Authenticated, AuthnError> {
        self.authenticator.authenticate(peer, headers, path, at(NOW))
    }
}

fn chain(issued: &Issued) -> Vec<CertificateDer<'static>> {
    vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()]
}

fn bearer(token: &str) -> HeaderMap {
    authorization(&format!("Bearer {token}"))
}

fn authorization(value: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
}

#[track_caller]
fn check(found: Result<Authenticated, AuthnError>, name: &str, groups: &[&str], via: Via) {
    let found = found.unwrap();
    assert_eq!((found.user.name.as_str(), found.via), (name, via));
    assert_eq!(found.user.groups, groups);
}

#[test]
fn every_kind_of_credential_names_its_user() {
    let world = World::new();
    let none = HeaderMap::new();
    check(
        world.ask(&world.peer("alice", &["dev"]), &none, "/api"),
        "alice",
        &["dev", "system:authenticated"],
        Via::ClientCertificate,
    );
    check(
        world.ask(&Peer::Unknown, &bearer(STATIC), "/api"),
        "bob",
        &["dev", "ops", "system:authenticated"],
        Via::TokenFile,
    );
    check(
        world.ask(&Peer::Unknown, &bearer(&world.service_account_token("robot")), "/api"),
        "system:serviceaccount:ns:robot",
        &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
        Via::ServiceAccountToken,
    );
    check(
        world.ask(&Peer::Unknown, &bearer(&world.local_token()), "/api"),
        "unix:alice",
        &["unix", "system:authenticated"],
        Via::LocalToken,
    );
}

#[test]
fn without_credentials_only_probes_are_answered() {
    let mut world = World::new();
    let none = HeaderMap::new();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        let found = world.ask(&Peer::Unknown, &none, path);
        check(found, "system:anonymous", &["system:unauthenticated"], Via::Anonymous);
    }
    for path in ["/", "/api", "/healthz/", "/livez/etcd", "/version/x", ""] {
        assert_eq!(world.ask(&Peer::Unknown, &none, path), Err(AuthnError::NoCredentials));
    }
    world.authenticator.anonymous = Anonymous::Everywhere;
    assert!(world.ask(&Peer::Unknown, &none, "/api").is_ok());
    world.authenticator.anonymous = Anonymous::Never;
    assert!(world.ask(&Peer::Unknown, &none, "/healthz").is_err());
}

#[test]
fn wrong_credentials_never_make_a_request_anonymous() {
    let world = World::new();
    let expired = world.authenticator.authenticate(
        &Peer::Unknown,
        &bearer(&world.local_token()),
        "/healthz",
        at(NOW + 3600),
    );
    assert!(expired.is_err());
    for token in ["x", "a.b.c", "static-canary-77ab", &world.service_account_token("nobody")] {
        assert!(world.ask(&Peer::Unknown, &bearer(token), "/healthz").is_err(), "{token}");
    }
    let other = World::new();
    let foreign = world.authenticator.peer(
        &chain(&other.pki.issue_client("admin", &["system:masters"], HOUR, at(NOW)).unwrap()),
        at(NOW),
    );
    let error = world.ask(&foreign, &HeaderMap::new(), "/healthz").unwrap_err();
    assert_eq!(
        Chain(&error).to_string(),
        "invalid client certificate: x509: certificate signed by unknown authority"
    );
    // A good token makes up for it, as upstream.
    assert!(world.ask(&foreign, &bearer(STATIC), "/api").is_ok());
}

#[test]
fn a_certificate_that_ends_during_a_connection_ends_its_requests() {
    let world = World::new();
    let peer = world.peer("alice", &[]);
    let ask =
        |second| world.authenticator.authenticate(&peer, &HeaderMap::new(), "/healthz", at(second));
    assert!(ask(NOW + 3600).is_ok());
    assert!(matches!(
        ask(NOW + 3601),
        Err(AuthnError::Certificate(CertificateFault::Expired { .. }))
    ));
}

#[test]
fn other_schemes_are_no_credentials() {
    let world = World::new();
    for value in ["", "Bearer", "Bearer ", "Basic Ym9iOmJvYg==", STATIC] {
        let found = world.ask(&Peer::Unknown, &authorization(value), "/version").unwrap();
        assert_eq!(found.via, Via::Anonymous, "{value:?}");
    }
    for value in [format!("bearer {STATIC}"), format!("BEARER   {STATIC} ")] {
        assert!(world.ask(&Peer::Unknown, &authorization(&value), "/api").is_ok());
    }
}

#[test]
fn only_trusted_proxies_speak_for_others_op_11() {
    let world = World::new().with_proxy();
    let proxy = world.peer("front-proxy-client", &[]);
    let alice = world.peer("alice", &[]);
    assert!(proxy.is_trusted_proxy(at(NOW)) && !proxy.is_trusted_proxy(at(NOW + 3601)));
    assert!(!alice.is_trusted_proxy(at(NOW)) && !Peer::Unknown.is_trusted_proxy(at(NOW)));
    let mut headers = HeaderMap::new();
    headers.insert("x-remote-user", HeaderValue::from_static("carol"));
    headers.insert("x-remote-group", HeaderValue::from_static("dev"));
    let groups = &["dev", "system:authenticated"];
    check(world.ask(&proxy, &headers, "/api"), "carol", groups, Via::FrontProxy);
    let found = world.ask(&alice, &headers, "/api");
    check(found, "alice", &["system:authenticated"], Via::ClientCertificate);
    assert!(world.ask(&Peer::Unknown, &headers, "/api").is_err());
    // The proxy itself is nobody.
    assert!(world.ask(&proxy, &HeaderMap::new(), "/api").is_err());
    headers.insert("x-remote-user", HeaderValue::from_static("system:anonymous"));
    check(world.ask(&proxy, &headers, "/api"), "system:anonymous", &["dev"], Via::FrontProxy);
}

#[test]
fn the_generated_front_proxy_authority_vouches_for_no_client() {
    let world = World::new();
    let peer = world.peer("front-proxy-client", &[]);
    assert!(!peer.is_trusted_proxy(at(NOW)));
    assert!(matches!(peer, Peer::Client(_)));
}

#[test]
fn no_token_is_printed() {
    let world = World::new();
    let good = world.service_account_token("robot");
    let mut parts: Vec<_> = good.split('.').collect();
    let nobody = world.service_account_token("nobody");
    let other = nobody.split('.').nth(1).unwrap().to_owned();
    parts[1] = &other;
    let tampered = parts.join(".");
    for token in [tampered.as_str(), &nobody, "canary-0123456789abcdef", "canary.0123.456789"] {
        let error = world.ask(&Peer::Unknown, &bearer(token), "/api").unwrap_err();
        let text = format!("{} {error:?}", Chain(&error));
        for part in token.split('.') {
            assert!(!text.contains(part), "{text}");
        }
    }
    let found = world.ask(&Peer::Unknown, &bearer(&good), "/api").unwrap();
    assert!(!format!("{found:?}").contains(good.split('.').nth(2).unwrap()));
}

#[test]
fn token_reviews_say_who_has_a_token() {
    let world = World::new();
    let tokens = &world.authenticator.tokens;
    let review = |spec: Value| token_review(tokens, json!({ "spec": spec }), at(NOW));
    let status = |spec: Value| review(spec).unwrap()["status"].take();
    assert_eq!(
        review(json!({"token": STATIC})).unwrap(),
        json!({
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"},
            "spec": {"token": STATIC},
            "status": {
                "authenticated": true,
                "user": {
                    "username": "bob",
                    "uid": "7",
                    "groups": ["dev", "ops", "system:authenticated"],
                },
                "audiences": ["api"],
            },
        })
    );
    let robot = world.service_account_token("robot");
    let found = status(json!({"token": robot, "audiences": ["api", "x"]}));
    assert_eq!(found["user"]["username"], "system:serviceaccount:ns:robot");
    assert_eq!(found["audiences"], json!(["api"]));
    for token in [robot.as_str(), STATIC, &world.local_token()] {
        assert_eq!(
            status(json!({"token": token, "audiences": ["vault"]})),
            json!({
                "user": {},
                "error": "[invalid bearer token, token audiences [\"api\"] is invalid for the \
                    target audiences [\"vault\"]]",
            })
        );
    }
    assert_eq!(
        status(json!({"token": "nope"}))["error"],
        "[invalid bearer token, token is malformed]"
    );
}

#[test]
fn reviews_that_cannot_be_read_are_refused() {
    let world = World::new();
    let check = |body: Value, expected: ReviewError| {
        let found = token_review(&world.authenticator.tokens, body, at(NOW));
        assert_eq!(found.unwrap_err(), expected);
    };
    for body in [json!({}), json!(null), json!([]), json!({"spec": {"token": ""}})] {
        check(body, ReviewError::NoToken);
    }
    check(json!({"spec": {"token": "t", "audiences": "api"}}), ReviewError::Audiences);
    let user = User::default();
    let found = self_subject_review(&user, json!(3), at(NOW));
    assert_eq!(found.unwrap_err(), ReviewError::NotAnObject);
}

#[test]
fn self_subject_reviews_say_who_asks() {
    let user = User {
        name: "alice".into(),
        groups: vec!["dev".into()],
        extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
        ..User::default()
    };
    let body = json!({"apiVersion": "authentication.k8s.io/v1beta1", "metadata": null});
    assert_eq!(
        self_subject_review(&user, body, at(NOW)).unwrap(),
        json!({
            "kind": "SelfSubjectReview",
            "apiVersion": "authentication.k8s.io/v1beta1",
            "metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"},
            "status": {
                "userInfo": {"username": "alice", "groups": ["dev"], "extra": {"k": ["v"]}},
            },
        })
    );
}
