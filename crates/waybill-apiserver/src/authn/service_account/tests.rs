//! Which tokens are believed, and until when.

use std::collections::HashMap;

use super::*;

const NOW: i64 = 1_700_000_000;
const API: &str = "https://kubernetes.default.svc";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Objects by `kind/name`; every namespace is the same.
#[derive(Default)]
struct Cluster(HashMap<String, Existing>);

impl Cluster {
    fn full() -> Self {
        let keys = ["sa/robot", "pod/web", "secret/old", "node/n1"];
        let existing = |key: &str| Existing { uid: format!("{key}-uid"), deleted: None };
        Self(keys.iter().map(|key| ((*key).to_owned(), existing(key))).collect())
    }

    fn without(mut self, key: &str) -> Self {
        self.0.remove(key);
        self
    }

    fn reborn(mut self, key: &str) -> Self {
        self.0.get_mut(key).unwrap().uid = "other".to_owned();
        self
    }

    fn deleted(mut self, key: &str, second: i64) -> Self {
        self.0.get_mut(key).unwrap().deleted = Some(at(second));
        self
    }

    fn find(&self, kind: &str, name: &str) -> Option<Existing> {
        self.0.get(&format!("{kind}/{name}")).cloned()
    }
}

impl Objects for Cluster {
    fn service_account(&self, _: &str, name: &str) -> Option<Existing> {
        self.find("sa", name)
    }
    fn pod(&self, _: &str, name: &str) -> Option<ExistingPod> {
        let existing = self.find("pod", name)?;
        Some(ExistingPod { existing, service_account: "robot".into(), node: "n1".into() })
    }
    fn secret(&self, _: &str, name: &str) -> Option<Existing> {
        self.find("secret", name)
    }
    fn node(&self, name: &str) -> Option<Existing> {
        self.find("node", name)
    }
}

fn tokens() -> ServiceAccountTokens {
    let key = SigningKey::generate().unwrap();
    ServiceAccountTokens::new(API.to_owned(), vec![API.to_owned()], key, Vec::new())
}

fn reference(kind: &str, name: &str) -> Option<Reference> {
    Some(Reference { name: name.to_owned(), uid: format!("{kind}/{name}-uid") })
}

fn account() -> Binding {
    Binding {
        namespace: "ns".to_owned(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: reference("sa", "robot").unwrap(),
    }
}

fn pod_bound() -> Binding {
    Binding { pod: reference("pod", "web"), node: reference("node", "n1"), ..account() }
}

fn issue(tokens: &ServiceAccountTokens, binding: Binding, audiences: &[String]) -> String {
    let issued = tokens.issue(binding, audiences, Duration::from_secs(3600), at(NOW)).unwrap();
    assert_eq!(issued.expires, at(NOW + 3600));
    String::from_utf8(issued.token.expose().to_vec()).unwrap()
}

#[track_caller]
fn check(binding: Binding, cluster: &Cluster, second: i64, expected: Result<(), TokenError>) {
    let tokens = tokens();
    let token = issue(&tokens, binding, &[]);
    let audiences = tokens.audiences().to_vec();
    let expected = expected.map_err(|error| error.to_string());
    // Twice, since the second answer comes by way of the cache.
    for _ in 0..2 {
        let found = tokens.verify(&token, &audiences, cluster, at(second)).map(drop);
        assert_eq!(found.map_err(|error| error.to_string()), expected);
    }
}

#[test]
fn the_user_is_the_account_and_its_pod() {
    let tokens = tokens();
    let token = issue(&tokens, pod_bound(), &[]);
    let (user, audiences) =
        tokens.verify(&token, tokens.audiences(), &Cluster::full(), at(NOW)).unwrap();
    assert_eq!(*audiences, [API]);
    let mut user = User::clone(&user);
    let id = user.extra.remove("authentication.kubernetes.io/credential-id").unwrap();
    assert!(id[0].starts_with("JTI=") && id[0].len() == 40, "{id:?}");
    let extra = |key: &str, value: &str| {
        (format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()])
    };
    assert_eq!(
        user,
        User {
            name: "system:serviceaccount:ns:robot".into(),
            uid: "sa/robot-uid".into(),
            groups: vec![
                "system:serviceaccounts".into(),
                "system:serviceaccounts:ns".into(),
                "system:authenticated".into(),
            ],
            extra: BTreeMap::from([
                extra("pod-name", "web"),
                extra("pod-uid", "pod/web-uid"),
                extra("node-name", "n1"),
                extra("node-uid", "node/n1-uid"),
            ]),
        }
    );
}

#[test]
fn times_are_kept_to_the_second() {
    let cluster = Cluster::full();
    check(account(), &cluster, NOW + 3599, Ok(()));
    check(account(), &cluster, NOW + 3600, Err(TokenError::Expired));
    check(account(), &cluster, NOW + 3601, Err(TokenError::Expired));
    check(account(), &cluster, NOW - LEEWAY, Ok(()));
    check(account(), &cluster, NOW - LEEWAY - 1, Err(TokenError::NotYet));
}

