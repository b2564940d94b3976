//! The aws driver against two servers that check its signatures. Ministack also checks who may assume a role, which
//! resources it opens and what time it is.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use waybill_csi::{
    driver::{Call, Driver, FailureKind},
    drivers::aws::Aws,
};
use waybill_testkit::aws::{AwsServer, Make, REGION};

use crate::{
    account::{Issuer, failure, only, pod, query, values},
    conformance::{all_passed, judge_driver},
};

/// The password of all secrets, for which errors are searched.
const PASSWORD: &str = "s3cr3t-canary";

const ISSUER: &str = "kubernetes.default.svc";

struct Lab {
    server: AwsServer,
    issuer: Issuer,
    role: String,
}

impl Lab {
    /// `None` if this machine has no such server.
    fn start(make: Make) -> Option<Self> {
        let server = AwsServer::start(make)?;
        let db = json!({"user": "shop", "password": PASSWORD, "port": 5432}).to_string();
        let answers = server.calls(&json!([
            ["iam", "create_open_id_connect_provider",
                {"Url": format!("https://{ISSUER}"), "ClientIDList": ["sts.amazonaws.com"]}],
            ["iam", "create_role", {"RoleName": "web", "AssumeRolePolicyDocument": trust().to_string()}],
            ["iam", "put_role_policy",
                {"RoleName": "web", "PolicyName": "read", "PolicyDocument": rights(make).to_string()}],
            ["secretsmanager", "create_secret", {"Name": "app/db", "SecretString": db}],
            ["secretsmanager", "create_secret", {"Name": "app/token", "SecretString": "first"}],
            ["secretsmanager", "put_secret_value", {"SecretId": "app/token", "SecretString": "second"}],
            ["secretsmanager", "create_secret", {"Name": "other/db", "SecretString": db}],
            ["ssm", "put_parameter", {"Name": "/app/url", "Value": "u1", "Type": "String"}],
            ["ssm", "put_parameter",
                {"Name": "/app/url", "Value": "u2", "Type": "String", "Overwrite": true}],
            ["ssm", "put_parameter", {"Name": "/app/key", "Value": PASSWORD, "Type": "SecureString"}],
            ["ssm", "put_parameter", {"Name": "/other/key", "Value": PASSWORD, "Type": "String"}],
        ]));
        let role = answers[1]["Role"]["Arn"].as_str().unwrap().to_owned();
        Some(Self { server, issuer: Issuer::new(), role })
    }

    fn call(&self, account: &str, more: &[(&str, &str)]) -> Call {
        let mut parameters = vec![
            ("roleArn", self.role.as_str()),
            ("region", REGION),
            ("endpoint", self.server.address()),
        ];
        parameters.extend_from_slice(more);
        self.issuer.call(pod(account), "sts.amazonaws.com", &parameters)
    }
}

fn trust() -> Value {
    json!({"Version": "2012-10-17", "Statement": [{
        "Effect": "Allow",
        "Principal": {"Federated": format!("arn:aws:iam::000000000000:oidc-provider/{ISSUER}")},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": {format!("{ISSUER}:sub"): "system:serviceaccount:shop:web"}},
    }]})
}

fn rights(make: Make) -> Value {
    let secrets = match make {
        Make::Ministack => "arn:aws:secretsmanager:*:*:secret:app/*",
        Make::Moto => "*",
    };
    json!({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": "secretsmanager:BatchGetSecretValue", "Resource": "*"},
        {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secrets},
        // Neither server looks at the names of several parameters.
        {"Effect": "Allow", "Action": "ssm:GetParameters", "Resource": "*"},
    ]})
}

#[expect(clippy::disallowed_methods, reason = "the server compares signatures with its clock")]
fn aws(address: &str) -> Aws {
    Aws::new(SystemTime::now).at(only(address))
}

#[tokio::test]
async fn secrets_and_parameters_are_read_whole_by_field_and_by_version() {
    let Some(lab) = Lab::start(Make::Ministack) else { return };
    read_all(&lab).await;
}

async fn read_all(lab: &Lab) {
    lab.server.check_after_log_in();
    let mut expected = vec![
        (query("secretsmanager/app/db", &[("field", "password")]), PASSWORD),
        (query("secretsmanager/app/db", &[("field", "port")]), "5432"),
        (query("secretsmanager/app/token", &[]), "second"),
        (query("secretsmanager/app/token", &[("versionStage", "AWSPREVIOUS")]), "first"),
        (query("ssm/app/url", &[]), "u2"),
        (query("ssm/app/key", &[]), PASSWORD),
    ];
    // Moto does not say which version of a parameter it gives, as AWS does.
    if lab.server.make() == Make::Ministack {
        expected.push((query("ssm/app/url", &[("version", "1")]), "u1"));
    }
    let (queries, expected): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
    assert_eq!(
        values(aws(lab.server.address()).fetch(&lab.call("web", &[]), &queries).await),
        expected
    );
}

/// CSI-44, CSI-49
#[tokio::test]
async fn what_fails_fails_alone_and_no_text_holds_a_value_csi_44_csi_49() {
    let Some(lab) = Lab::start(Make::Ministack) else { return };
    fail_alone(&lab).await;
}

