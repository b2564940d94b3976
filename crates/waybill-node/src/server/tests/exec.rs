//! Sessions, from the client to the streaming server.

use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tonic::Status;
use waybill_api::gates::{FeatureGate, FeatureGates};
use waybill_proto::cri::ContainerState;
use waybill_stream::long_target::REQUEST_LINE_LIMIT;

use super::{ExecEnvPolicy, Fixture, PATIENCE, Setup, runtime::container, until};

const EXEC: &str = "/exec/default/web/main?command=sh&command=-c&output=1&error=1";

#[track_caller]
fn variables(fixture: &Fixture) -> Vec<(String, Vec<u8>)> {
    let state = fixture.runtime.state();
    let envs = &state.execs.last().unwrap().envs;
    envs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect()
}

/// EXEC-37
#[tokio::test]
async fn a_session_is_passed_on_both_ways_exec_37() {
    let fixture = Fixture::new().await;
    for (method, uid) in [(Method::POST, ""), (Method::GET, "u-1/")] {
        let target = format!("/exec/default/web/{uid}main?command=sh&input=1&output=1&env=A=b%20c");
        let mut session = fixture.client().upgrade(method.clone(), &target).await.unwrap();
        session.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        session.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        // One side is done, and still hears the other.
        session.shutdown().await.unwrap();
        let mut rest = String::new();
        timeout(PATIENCE, session.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, "bye");
        let head = fixture.streaming.heads().pop().unwrap();
        let line = format!("{} /token/secret http/1.1\r\n", method.as_str().to_ascii_lowercase());
        assert!(head.starts_with(&line), "{head}");
        assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{head}");
        assert!(!head.contains("cookie"), "{head}");
        let exec = fixture.runtime.state().execs.pop().unwrap();
        assert_eq!(
            (exec.container_id.as_str(), exec.cmd.as_slice()),
            ("c-main", ["sh".to_owned()].as_slice())
        );
        assert_eq!((exec.stdin, exec.stdout, exec.stderr, exec.tty), (true, true, false, false));
        assert_eq!(exec.envs.len(), 1);
    }
    until(|| fixture.streaming.sessions.is_empty()).await;
    let metrics = fixture.client().get("/metrics").await.text;
    assert!(
        metrics.contains("waybill_node_stream_start_seconds_count{kind=\"exec\"} 2"),
        "{metrics}"
    );
}

