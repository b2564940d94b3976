//! The vault driver against real OpenBao, with JWT auth.
//!
//! Kubernetes auth against our own API server is tested where the binary is.

use std::time::Duration;

use serde_json::json;
use waybill_csi::{
    driver::{Call, Driver, FailureKind, Query},
    drivers::vault::Vault,
    http::AllowedAddresses,
};
use waybill_testkit::openbao::OpenBao;

use crate::{
    account::{Issuer, failure, only, pod, query, values},
    conformance::{all_passed, judge_driver},
};

/// The password of all secrets, for which errors are searched.
const PASSWORD: &str = "s3cr3t-canary";

/// A server with secrets in both layouts, and a role for the account `web`.
struct Lab {
    bao: OpenBao,
    issuer: Issuer,
    address: String,
    ca: String,
}

impl Lab {
    /// `None` if this machine has no OpenBao.
    fn start() -> Option<Self> {
        let (bao, issuer) = (OpenBao::start()?, Issuer::new());
        bao.line("secrets enable -version=1 -path=kv1 kv");
        bao.line("auth enable jwt");
        bao.write("auth/jwt/config", &json!({"jwt_validation_pubkeys": issuer.public_pem()}));
        let policy = r#"path "secret/data/app/*" { capabilities = ["read"] }
            path "kv1/app/*" { capabilities = ["read"] }"#;
        bao.write("sys/policies/acl/web", &json!({"policy": policy}));
        bao.write("auth/jwt/role/web", &role("service"));
        let db = json!({"user": "shop", "password": PASSWORD, "port": 5432});
        bao.write("secret/data/app/db", &json!({"data": db}));
        bao.write("secret/data/other/db", &json!({"data": db}));
        bao.write("kv1/app/db", &db);
        let (address, ca) = (bao.address().to_owned(), bao.ca_bundle());
        Some(Self { bao, issuer, address, ca })
    }

    fn call(&self, account: &str, more: &[(&str, &str)]) -> Call {
        let mut parameters = vec![
            ("vaultAddr", self.address.as_str()),
            ("vaultRole", "web"),
            ("vaultAuthPath", "jwt"),
            ("caBundle", self.ca.as_str()),
        ];
        parameters.extend_from_slice(more);
        self.issuer.call(pod(account), "vault", &parameters)
    }

    /// It is on this machine, which drivers leave alone unless they are told.
    fn driver(&self) -> Vault {
        Vault::new().at(only(&self.address))
    }

    fn revocations(&self) -> usize {
        self.bao.requests("update", "auth/token/revoke-self")
    }

    /// How many logins the server would take.
    fn valid_logins(&self) -> usize {
        let accessors = self.bao.line("list -format=json auth/token/accessors");
        let accessors: Vec<String> = serde_json::from_str(&accessors).unwrap();
        // One is that of root.
        accessors.len() - 1
    }

    fn logins(&self) -> usize {
        self.bao.requests("update", "auth/jwt/login")
    }

    fn reads(&self) -> usize {
        self.bao.requests("read", "secret/data/app/db")
    }
}

fn role(token_type: &str) -> serde_json::Value {
    json!({
        "role_type": "jwt",
        "bound_audiences": ["vault"],
        "bound_subject": "system:serviceaccount:shop:web",
        "user_claim": "sub",
        "token_policies": ["web"],
        "token_ttl": "1h",
        "token_type": token_type,
    })
}

fn field(key: &str, name: &str) -> Query {
    query(key, &[("field", name)])
}

/// Makes the driver believe that time has passed; the server knows better.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// CSI-23
#[tokio::test]
async fn ten_variables_of_one_secret_are_one_login_and_one_read_csi_23() {
    let Some(lab) = Lab::start() else { return };
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let mut queries = vec![field("secret/data/app/db", "password"); 9];
    queries.push(field("secret/data/app/db", "port"));
    let mut expected = vec![PASSWORD; 9];
    expected.push("5432");
    assert_eq!(values(vault.fetch(&call, &queries).await), expected);
    assert_eq!((lab.logins(), lab.reads()), (1, 1));

    // The next container of the pod needs no other login.
    assert_eq!(values(vault.fetch(&call, &queries[..1]).await), [PASSWORD]);
    assert_eq!((lab.logins(), lab.reads()), (1, 2));
}