async fn fail_alone(lab: &Lab) {
    lab.server.check_after_log_in();
    let queries = [
        query("secretsmanager/app/token", &[]),
        query("secretsmanager/other/db", &[]),
        query("secretsmanager/app/none", &[]),
        query("secretsmanager/app/db", &[("field", "pasword")]),
        query("secretsmanager/app/token", &[("field", "password")]),
        query("secretsmanager/app/token", &[("versionId", "00000000-0000-0000-0000-000000000000")]),
        query("ssm/app/none", &[]),
        query("s3/bucket", &[]),
        query("ssm/app/url", &[]),
    ];
    let answers = aws(lab.server.address()).fetch(&lab.call("web", &[]), &queries).await.unwrap();
    let kinds: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().err().map(|error| error.kind)).collect();
    let expected = [
        None,
        (lab.server.make() == Make::Ministack).then_some(FailureKind::Denied),
        Some(FailureKind::NotFound),
        Some(FailureKind::NotFound),
        Some(FailureKind::Invalid),
        Some(FailureKind::NotFound),
        Some(FailureKind::NotFound),
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
    let Some(lab) = Lab::start(Make::Ministack) else { return };
    let (aws, queries) = (aws(lab.server.address()), [query("secretsmanager/app/token", &[])]);
    let (kind, text) = failure(aws.fetch(&lab.call("intruder", &[]), &queries).await);
    assert_eq!(kind, FailureKind::Denied, "{text}");
    assert!(text.contains("web identity"), "{text}");
    assert_eq!(values(aws.fetch(&lab.call("web", &[]), &queries).await), ["second"]);
    let intruder = aws.fetch(&lab.call("intruder", &[]), &queries).await;
    assert_eq!(failure(intruder).0, FailureKind::Denied);
    let other = lab.call("web", &[("audience", "other")]);
    assert_eq!(failure(aws.fetch(&other, &queries).await).0, FailureKind::Invalid);
}

#[tokio::test]
async fn a_role_without_batches_reads_one_by_one() {
    let Some(lab) = Lab::start(Make::Ministack) else { return };
    read_one_by_one(&lab).await;
}

async fn read_one_by_one(lab: &Lab) {
    let mut rights = rights(lab.server.make());
    rights["Statement"].as_array_mut().unwrap().remove(0);
    lab.server.calls(&json!([["iam", "put_role_policy",
        {"RoleName": "web", "PolicyName": "read", "PolicyDocument": rights.to_string()}]]));
    lab.server.check_after_log_in();
    let keys = ["secretsmanager/app/token", "secretsmanager/app/db"];
    let queries = [query(keys[0], &[]), query(keys[1], &[("field", "user")])];
    assert_eq!(
        values(aws(lab.server.address()).fetch(&lab.call("web", &[]), &queries).await),
        ["second", "shop"]
    );
}

#[tokio::test]
async fn rights_that_change_count_at_once() {
    let Some(lab) = Lab::start(Make::Ministack) else { return };
    let (aws, call) = (aws(lab.server.address()), lab.call("web", &[]));
    let queries = [query("secretsmanager/app/token", &[])];
    assert_eq!(values(aws.fetch(&call, &queries).await), ["second"]);
    lab.server
        .calls(&json!([["iam", "delete_role_policy", {"RoleName": "web", "PolicyName": "read"}]]));
    assert_eq!(failure(aws.fetch(&call, &queries).await).0, FailureKind::Denied);
}

#[tokio::test]
async fn a_wrong_clock_is_refused_as_a_wrong_signature() {
    let Some(lab) = Lab::start(Make::Ministack) else { return };
    let aws = Aws::new(|| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .at(only(lab.server.address()));
    let queries = [query("secretsmanager/app/token", &[])];
    assert_eq!(failure(aws.fetch(&lab.call("web", &[]), &queries).await).0, FailureKind::Denied);
}

/// CSI-44
#[tokio::test]
async fn a_service_that_is_not_there_is_tried_again_csi_44() {
    let call = Issuer::new().call(
        pod("web"),
        "sts.amazonaws.com",
        &[
            ("roleArn", "arn:aws:iam::000000000000:role/web"),
            ("region", REGION),
            ("endpoint", "http://127.0.0.1:1"),
        ],
    );
    let answers = aws("http://127.0.0.1:1").fetch(&call, &[query("ssm/app/url", &[])]).await;
    assert_eq!(failure(answers).0, FailureKind::Unavailable);
}

/// CSI-50
#[tokio::test]
async fn it_passes_every_case_csi_50() {
    let Some(lab) = Lab::start(Make::Ministack) else { return };
    pass_every_case(&lab).await;
}

async fn pass_every_case(lab: &Lab) {
    lab.server.check_after_log_in();
    let keys = ["secretsmanager/app/db?field=password", "ssm/app/url"];
    all_passed(&judge_driver(aws(lab.server.address()), &lab.call("web", &[]), &keys).await);
}

/// CSI-50
#[tokio::test]
async fn a_second_server_is_of_the_same_opinion_csi_50() {
    let Some(lab) = Lab::start(Make::Moto) else { return };
    read_all(&lab).await;
    fail_alone(&lab).await;
    pass_every_case(&lab).await;
    read_one_by_one(&lab).await;

    // It did look: without the policy there is nothing to read.
    lab.server
        .calls(&json!([["iam", "delete_role_policy", {"RoleName": "web", "PolicyName": "read"}]]));
    lab.server.check_after_log_in();
    failure(
        aws(lab.server.address()).fetch(&lab.call("web", &[]), &[query("ssm/app/url", &[])]).await,
    );
}