/// EXEC-37, EXEC-38
#[tokio::test]
async fn the_gate_decides_whether_variables_are_read_exec_37_exec_38() {
    let query = "&env=B=2&env=A=x%3Dy%00&env=bad";
    let off = FeatureGates::all_on().with(FeatureGate::ExecRequestId, false).unwrap();
    let off = off.with(FeatureGate::ExecEnvVar, false).unwrap();
    let fixture = Fixture::with(Setup { gates: off, ..Setup::default() }).await;
    fixture.client().upgrade(Method::POST, &format!("{EXEC}{query}")).await.unwrap();
    assert!(variables(&fixture).is_empty());
    let fixture = Fixture::new().await;
    let query = "&env=B=2&env=A=x%3Dy%ff&env=C=";
    fixture.client().upgrade(Method::POST, &format!("{EXEC}{query}")).await.unwrap();
    let expected: [(&str, &[u8]); 3] = [("B", b"2"), ("A", b"x=y\xff"), ("C", b"")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(variables(&fixture), expected);
}

/// EXEC-39
#[tokio::test]
async fn malformed_variables_reach_no_runtime_exec_39() {
    let fixture = Fixture::new().await;
    for bad in ["env=hunter2", "env==hunter2", "env=A=hunter2%00", "env=A=hunter2%"] {
        let said =
            fixture.client().upgrade(Method::POST, &format!("{EXEC}&{bad}")).await.unwrap_err();
        assert_eq!(said.code, 400, "{bad}");
        assert!(said.text.starts_with("query parameter env[0] "), "{}", said.text);
        assert!(!said.text.contains("hunter2"), "{}", said.text);
    }
    assert!(fixture.runtime.state().calls.is_empty());
}

/// EXEC-40
#[tokio::test]
async fn a_long_request_line_is_read_exec_40() {
    let fixture = Fixture::new().await;
    let value = "%25".repeat(44 * 1024);
    let target = format!("{EXEC}&env=A={value}");
    assert!(target.len() > 128 * 1024 && target.len() < REQUEST_LINE_LIMIT);
    fixture.client().upgrade(Method::POST, &target).await.unwrap();
    assert_eq!(variables(&fixture), [("A".to_owned(), vec![b'%'; 44 * 1024])]);
}

/// EXEC-41
#[tokio::test]
async fn a_runtime_without_exec_variables_is_told_of_exec_41() {
    let fixture = Fixture::new().await;
    fixture.runtime.state().exec_envs = false;
    fixture.client().upgrade(Method::POST, EXEC).await.unwrap();
    assert!(fixture.events.all().is_empty());
    let target = format!("{EXEC}&env=SECRET=hunter2&env=B=2");
    fixture.client().upgrade(Method::POST, &target).await.unwrap();
    let expected = "web ExecEnvUnsupported: exec session in container \"main\" began without its 2 \
        variables: container runtime does not support ExecRequest.envs";
    assert_eq!(fixture.events.all(), [expected]);
    // They are sent all the same: a runtime may know more than it says (EXEC-12).
    assert_eq!(variables(&fixture).len(), 2);
    let metrics = fixture.client().get("/metrics").await.text;
    assert!(metrics.contains("kubelet_exec_envs_unsupported_total 1\n"), "{metrics}");
}

/// EXEC-42
#[tokio::test]
async fn a_runtime_without_exec_variables_can_be_refused_exec_42() {
    let setup = Setup { exec_env: ExecEnvPolicy::Deny, ..Setup::default() };
    let fixture = Fixture::with(setup).await;
    fixture.runtime.state().exec_envs = false;
    let target = format!("{EXEC}&env=A=1");
    let said = fixture.client().upgrade(Method::POST, &target).await.unwrap_err();
    assert_eq!(said.summary(), (501, "container runtime does not support ExecRequest.envs"));
    assert!(fixture.runtime.state().execs.is_empty());
    fixture.client().upgrade(Method::POST, EXEC).await.unwrap();
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let fixture = Fixture::new().await;
    let refused =
        async |target: &str| fixture.client().upgrade(Method::POST, target).await.unwrap_err();
    let said = refused("/exec/default/other/main?output=1").await;
    assert_eq!(said.summary(), (404, "pod does not exist"));
    let said = refused("/exec/default/web/u-9/main?output=1").await;
    assert_eq!(said.summary(), (404, "pod does not exist"));
    let said = refused("/exec/default/web/nope?output=1").await;
    assert_eq!(said.summary(), (404, "container not found (\"nope\")"));
    fixture.runtime.set("c-main", ContainerState::ContainerExited);
    let said = refused(EXEC).await;
    assert_eq!(said.summary(), (404, "container not found (\"main\")"));
    let said = refused("/exec/default/web/shell?command=sh").await;
    let text = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!(said.summary(), (400, text));
    let said = fixture.client().get(EXEC).await;
    assert_eq!(said.summary(), (400, "Upgrade request required"));
    assert_eq!(refused("/run/default/web/main").await.code, 404);
    assert!(fixture.runtime.state().execs.is_empty());
}

#[tokio::test]
async fn refusals_of_the_runtime_are_passed_on() {
    let fixture = Fixture::new().await;
    let refused = async || fixture.client().upgrade(Method::POST, EXEC).await.unwrap_err();
    for (status, code) in [
        (Status::invalid_argument("no command"), 400),
        (Status::not_found("no such container"), 404),
        (Status::resource_exhausted("too many"), 429),
        (Status::unknown("broken"), 500),
    ] {
        let text = status.message().to_owned();
        fixture.runtime.state().refusal = Some(status);
        assert_eq!(refused().await.summary(), (code, text.as_str()));
    }
    fixture.runtime.state().refusal = None;
    let url = fixture.streaming.url().replace("/token", "/refuse");
    fixture.runtime.state().url = url;
    let said = refused().await;
    assert_eq!(said.summary(), (403, "no version"));
    assert_eq!(said.headers["x-accepted-stream-protocol-versions"], "v4.channel.k8s.io");
    for (url, text) in [
        (
            "http://127.0.0.1:1/exec/secret",
            "cannot reach the runtime's streaming server at 127.0.0.1:1",
        ),
        ("https://127.0.0.1:1/exec/secret", "the runtime gave no URL that streams can be asked of"),
    ] {
        fixture.runtime.state().url = url.to_owned();
        let said = refused().await;
        assert_eq!(said.code, 500);
        assert!(said.text.starts_with(text) && !said.text.contains("secret"), "{}", said.text);
    }
}

#[tokio::test]
async fn attaching_takes_the_terminal_from_the_container() {
    let fixture = Fixture::new().await;
    let query = "?input=1&output=1&error=1&tty=";
    for (container, asked) in [("main", "1"), ("shell", "0")] {
        let target = format!("/attach/default/web/{container}{query}{asked}");
        fixture.client().upgrade(Method::POST, &target).await.unwrap();
    }
    let state = fixture.runtime.state();
    let seen: Vec<_> = state
        .attaches
        .iter()
        .map(|attach| (attach.container_id.as_str(), attach.tty, attach.stderr))
        .collect();
    assert_eq!(seen, [("c-main", false, false), ("c-shell", true, false)]);
}

#[tokio::test]
async fn ports_are_forwarded_to_the_sandbox() {
    let fixture = Fixture::new().await;
    let target = "/portForward/default/web?port=80&port=443";
    fixture.client().upgrade(Method::POST, target).await.unwrap();
    let forward = fixture.runtime.state().forwards.pop().unwrap();
    assert_eq!(
        (forward.pod_sandbox_id.as_str(), forward.port.as_slice()),
        ("s-u-1", [80, 443].as_slice())
    );
}

#[tokio::test]
async fn stopping_the_node_ends_its_sessions() {
    let fixture = Fixture::new().await;
    let mut session = fixture.client().upgrade(Method::POST, EXEC).await.unwrap();
    timeout(PATIENCE, fixture.server.stop()).await.unwrap();
    let mut rest = Vec::new();
    // Whether TLS was ended properly or not.
    let _ = timeout(PATIENCE, session.read_to_end(&mut rest)).await.unwrap();
    timeout(PATIENCE, until(|| fixture.streaming.sessions.is_empty())).await.unwrap();
}

#[tokio::test]
async fn a_container_is_looked_up_once_and_again_when_it_was_replaced() {
    let fixture = Fixture::new().await;
    for _ in 0..3 {
        fixture.client().upgrade(Method::POST, EXEC).await.unwrap();
    }
    assert_eq!(fixture.runtime.state().calls, ["ListContainers", "Exec", "Exec", "Exec"]);
    fixture.runtime.set("c-main", ContainerState::ContainerExited);
    let next = container("c-next", "u-1", "main", ContainerState::ContainerRunning, 3);
    fixture.runtime.state().containers.push(next);
    fixture.client().upgrade(Method::POST, EXEC).await.unwrap();
    assert_eq!(fixture.runtime.state().execs.last().unwrap().container_id, "c-next");
    fixture.runtime.set("c-next", ContainerState::ContainerExited);
    let said = fixture.client().upgrade(Method::POST, EXEC).await.unwrap_err();
    assert_eq!(said.summary(), (404, "container not found (\"main\")"));
}
