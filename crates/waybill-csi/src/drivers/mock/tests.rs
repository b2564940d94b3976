//! A mock over its socket: what it gives, and how it misbehaves.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use tempfile::TempDir;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use waybill_proto::csi::{EnvVarQuery, EnvVarResult, node_client::NodeClient};

use super::*;

struct Served {
    server: Server,
    node: NodeClient<Channel>,
    dir: TempDir,
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

async fn serve(script: &str) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script.yaml");
    write(&path, script);
    let socket = dir.path().join("csi.sock");
    let mock = Mock::new(NAME, path).unwrap();
    let server = mock.serve(Config::new(&socket)).await.unwrap();
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    let node = NodeClient::new(endpoint.connect().await.unwrap());
    Served { server, node, dir }
}

async fn ask(
    node: &mut NodeClient<Channel>,
    keys: &[&str],
) -> Result<Vec<(String, Vec<u8>, String)>, Status> {
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let context = [("namespace", "n"), ("serviceAccount", "s"), ("podName", "p"), ("podUID", "u")];
    let query = |key: &&str| EnvVarQuery {
        name: key.to_uppercase(),
        key: (*key).to_owned(),
        ..EnvVarQuery::default()
    };
    let request = NodeGetEnvVarsRequest {
        provider_class_name: "class".to_owned(),
        class_parameters: [text(("a", "b"))].into(),
        queries: keys.iter().map(query).collect(),
        pod_context: context.into_iter().map(text).collect(),
        version: "7".to_owned(),
    };
    let results = node.node_get_env_vars(request).await?.into_inner().results;
    let parts = |it: EnvVarResult| (it.name.clone(), it.value.clone(), it.error.clone());
    Ok(results.into_iter().map(parts).collect())
}

fn result(name: &str, value: &[u8], error: &str) -> (String, Vec<u8>, String) {
    (name.to_owned(), value.to_vec(), error.to_owned())
}

/// CSI-50
#[tokio::test]
async fn values_and_failures_are_those_of_the_script_csi_50() {
    let script = "
values: {a: one, b: ''}
base64Values: {c: dHdv}
errors: {d: {kind: denied, message: not you}, e: {kind: unavailable}}
";
    let Served { server, mut node, dir } = serve(script).await;
    let found = ask(&mut node, &["a", "b", "c"]).await.unwrap();
    assert_eq!(found, [result("A", b"one", ""), result("B", b"", ""), result("C", b"two", "")]);
    for (key, code, text) in [
        ("d", Code::PermissionDenied, "not you"),
        ("e", Code::Unavailable, "the backend cannot be reached"),
        ("f", Code::NotFound, "there is no key \"f\""),
    ] {
        let status = ask(&mut node, &["a", key]).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, text));
    }
    write(&dir.path().join("script.yaml"), r#"{"values": {"a": "rotated"}}"#);
    assert_eq!(ask(&mut node, &["a"]).await.unwrap(), [result("A", b"rotated", "")]);
    server.stop().await;
}

#[tokio::test]
async fn each_call_misbehaves_as_the_script_says() {
    let script = "
values: {a: x, b: y}
calls:
- {status: {code: 14, message: later}}
- wrong-order
- missing-result
- extra-result
- wrong-name
- value-and-error
- nul
- not-utf8
- {oversize: 5}
- {results: 4}
- {delay: 1ms}
";
    let Served { server, mut node, dir: _dir } = serve(script).await;
    let later = ask(&mut node, &["a"]).await.unwrap_err();
    assert_eq!((later.code(), later.message()), (Code::Unavailable, "later"));
    let (a, b) = (result("A", b"x", ""), result("B", b"y", ""));
    for expected in [
        vec![b.clone(), a.clone()],
        vec![a.clone()],
        vec![a.clone(), b.clone(), b.clone()],
        vec![result("A_OTHER", b"x", ""), b.clone()],
        vec![result("A", b"x", "both"), b.clone()],
        vec![result("A", b"x\0", ""), b.clone()],
        vec![result("A", b"x\xff", ""), b.clone()],
        vec![result("A", b"xxxxx", ""), b.clone()],
        vec![a.clone(), b.clone(), a.clone(), a.clone()],
        vec![a.clone(), b.clone()],
        vec![a, b],
    ] {
        assert_eq!(ask(&mut node, &["a", "b"]).await.unwrap(), expected);
    }
    server.stop().await;
}

/// CSI-06
#[tokio::test]
async fn a_mock_can_lack_the_capability_and_hang_csi_06() {
    let Served { server, mut node, dir: _dir } =
        serve("{capability: false, otherwise: hang}").await;
    let found = node.node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    assert!(found.into_inner().capabilities.is_empty());
    let mut request = Request::new(NodeGetEnvVarsRequest::default());
    request.set_timeout(Duration::from_millis(10));
    let code = node.node_get_env_vars(request).await.unwrap_err().code();
    assert!(matches!(code, Code::Cancelled | Code::DeadlineExceeded), "{code}");
    server.stop().await;
}

#[tokio::test]
async fn the_journal_tells_what_was_asked_and_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let script = format!("{{values: {{a: hunter2}}, journal: {}}}", journal.display());
    let Served { server, mut node, dir: _dir } = serve(&script).await;
    ask(&mut node, &["a"]).await.unwrap();
    let mut request = NodeGetEnvVarsRequest::default();
    let tokens = r#"{"vault":{"token":"hunter3","expirationTimestamp":"t"}}"#;
    let key = "csi.storage.k8s.io/serviceAccount.tokens";
    request.pod_context.insert(key.to_owned(), tokens.to_owned());
    node.node_get_env_vars(request).await.unwrap_err();
    let text = fs::read_to_string(journal).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = serde_json::json!({
        "class": "class",
        "classParameters": {"a": "b"},
        "queries": [{"name": "A", "key": "a", "parameters": {}, "optional": false}],
        "pod": {"namespace": "n", "serviceAccount": "s", "podName": "p", "podUID": "u"},
        "audiences": [],
        "version": "7",
    });
    assert_eq!(lines[0], expected);
    assert_eq!(lines[1]["audiences"], serde_json::json!(["vault"]));
    assert!(!text.contains("hunter"));
    server.stop().await;
}

/// CSI-49
#[test]
fn a_script_that_others_can_read_or_nobody_understands_is_refused_csi_49() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    let refusal = || Chain(&Mock::new(NAME, &path).unwrap_err()).to_string();
    assert!(refusal().starts_with("cannot read the script"), "{}", refusal());
    write(&path, "values: {a: x}");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert!(refusal().contains("`chmod 600` it"), "{}", refusal());
    for wrong in [
        "\nvalues: [hunter2]",
        "\nvalue: hunter2",
        "\nbase64Values: {a: hunter2!}",
        "\ncalls: [hunter2]",
        "\ncacheTTL: hunter2",
    ] {
        write(&path, wrong);
        assert!(refusal().contains("is not understood at line 2"), "{}", refusal());
        assert!(!refusal().contains("hunter2"), "{}", refusal());
    }
}