/// CSI-46: whoever reaches the socket can say any name.
#[tokio::test]
async fn a_login_serves_only_the_token_that_it_was_made_with_csi_46() {
    let Some(lab) = Lab::start() else { return };
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let queries = [field("secret/data/app/db", "password")];
    assert_eq!(values(vault.fetch(&call, &queries).await), [PASSWORD]);
    let mut forged = lab.call("web", &[]);
    for token in forged.tokens.values_mut() {
        token.token = b"garbage".to_vec().into();
    }
    let (kind, text) = failure(vault.fetch(&forged, &queries).await);
    assert_eq!(kind, FailureKind::Denied, "{text}");
    assert_eq!(lab.reads(), 1);
    // Another pod of the account logs in itself.
    assert_eq!(values(vault.fetch(&lab.call("web", &[]), &queries).await), [PASSWORD]);
    assert_eq!((lab.logins(), lab.reads()), (3, 2), "with the one that was refused");
}

/// CSI-46: a login that nobody knows any more must not stay valid.
#[tokio::test]
async fn logins_are_given_back_when_the_driver_stops_csi_46() {
    let Some(lab) = Lab::start() else { return };
    let vault = lab.driver();
    let queries = [field("secret/data/app/db", "password")];
    for _ in 0..3 {
        assert_eq!(values(vault.fetch(&lab.call("web", &[]), &queries).await), [PASSWORD]);
    }
    // The server gives back a token of its own when it starts.
    let before = lab.revocations();
    assert_eq!((lab.logins(), lab.valid_logins()), (3, 3));
    vault.release().await;
    assert_eq!((lab.revocations() - before, lab.valid_logins()), (3, 0));
    vault.release().await;
    assert_eq!(lab.revocations() - before, 3, "each once");
}

/// CSI-46: what is denied for good is no reason for a login each time, and none is left behind.
#[tokio::test]
async fn what_stays_denied_makes_few_logins_csi_46() {
    let Some(lab) = Lab::start() else { return };
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let denied = [field("secret/data/other/db", "password")];
    for _ in 0..5 {
        let answers = vault.fetch(&call, &denied).await.unwrap();
        let kind = answers[0].as_ref().err().map(|error| error.kind);
        assert_eq!(kind, Some(FailureKind::Denied));
    }
    assert_eq!(lab.logins(), 2);
}

/// CSI-46: no class sends a pod's token where the owner of the node does not want it.
#[tokio::test]
async fn tokens_go_only_to_addresses_that_are_allowed_csi_46() {
    let Some(lab) = Lab::start() else { return };
    let queries = [field("secret/data/app/db", "password")];
    let allowed = AllowedAddresses::only(["https://vault.example.com:8200"]).unwrap();
    let (kind, text) =
        failure(Vault::new().at(allowed).fetch(&lab.call("web", &[]), &queries).await);
    assert_eq!(kind, FailureKind::Denied);
    assert!(text.contains("this driver sends nothing to http"), "{text}");
    // Nobody named any: the server is on this machine, whatever its name.
    let port = lab.address.rsplit_once(':').unwrap().1;
    for host in ["127.0.0.1", "localhost"] {
        let here = lab.call("web", &[("vaultAddr", &format!("https://{host}:{port}"))]);
        let (kind, text) = failure(Vault::new().fetch(&here, &queries).await);
        assert_eq!(kind, FailureKind::Denied, "{host}: {text}");
        assert!(text.contains("this machine or its link"), "{host}: {text}");
    }
    assert_eq!((lab.logins(), lab.reads()), (0, 0));
}

#[tokio::test]
async fn both_versions_of_kv_are_read_and_old_versions_of_the_second() {
    let Some(lab) = Lab::start() else { return };
    lab.bao.write("secret/data/app/db", &json!({"data": {"password": "newer"}}));
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let old = query("secret/data/app/db", &[("field", "user"), ("version", "1")]);
    let queries = [field("kv1/app/db", "user"), query("secret/data/app/db", &[]), old];
    assert_eq!(values(vault.fetch(&call, &queries).await), ["shop", "newer", "shop"]);

    let absent = query("secret/data/app/db", &[("version", "7")]);
    let (kind, text) = failure(vault.fetch(&call, &[absent]).await);
    assert_eq!(kind, FailureKind::NotFound);
    assert_eq!(text, "Vault has no secret at secret/data/app/db in version 7");
    lab.bao.line("kv delete secret/app/db");
    let (kind, _) = failure(vault.fetch(&call, &[query("secret/data/app/db", &[])]).await);
    assert_eq!(kind, FailureKind::NotFound);
}

