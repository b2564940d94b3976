//! Probes of containers that listen on loopback.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

use super::*;
use crate::{observed::ObservedSandbox, pod::PodOrigin};

struct Fixture {
    prober: Prober,
    woken: mpsc::UnboundedReceiver<()>,
    stop: CancellationToken,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn fixture() -> Fixture {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let clock: Clock = Arc::new(|| Timestamp::from_second(100).unwrap());
    let (sender, woken) = mpsc::unbounded_channel();
    let wake: Wake = Arc::new(move |_| {
        let _ = sender.send(());
    });
    let recorder = Recorder::start(None, "n", Arc::clone(&clock), &tasks, &stop);
    let runtime = Runtime::at("/nonexistent".as_ref()).unwrap();
    let prober = Prober::new(runtime, recorder, "127.0.0.1", clock, wake, &tasks, &stop);
    Fixture { prober, woken, stop }
}

fn pod(probes: &Value, deleted: bool) -> Arc<Pod> {
    let mut container = json!({"name": "a"});
    for (name, probe) in probes.as_object().unwrap() {
        container[name] = probe.clone();
    }
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [container]},
    });
    if deleted {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    Arc::new(Pod::from_value(object, PodOrigin::ApiServer).unwrap())
}

fn observed(id: &str, state: ContainerState) -> Observed {
    let sandbox = ObservedSandbox {
        id: "s".to_owned(),
        ready: true,
        attempt: 0,
        created: Timestamp::UNIX_EPOCH,
        ips: vec!["127.0.0.1".to_owned()],
    };
    let container = ObservedContainer {
        id: id.to_owned(),
        sandbox: "s".to_owned(),
        name: "a".to_owned(),
        attempt: 0,
        spec_hash: None,
        limits: None,
        image: String::new(),
        image_id: String::new(),
        log_path: String::new(),
        created: Timestamp::UNIX_EPOCH,
        state,
    };
    Observed { sandboxes: vec![sandbox], containers: vec![container] }
}

fn running(id: &str) -> Observed {
    observed(id, ContainerState::Running { started: Timestamp::from_second(90).unwrap() })
}

fn results(fixture: &Fixture, pod: &Pod, id: &str) -> Option<ContainerResults> {
    fixture.prober.results(pod.uid()).containers.get(id).cloned()
}

/// A port that somebody listens on, and one that nobody does.
async fn ports() -> (TcpListener, u16, u16) {
    let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let numbers = (port(&open), port(&closed));
    drop(closed);
    (open, numbers.0, numbers.1)
}

fn tcp(port: u16) -> Value {
    json!({"tcpSocket": {"port": port}, "failureThreshold": 1})
}

#[tokio::test]
async fn a_container_that_listens_is_ready() {
    let (_open, port, _) = ports().await;
    let mut fixture = fixture();
    let pod = pod(&json!({"readinessProbe": tcp(port)}), false);
    fixture.prober.watch(&pod, &running("1"));
    assert_eq!(results(&fixture, &pod, "1"), Some(ContainerResults::default()));
    fixture.woken.recv().await.unwrap();
    assert_eq!(results(&fixture, &pod, "1").unwrap().ready, Some(true));
    // Told again, nothing begins anew.
    fixture.prober.watch(&pod, &running("1"));
    assert_eq!(results(&fixture, &pod, "1").unwrap().ready, Some(true));
    fixture.prober.forget(pod.uid());
    assert_eq!(results(&fixture, &pod, "1"), None);
}

#[tokio::test]
async fn a_container_that_does_not_listen_is_not_ready_but_lives() {
    let (_open, _, closed) = ports().await;
    let mut fixture = fixture();
    let pod = pod(&json!({"readinessProbe": tcp(closed)}), false);
    fixture.prober.watch(&pod, &running("1"));
    fixture.woken.recv().await.unwrap();
    let found = results(&fixture, &pod, "1").unwrap();
    assert_eq!((found.ready, found.failed), (Some(false), None));
}

