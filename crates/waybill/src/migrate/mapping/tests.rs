//! Classes of each provider, as its documentation shows them.

use serde_json::json;

use super::*;

fn class(provider: &str, parameters: &Value) -> SyncedClass {
    let object = json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"provider": provider, "parameters": parameters},
    });
    SyncedClass::read(&object, "default").unwrap()
}

fn reference(key: &str, parameters: &[(&str, &str)]) -> Reference {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Reference { key: key.to_owned(), parameters: parameters.iter().map(pair).collect() }
}

#[track_caller]
fn check(mapping: &Mapping, object: &str, expected: Reference) {
    assert_eq!(mapping.objects.get(object), Some(&Ok(expected)), "{object}");
}

#[track_caller]
fn refused(mapping: &Mapping, object: &str, why: &str) {
    let found = mapping.objects.get(object).unwrap().as_ref().unwrap_err();
    assert!(found.contains(why), "{object}: {found}");
}

/// CSI-70
#[test]
fn vault_objects_become_paths_and_fields_csi_70() {
    let class = class(
        "vault",
        &json!({
            "vaultAddress": "https://vault.example:8200",
            "roleName": "app",
            "vaultNamespace": "team",
            "vaultKubernetesMountPath": "k8s",
            "vaultSkipTLSVerify": "true",
            "objects": "
- objectName: password
  secretPath: secret/data/db
  secretKey: password
- objectName: old
  secretPath: secret/data/db
  secretKey: password
  secretArgs: {version: 3}
- objectName: whole
  secretPath: secret/data/db
- objectName: cert
  secretPath: pki/issue/web
  secretKey: certificate
  method: PUT
- objectName: binary
  secretPath: secret/data/db
  secretKey: b
  encoding: base64
",
        }),
    );
    let mapping = map(&class, false).unwrap();
    assert_eq!(mapping.driver, "vault.csi.waybill.dev");
    let parameters = [
        ("vaultAddr", "https://vault.example:8200"),
        ("vaultAuthPath", "k8s"),
        ("vaultNamespace", "team"),
        ("vaultRole", "app"),
    ];
    assert_eq!(mapping.parameters, reference("", &parameters).parameters);
    check(&mapping, "password", reference("secret/data/db", &[("field", "password")]));
    let versioned = [("field", "password"), ("version", "3")];
    check(&mapping, "old", reference("secret/data/db", &versioned));
    refused(&mapping, "whole", "without secretKey");
    refused(&mapping, "cert", "read by PUT");
    refused(&mapping, "binary", "base64");
    assert!(mapping.notes.iter().any(|it| it.starts_with("vaultSkipTLSVerify has no counterpart")));
}

/// CSI-70
#[test]
fn aws_objects_become_secrets_parameters_and_fields_csi_70() {
    let objects = "
- objectName: prod/db
  objectType: secretsmanager
  objectVersionLabel: AWSPREVIOUS
  objectVersion: 0a1b
  jmesPath:
  - {path: username, objectAlias: user}
  - {path: '\"user.name\"', objectAlias: dotted}
  - {path: 'a.b', objectAlias: deep}
- objectName: /prod/url
  objectType: ssmparameter
  objectAlias: url
  objectVersion: 2
- objectName: arn:aws:secretsmanager:eu-west-1:123456789012:secret:x
- objectName: /single
  objectType: ssmparameter
";
    let class = class("aws", &json!({"region": "eu-west-1", "objects": objects}));
    let mapping = map(&class, false).unwrap();
    assert_eq!(mapping.driver, "aws.csi.waybill.dev");
    let (id, stage) = (("versionId", "0a1b"), ("versionStage", "AWSPREVIOUS"));
    for mounted in ["prod_db", "prod/db"] {
        check(&mapping, mounted, reference("secretsmanager/prod/db", &[id, stage]));
    }
    let field = |name| reference("secretsmanager/prod/db", &[("field", name), id, stage]);
    check(&mapping, "user", field("username"));
    check(&mapping, "dotted", field("user.name"));
    refused(&mapping, "deep", "more than the name of one field");
    check(&mapping, "url", reference("ssm/prod/url", &[("version", "2")]));
    let arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:x";
    check(&mapping, arn, reference(&format!("secretsmanager/{arn}"), &[]));
    refused(&mapping, "/single", "no key of the driver");
    assert_eq!(
        map(&class_with_pod_identity(), false).unwrap_err(),
        "it uses EKS Pod Identity, which the driver does not know; migrate it with --keep-provider"
    );
}