/// CSI-44, CSI-49
#[tokio::test]
async fn what_fails_fails_alone_and_no_text_holds_a_value_csi_44_csi_49() {
    let Some(lab) = Lab::start() else { return };
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let queries = [
        field("kv1/app/db", "user"),
        field("secret/data/other/db", "password"),
        field("secret/data/app/none", "password"),
        field("secret/data/app/db", "pasword"),
        query("secret/data/app/db", &[]),
        field("secret/data/app/../other/db", "password"),
        field("auth/token/lookup-self", "id"),
        query("secret/data/app/db", &[("vaultRole", "admin")]),
        query("secret/data/app/db", &[("fields", "password")]),
        query("secret/data/app/db", &[("vaultRole", "web"), ("field", "user")]),
    ];
    let answers = vault.fetch(&call, &queries).await.unwrap();
    let kind = |answer: &Result<_, waybill_csi::driver::FetchError>| {
        answer.as_ref().err().map(|error| error.kind)
    };
    let kinds: Vec<_> = answers.iter().map(kind).collect();
    let expected = [
        None,
        Some(FailureKind::Denied),
        Some(FailureKind::NotFound),
        Some(FailureKind::NotFound),
        Some(FailureKind::Invalid),
        Some(FailureKind::Invalid),
        Some(FailureKind::Denied),
        Some(FailureKind::Denied),
        Some(FailureKind::Invalid),
        None,
    ];
    assert_eq!(kinds, expected);
    for error in answers.into_iter().filter_map(Result::err) {
        assert!(!error.message.contains(PASSWORD), "{error}");
    }
}

/// CSI-46
#[tokio::test]
async fn the_backend_decides_by_the_token_of_the_pod_csi_46() {
    let Some(lab) = Lab::start() else { return };
    let (vault, queries) = (lab.driver(), [field("kv1/app/db", "user")]);
    let (kind, text) = failure(vault.fetch(&lab.call("intruder", &[]), &queries).await);
    assert_eq!(kind, FailureKind::Denied);
    assert!(text.contains("refused the login as role \"web\" at auth/jwt"), "{text}");

    let forged = Issuer::new().call(pod("web"), "vault", &[]);
    let forged = Call { tokens: forged.tokens, ..lab.call("web", &[]) };
    assert_eq!(failure(vault.fetch(&forged, &queries).await).0, FailureKind::Denied);

    // The login of one account is not that of another.
    assert_eq!(values(vault.fetch(&lab.call("web", &[]), &queries).await), ["shop"]);
    let intruder = vault.fetch(&lab.call("intruder", &[]), &queries).await;
    assert_eq!(failure(intruder).0, FailureKind::Denied);

    let other = lab.call("web", &[("audience", "other")]);
    let (kind, text) = failure(vault.fetch(&other, &queries).await);
    assert_eq!(kind, FailureKind::Invalid);
    assert!(text.contains("tokenRequests"), "{text}");
}

#[tokio::test]
async fn a_login_is_prolonged_in_time_and_made_again_when_it_was_revoked() {
    let Some(lab) = Lab::start() else { return };
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let queries = [field("kv1/app/db", "user")];
    let renewals = || lab.bao.requests("update", "auth/token/renew-self");
    assert_eq!(values(vault.fetch(&call, &queries).await), ["shop"]);
    pass(Duration::from_secs(45 * 60)).await;
    assert_eq!(values(vault.fetch(&call, &queries).await), ["shop"]);
    assert_eq!((lab.logins(), renewals()), (1, 1));

    lab.bao.line("lease revoke -prefix -sync auth/jwt");
    assert_eq!(values(vault.fetch(&call, &queries).await), ["shop"]);
    assert_eq!((lab.logins(), renewals()), (2, 1));

    // What has ended is not prolonged.
    pass(Duration::from_secs(2 * 3600)).await;
    assert_eq!(values(vault.fetch(&call, &queries).await), ["shop"]);
    assert_eq!((lab.logins(), renewals()), (3, 1));
}

#[tokio::test]
async fn a_login_that_cannot_be_prolonged_is_replaced() {
    let Some(lab) = Lab::start() else { return };
    lab.bao.write("auth/jwt/role/web", &role("batch"));
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let queries = [field("kv1/app/db", "user")];
    assert_eq!(values(vault.fetch(&call, &queries).await), ["shop"]);
    pass(Duration::from_secs(45 * 60)).await;
    assert_eq!(values(vault.fetch(&call, &queries).await), ["shop"]);
    assert_eq!((lab.logins(), lab.bao.requests("update", "auth/token/renew-self")), (2, 0));
}