#[tokio::test]
async fn liveness_that_fails_names_the_grace_of_the_probe() {
    let (_open, _, closed) = ports().await;
    let mut fixture = fixture();
    let mut probe = tcp(closed);
    probe["terminationGracePeriodSeconds"] = 7.into();
    let pod = pod(&json!({"livenessProbe": probe}), false);
    fixture.prober.watch(&pod, &running("1"));
    fixture.woken.recv().await.unwrap();
    let results = fixture.prober.results(pod.uid());
    let failure = results.failure("1").unwrap();
    assert_eq!((failure.purpose, failure.grace), (Purpose::Liveness, Some(7)));
    assert!(failure.message.starts_with("dial tcp 127.0.0.1:"), "{}", failure.message);
}

#[tokio::test]
async fn the_startup_probe_comes_first() {
    let (_open, open, closed) = ports().await;
    let mut fixture = fixture();
    let probes = json!({"startupProbe": tcp(open), "livenessProbe": tcp(closed)});
    let pod = pod(&probes, false);
    fixture.prober.watch(&pod, &running("1"));
    fixture.woken.recv().await.unwrap();
    let found = results(&fixture, &pod, "1").unwrap();
    assert_eq!(found.started, Some(true));
    fixture.woken.recv().await.unwrap();
    assert!(results(&fixture, &pod, "1").unwrap().failed.is_some());
    // A startup that fails leaves the others unasked.
    let pod = self::pod(&json!({"startupProbe": tcp(closed), "readinessProbe": tcp(open)}), false);
    fixture.prober.watch(&pod, &running("2"));
    fixture.woken.recv().await.unwrap();
    let found = results(&fixture, &pod, "2").unwrap();
    assert_eq!(found.failed.unwrap().purpose, Purpose::Startup);
    assert_eq!((found.started, found.ready), (None, None));
}

#[tokio::test]
async fn a_new_container_is_asked_anew() {
    let (_open, port, _) = ports().await;
    let mut fixture = fixture();
    let pod = pod(&json!({"readinessProbe": tcp(port)}), false);
    fixture.prober.watch(&pod, &running("1"));
    fixture.woken.recv().await.unwrap();
    fixture.prober.watch(&pod, &observed("1", ContainerState::Unknown));
    assert_eq!(results(&fixture, &pod, "1"), None);
    fixture.prober.watch(&pod, &running("2"));
    assert_eq!(results(&fixture, &pod, "2").unwrap().ready, None);
    fixture.woken.recv().await.unwrap();
    assert_eq!(results(&fixture, &pod, "2").unwrap().ready, Some(true));
}

#[tokio::test]
async fn a_deleted_pod_is_not_killed_by_its_probes() {
    let (_open, open, closed) = ports().await;
    let mut fixture = fixture();
    let pod = pod(&json!({"livenessProbe": tcp(closed), "readinessProbe": tcp(open)}), true);
    fixture.prober.watch(&pod, &running("1"));
    fixture.woken.recv().await.unwrap();
    let found = results(&fixture, &pod, "1").unwrap();
    assert_eq!((found.ready, found.failed), (Some(true), None));
}

#[tokio::test]
async fn http_is_asked_at_the_address_of_the_pod() {
    let (listener, port, _) = ports().await;
    let mut fixture = fixture();
    let probe = json!({"httpGet": {"port": port, "path": "/ready"}});
    let pod = pod(&json!({"readinessProbe": probe}), false);
    fixture.prober.watch(&pod, &running("1"));
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = vec![0; 10];
    stream.read_exact(&mut request).await.unwrap();
    assert_eq!(request, b"GET /ready");
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    fixture.woken.recv().await.unwrap();
    assert_eq!(results(&fixture, &pod, "1").unwrap().ready, Some(true));
}

#[test]
fn a_delay_counts_from_the_start_of_the_container() {
    use std::time::Duration;

    use jiff::SignedDuration;
    let probe = Probe { initial_delay_seconds: Some(30), ..Probe::default() };
    let delay = |age| Schedule::of(&probe, SignedDuration::from_secs(age)).delay();
    assert_eq!(delay(10), Duration::from_secs(20));
    assert_eq!(delay(40), Duration::ZERO);
    assert_eq!(delay(0), Duration::from_secs(30));
}