fn class_with_pod_identity() -> SyncedClass {
    class("aws", &json!({"usePodIdentity": "true", "objects": "- objectName: a"}))
}

/// CSI-70
#[test]
fn other_providers_are_asked_by_their_socket_csi_70() {
    let azure = "array:\n  - |\n    objectName: db-password\n    objectType: secret\n    objectAlias: pw\n  \
                 - |\n    objectName: other\n";
    let azure = class("azure", &json!({"keyvaultName": "kv", "tenantId": "t", "objects": azure}));
    let mapping = map(&azure, false).unwrap();
    assert_eq!(mapping.driver, PROVIDER_DRIVER);
    assert_eq!(mapping.parameters["provider"], "azure");
    assert_eq!(mapping.parameters["keyvaultName"], "kv");
    check(&mapping, "pw", reference("pw", &[]));
    check(&mapping, "other", reference("other", &[]));

    let gcp = "- resourceName: projects/p/secrets/s/versions/latest\n  path: good.txt\n\
               - resourceName: projects/p/secrets/t/versions/1\n  fileName: old.txt\n";
    let mapping = map(&class("gcp", &json!({"secrets": gcp})), false).unwrap();
    check(&mapping, "good.txt", reference("good.txt", &[]));
    check(&mapping, "old.txt", reference("old.txt", &[]));

    let kept = map(&class_with_pod_identity(), true).unwrap();
    check(&kept, "a", reference("a", &[]));
}

#[test]
fn classes_that_cannot_be_read_say_why_and_show_no_parameter() {
    let broken = class("vault", &json!({"objects": "hunter2: ["}));
    assert_eq!(map(&broken, false).unwrap_err(), "its parameter \"objects\" is not a YAML list");
    let clash = class("gcp", &json!({"secrets": "[]", "allowedFields": "x"}));
    assert!(map(&clash, false).unwrap_err().contains("\"allowedFields\""));
}

/// CSI-70: what goes there comes back.
#[test]
fn references_come_back_as_objects_of_the_provider_csi_70() {
    let objects = "- objectName: pw\n  secretPath: secret/data/db\n  secretKey: password\n  \
                   secretArgs: {version: '3'}\n";
    let vault = class("vault", &json!({"vaultAddress": "https://v", "objects": objects}));
    round_trip(&vault);
    let objects = "- objectName: prod/db\n  objectType: secretsmanager\n  jmesPath:\n  \
                   - {path: username, objectAlias: user}\n  - {path: '\"a.b\"', objectAlias: dotted}\n\
                   - {objectName: /prod/url, objectType: ssmparameter, objectAlias: url, objectVersion: 7}\n";
    round_trip(&class("aws", &json!({"region": "r", "objects": objects})));
}

#[track_caller]
fn round_trip(class: &SyncedClass) {
    let there = map(class, false).unwrap();
    let references: BTreeMap<_, _> = there
        .objects
        .iter()
        .filter_map(|(name, reference)| Some((name.clone(), reference.clone().ok()?)))
        .collect();
    let parameters = back(there.driver, &there.parameters, &references).unwrap();
    let again = map(&SyncedClass { parameters, ..class.clone() }, false).unwrap();
    for (name, reference) in references {
        check(&again, &name, reference);
    }
}