#[tokio::test]
async fn containers_that_start_together_share_one_login() {
    let Some(lab) = Lab::start() else { return };
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    let queries = [field("kv1/app/db", "user")];
    let fetches = (0..20).map(|_| vault.fetch(&call, &queries));
    for answers in futures_util::future::join_all(fetches).await {
        assert_eq!(values(answers), ["shop"]);
    }
    assert_eq!(lab.logins(), 1);
}

#[tokio::test]
async fn a_namespace_of_the_backend_is_a_world_of_its_own() {
    let Some(lab) = Lab::start() else { return };
    lab.bao.line("namespace create team");
    lab.bao.line("auth enable -namespace team jwt");
    lab.bao.line("secrets enable -namespace team -version=2 -path=secret kv");
    let keys = json!({"jwt_validation_pubkeys": lab.issuer.public_pem()});
    lab.bao.write_in("team", "auth/jwt/config", &keys);
    lab.bao.write_in("team", "auth/jwt/role/web", &role("service"));
    let policy = json!({"policy": r#"path "secret/data/*" { capabilities = ["read"] }"#});
    lab.bao.write_in("team", "sys/policies/acl/web", &policy);
    lab.bao.write_in("team", "secret/data/app/db", &json!({"data": {"user": "team's"}}));
    let (vault, queries) = (lab.driver(), [field("secret/data/app/db", "user")]);
    let inside = lab.call("web", &[("vaultNamespace", "team/")]);
    assert_eq!(values(vault.fetch(&inside, &queries).await), ["team's"]);
    assert_eq!(values(vault.fetch(&lab.call("web", &[]), &queries).await), ["shop"]);
}

/// CSI-49: an attack. A namespace in front of a path leads to the login of the pod, which every policy lets it
/// look up.
#[tokio::test]
async fn no_path_gives_a_pod_its_login_csi_49() {
    let Some(lab) = Lab::start() else { return };
    lab.bao.line("namespace create child");
    lab.bao.write("secret/data/app/auth/db", &json!({"data": {"user": "auth's"}}));
    let (vault, call) = (lab.driver(), lab.call("web", &[]));
    for key in
        ["auth/token/lookup-self", "child/auth/token/lookup-self", "child/sys/internal/ui/mounts"]
    {
        let (kind, text) = failure(vault.fetch(&call, &[field(key, "id")]).await);
        assert_eq!(kind, FailureKind::Denied, "{key}: {text}");
    }
    // The word alone is no harm.
    let harmless = [field("secret/data/app/auth/db", "user")];
    assert_eq!(values(vault.fetch(&call, &harmless).await), ["auth's"]);
}

/// CSI-44
#[tokio::test]
async fn a_backend_that_is_not_trusted_not_there_or_sealed_is_tried_again_csi_44() {
    let Some(lab) = Lab::start() else { return };
    let (vault, queries) = (lab.driver(), [field("kv1/app/db", "user")]);
    let stranger = Issuer::new();
    let mut untrusting = lab.call("web", &[]);
    untrusting.parameters.remove("caBundle");
    let (kind, text) = failure(vault.fetch(&untrusting, &queries).await);
    assert_eq!(kind, FailureKind::Unavailable, "{text}");
    assert!(text.starts_with("cannot connect to 127.0.0.1:"), "{text}");

    let nobody = lab.call("web", &[("vaultAddr", "https://127.0.0.1:1")]);
    let without = Vault::new().at(only("https://127.0.0.1:1"));
    assert_eq!(failure(without.fetch(&nobody, &queries).await).0, FailureKind::Unavailable);

    let bad = lab.call("web", &[("caBundle", &stranger.public_pem())]);
    let (kind, text) = failure(vault.fetch(&bad, &queries).await);
    assert_eq!(
        (kind, text.as_str()),
        (FailureKind::Invalid, "caBundle holds no certificate in PEM")
    );

    lab.bao.line("operator seal");
    let (kind, text) = failure(vault.fetch(&lab.call("web", &[]), &queries).await);
    assert_eq!(kind, FailureKind::Unavailable, "{text}");
}

/// CSI-50
#[tokio::test]
async fn it_passes_every_case_csi_50() {
    let Some(lab) = Lab::start() else { return };
    let keys = ["secret/data/app/db?field=password", "kv1/app/db?field=user"];
    all_passed(&judge_driver(lab.driver(), &lab.call("web", &[]), &keys).await);
}