#[test]
fn the_account_must_be_the_same_one() {
    let full = Cluster::full;
    check(
        account(),
        &full().without("sa/robot"),
        NOW,
        Err(TokenError::NoAccount { name: "robot".into() }),
    );
    check(
        account(),
        &full().reborn("sa/robot"),
        NOW,
        Err(TokenError::AccountUid { found: "other".into(), claimed: "sa/robot-uid".into() }),
    );
    let deleted = TokenError::AccountDeleted { namespace: "ns".into(), name: "robot".into() };
    check(account(), &full().deleted("sa/robot", NOW - 60), NOW, Ok(()));
    check(account(), &full().deleted("sa/robot", NOW - 61), NOW, Err(deleted));
}

#[test]
fn a_token_ends_with_what_it_is_bound_to() {
    let full = Cluster::full;
    let secret_bound = || Binding { secret: reference("secret", "old"), ..account() };
    let node_bound = || Binding { node: reference("node", "n1"), ..account() };
    for (binding, key) in
        [(pod_bound(), "pod/web"), (secret_bound(), "secret/old"), (node_bound(), "node/n1")]
    {
        let check = |cluster: &Cluster, expected| check(binding.clone(), cluster, NOW, expected);
        check(&full(), Ok(()));
        check(&full().without(key), Err(TokenError::Invalidated));
        check(&full().deleted(key, NOW + 30), Ok(()));
        check(&full().deleted(key, NOW - 60), Ok(()));
        check(&full().deleted(key, NOW - 61), Err(TokenError::Invalidated));
        let reborn = {
            let tokens = tokens();
            let token = issue(&tokens, binding.clone(), &[]);
            tokens.verify(&token, tokens.audiences(), &full().reborn(key), at(NOW)).unwrap_err()
        };
        let kind = key.split('/').next().unwrap();
        let text = format!(
            "{kind} UID (other) does not match service account {kind} ref claim ({key}-uid)"
        );
        assert_eq!(reborn.to_string(), text);
    }
    check(pod_bound(), &full().without("node/n1"), NOW, Ok(()));
}

#[test]
fn deleting_the_pod_ends_a_cached_token_at_once() {
    let tokens = tokens();
    let token = issue(&tokens, pod_bound(), &[]);
    let verify =
        |cluster: &Cluster| tokens.verify(&token, tokens.audiences(), cluster, at(NOW)).map(drop);
    assert_eq!(verify(&Cluster::full()), Ok(()));
    assert_eq!(verify(&Cluster::full().without("pod/web")), Err(TokenError::Invalidated));
}

#[test]
fn audience_and_issuer_must_be_ours() {
    let tokens = tokens();
    let vault = ["vault".to_owned(), "b".to_owned()];
    let token = issue(&tokens, account(), &vault);
    let cluster = Cluster::full();
    let error = tokens.verify(&token, tokens.audiences(), &cluster, at(NOW)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token audiences [\"vault\" \"b\"] is invalid for the target audiences \
            [\"https://kubernetes.default.svc\"]"
    );
    let (_, audiences) = tokens.verify(&token, &vault[..1], &cluster, at(NOW)).unwrap();
    assert_eq!(*audiences, ["vault"]);

    let key = SigningKey::generate().unwrap();
    let other = ServiceAccountTokens::new(
        "https://elsewhere".into(),
        vec![API.to_owned()],
        SigningKey::generate().unwrap(),
        vec![key.public().clone()],
    );
    let here = ServiceAccountTokens::new(API.to_owned(), vec![API.to_owned()], key, Vec::new());
    let token = issue(&here, account(), &[]);
    let error = other.verify(&token, other.audiences(), &cluster, at(NOW)).unwrap_err();
    assert_eq!(error.to_string(), "token issuer \"https://kubernetes.default.svc\" is invalid");
}

#[test]
fn a_subject_that_differs_from_the_binding_is_refused() {
    let tokens = tokens();
    let token = issue(&tokens, account(), &[]);
    let claims = tokens.verifier.claims(&token, at(NOW)).unwrap();
    let forged = Claims { sub: "system:serviceaccount:ns:admin".into(), ..(*claims).clone() };
    assert_eq!(forged.hold_at(at(NOW)), Err(TokenError::Subject));
}

#[test]
fn claims_read_as_upstream_writes_them() {
    let tokens = tokens();
    let token = issue(&tokens, pod_bound(), &[]);
    let mut claims =
        serde_json::to_value(&*tokens.verifier.claims(&token, at(NOW)).unwrap()).unwrap();
    claims["jti"] = "".into();
    assert_eq!(
        claims,
        serde_json::json!({
            "aud": [API],
            "exp": NOW + 3600,
            "iat": NOW,
            "iss": API,
            "jti": "",
            "kubernetes.io": {
                "namespace": "ns",
                "node": {"name": "n1", "uid": "node/n1-uid"},
                "pod": {"name": "web", "uid": "pod/web-uid"},
                "serviceaccount": {"name": "robot", "uid": "sa/robot-uid"},
            },
            "nbf": NOW,
            "sub": "system:serviceaccount:ns:robot",
        })
    );
    let one = serde_json::json!({"aud": "a", "exp": 1, "iat": 1, "iss": "i", "nbf": 1, "sub": "s",
        "kubernetes.io": {"namespace": "n", "serviceaccount": {"name": "x", "uid": "u"}}});
    assert_eq!(serde_json::from_value::<Claims>(one).unwrap().aud[..], ["a"]);
}
