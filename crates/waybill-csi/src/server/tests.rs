//! A driver behind its socket, as kubelets meet it.

mod limits;

use std::{
    fs, future,
    sync::atomic::{AtomicUsize, Ordering},
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use waybill_core::secret::SecretBytes;
use waybill_proto::{
    csi::{
        EnvVarQuery, GetPluginInfoRequest, NodeGetCapabilitiesRequest, NodeGetEnvVarsRequest,
        NodeGetInfoRequest, ProbeRequest, identity_client::IdentityClient, node_client::NodeClient,
        node_service_capability::Type,
    },
    registration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
};

use super::*;
use crate::{
    driver::{Answer, Call, FetchError, Hints, Query, Sharing},
    identity::IdentityCheck,
};

const NAME: &str = "test.example.com";

/// Answers each key with itself and a number that grows with each call.
#[derive(Default)]
struct Counting {
    calls: Arc<AtomicUsize>,
    /// If there is one, a call takes a permit of it before it answers.
    gate: Option<Arc<Semaphore>>,
    /// Whom the identity check refuses.
    stranger: Option<&'static str>,
    max_in_flight: Option<u32>,
    /// How often it was told to give back what it holds, and whether it takes for ever.
    released: Arc<AtomicUsize>,
    is_stuck: bool,
}

impl Driver for Counting {
    fn name(&self) -> &str {
        NAME
    }

    fn backend(&self) -> &'static str {
        "test"
    }

    fn version(&self) -> &str {
        "1.2.3"
    }

    fn hints(&self) -> Hints {
        let rpc_timeout = Some(Duration::from_millis(1500));
        let max_in_flight = self.max_in_flight;
        Hints { max_value_bytes: Some(100), rpc_timeout, max_in_flight, ..Hints::default() }
    }

    fn sharing(&self) -> Sharing {
        Sharing::Class
    }

    fn identity(&self) -> impl IdentityCheck {
        Stranger(self.stranger)
    }

    async fn fetch(&self, _call: &Call, queries: &[Query]) -> Result<Vec<Answer>, FetchError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("it is never closed").forget();
        }
        let answer = |query: &Query| match query.key.as_str() {
            "missing" => Err(FetchError::not_found("there is no key \"missing\"")),
            "panic" => panic!("as it should"),
            key => Ok(SecretBytes::from(format!("{key} {call}").into_bytes())),
        };
        Ok(queries.iter().map(answer).collect())
    }

    async fn release(&self) {
        self.released.fetch_add(1, Ordering::SeqCst);
        if self.is_stuck {
            future::pending::<()>().await;
        }
    }
}

struct Stranger(Option<&'static str>);

impl IdentityCheck for Stranger {
    async fn check(&self, call: &Call) -> Result<(), FetchError> {
        match self.0 {
            Some(stranger) if stranger == call.pod.service_account => {
                Err(FetchError::denied("the token is not of this pod"))
            }
            _ => Ok(()),
        }
    }
}

/// A driver that serves in a directory of its own.
struct Served {
    server: Server,
    node: NodeClient<Channel>,
    dir: TempDir,
}

async fn serve(driver: Counting, change: impl FnOnce(&mut Config, &Path)) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("plugins/csi.sock"));
    change(&mut config, dir.path());
    let server = Server::start(driver, config).await.unwrap();
    let node = NodeClient::new(channel(&dir.path().join("plugins/csi.sock")).await);
    Served { server, node, dir }
}

async fn channel(socket: &Path) -> Channel {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    endpoint.connect().await.unwrap()
}

fn request(parameters: &[(&str, &str)], keys: &[&str]) -> NodeGetEnvVarsRequest {
    let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let context =
        [("namespace", "shop"), ("serviceAccount", "till"), ("podName", "p"), ("podUID", "u")];
    let query = |key: &&str| EnvVarQuery {
        name: key.to_uppercase(),
        key: (*key).to_owned(),
        ..EnvVarQuery::default()
    };
    NodeGetEnvVarsRequest {
        provider_class_name: "class".to_owned(),
        class_parameters: parameters.iter().map(text).collect(),
        queries: keys.iter().map(query).collect(),
        pod_context: context.iter().map(text).collect(),
        version: String::new(),
    }
}

async fn values(
    node: &NodeClient<Channel>,
    request: NodeGetEnvVarsRequest,
) -> Result<Vec<String>, Status> {
    let response = node.clone().node_get_env_vars(request).await?.into_inner();
    let text = |value| String::from_utf8(value).unwrap();
    let results = response.results.into_iter();
    Ok(results.map(|mut result| text(std::mem::take(&mut result.value))).collect())
}

const ALL: &[(&str, &str)] = &[("allowedNamespaces", "*")];
const CACHED: &[(&str, &str)] = &[("cacheTTL", "1h")];

/// CSI-06, CSI-07
#[tokio::test]
async fn a_driver_says_who_it_is_and_what_it_can_csi_06_csi_07() {
    let Served { server, mut node, dir } = serve(Counting::default(), |_, _| {}).await;
    let mut identity = IdentityClient::new(channel(&dir.path().join("plugins/csi.sock")).await);
    let info = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.name.as_str(), info.vendor_version.as_str()), (NAME, "1.2.3"));
    let probe = identity.probe(ProbeRequest {}).await.unwrap().into_inner();
    assert_eq!(probe.ready, Some(true));
    let info = node.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.node_id, "node");
    let found = node.node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    let found: Vec<_> =
        found.into_inner().capabilities.into_iter().filter_map(|it| it.r#type).collect();
    let [Type::Rpc(rpc), Type::EnvVarInjection(hints)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(rpc.r#type, 10);
    assert_eq!((hints.max_value_bytes, hints.max_payload_bytes, hints.max_in_flight), (100, 0, 0));
    let timeout = Duration::try_from(hints.rpc_timeout.unwrap()).unwrap();
    assert_eq!(timeout, Duration::from_millis(1500));
    server.stop().await;
}

/// CSI-01
#[tokio::test]
async fn many_variables_are_one_question_csi_01() {
    let driver = Counting::default();
    let calls = Arc::clone(&driver.calls);
    let Served { server, node, dir: _dir } = serve(driver, |_, _| {}).await;
    let keys: Vec<_> = (0..50).map(|number| format!("k{number}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let found = values(&node, request(ALL, &keys)).await.unwrap();
    let expected: Vec<_> = keys.iter().map(|key| format!("{key} 0")).collect();
    assert_eq!(found, expected);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    server.stop().await;
}

/// CSI-44
#[tokio::test]
async fn a_driver_that_panics_fails_its_call_alone_csi_44() {
    let Served { server, node, dir: _dir } = serve(Counting::default(), |_, _| {}).await;
    for parameters in [ALL, CACHED] {
        let failed = values(&node, request(parameters, &["panic"])).await.unwrap_err();
        assert_eq!(failed.code(), Code::Internal);
        assert_eq!(failed.message(), "the driver failed at this call; its log says where");
        values(&node, request(parameters, &["a"])).await.unwrap();
    }
    server.stop().await;
}

/// CSI-45
#[tokio::test]
async fn refusals_reach_the_caller_and_not_the_backend_csi_45() {
    let driver = Counting::default();
    let calls = Arc::clone(&driver.calls);
    let Served { server, node, dir: _dir } = serve(driver, |_, _| {}).await;
    let refused = values(&node, request(&[("allowedFields", "a/*")], &["b/c"])).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(refused.message(), "Key 'b/c' not in allowedFields pattern 'a/*'");
    let incomplete = values(&node, request(&[], &["b/c"])).await.unwrap_err();
    assert_eq!(incomplete.code(), Code::InvalidArgument);
    let mut large = request(ALL, &["k"]);
    large.version = "v".repeat(1 << 20);
    assert_eq!(values(&node, large).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    server.stop().await;
}

/// CSI-47
#[tokio::test]
async fn values_are_given_out_again_until_they_are_invalidated_csi_47() {
    let Served { server, node, dir: _dir } = serve(Counting::default(), |_, _| {}).await;
    assert_eq!(values(&node, request(CACHED, &["a"])).await.unwrap(), ["a 0"]);
    assert_eq!(values(&node, request(CACHED, &["b", "a"])).await.unwrap(), ["b 1", "a 0"]);
    server.cache().invalidate_class("class");
    assert_eq!(values(&node, request(CACHED, &["a"])).await.unwrap(), ["a 2"]);
    server.cache().clear();
    assert_eq!(values(&node, request(CACHED, &["a"])).await.unwrap(), ["a 3"]);
    assert_eq!(values(&node, request(ALL, &["a"])).await.unwrap(), ["a 4"], "it keeps none itself");
    assert_eq!(values(&node, request(ALL, &["a"])).await.unwrap(), ["a 5"]);
    server.stop().await;
}

/// CSI-46, CSI-47
#[tokio::test]
async fn who_is_refused_gets_nothing_out_of_the_cache_csi_46_csi_47() {
    let driver = Counting { stranger: Some("thief"), ..Counting::default() };
    let Served { server, node, dir: _dir } = serve(driver, |_, _| {}).await;
    let class = &[("cacheTTL", "1h"), ("allowedNamespaces", "shop"), ("allowedFields", "a")];
    assert_eq!(values(&node, request(class, &["a"])).await.unwrap(), ["a 0"]);
    for (key, other, text) in [
        ("namespace", "bank", "Unauthorized: namespace not in allowedNamespaces"),
        ("serviceAccount", "thief", "the token is not of this pod"),
    ] {
        let mut request = request(class, &["a"]);
        request.pod_context.insert(key.to_owned(), other.to_owned());
        let refused = values(&node, request).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, text));
    }
    server.stop().await;
}

/// CSI-47
#[tokio::test]
async fn the_same_question_at_the_same_time_is_asked_once_csi_47() {
    let gate = Arc::new(Semaphore::new(0));
    let driver = Counting { gate: Some(Arc::clone(&gate)), ..Counting::default() };
    let calls = Arc::clone(&driver.calls);
    let Served { server, node, dir: _dir } = serve(driver, |_, _| {}).await;
    let ask = || values(&node, request(CACHED, &["a"]));
    // One permit: whoever asked a second time would wait forever.
    gate.add_permits(1);
    let (one, other, third) = tokio::join!(ask(), ask(), ask());
    for found in [one, other, third] {
        assert_eq!(found.unwrap(), ["a 0"]);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_driver_registers_and_ends_when_it_is_refused() {
    let Served { mut server, node: _node, dir } = serve(Counting::default(), |config, dir| {
        config.registration_dir = Some(dir.join("registry"));
    })
    .await;
    let socket = dir.path().join("registry/test.example.com-reg.sock");
    let mut registration = RegistrationClient::new(channel(&socket).await);
    let info = registration.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", NAME));
    assert_eq!(info.endpoint, dir.path().join("plugins/csi.sock").display().to_string());
    assert_eq!(info.supported_versions, ["1.0.0"]);
    let status = |plugin_registered, error: &str| RegistrationStatus {
        plugin_registered,
        error: error.to_owned(),
    };
    registration.notify_registration_status(status(true, "")).await.unwrap();
    assert!(server.failure.borrow().is_none());
    registration.notify_registration_status(status(false, "too old")).await.unwrap();
    assert_eq!(server.failed().await, "the kubelet refuses the driver: too old");
    server.stop().await;
    assert!(!socket.exists() && !dir.path().join("plugins/csi.sock").exists());
}

/// A kubelet that is set up anew finds the driver again.
#[tokio::test]
async fn sockets_that_were_removed_come_back() {
    let Served { server, node: _node, dir } = serve(Counting::default(), |config, dir| {
        config.registration_dir = Some(dir.join("registry"));
    })
    .await;
    for directory in ["registry", "plugins"] {
        fs::remove_dir_all(dir.path().join(directory)).unwrap();
    }
    let socket = dir.path().join("registry/test.example.com-reg.sock");
    let registration = loop {
        let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
        match endpoint.connect().await {
            Ok(channel) => break channel,
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    };
    let info = RegistrationClient::new(registration).get_info(InfoRequest {}).await.unwrap();
    let endpoint = info.into_inner().endpoint;
    while !Path::new(&endpoint).exists() {
        sleep(Duration::from_millis(20)).await;
    }
    let node = NodeClient::new(channel(Path::new(&endpoint)).await);
    values(&node, request(ALL, &["a"])).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn calls_under_way_are_answered_before_the_end() {
    let gate = Arc::new(Semaphore::new(0));
    let driver = Counting { gate: Some(Arc::clone(&gate)), ..Counting::default() };
    let (calls, released) = (Arc::clone(&driver.calls), Arc::clone(&driver.released));
    let Served { server, node, dir } = serve(driver, |_, _| {}).await;
    let stop = async {
        while calls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let stopping = server.stop();
        let release = async {
            tokio::task::yield_now().await;
            assert_eq!(released.load(Ordering::SeqCst), 0, "a call needs what the driver holds");
            gate.add_permits(1);
        };
        tokio::join!(stopping, release);
    };
    // The connection would keep the server waiting otherwise.
    let ask = async { values(&node, request(ALL, &["a"])).await };
    let (found, ()) = tokio::join!(ask, stop);
    assert_eq!(found.unwrap(), ["a 0"]);
    assert!(!dir.path().join("plugins/csi.sock").exists());
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn neither_calls_nor_the_driver_hold_up_the_end_for_ever() {
    let driver = Arc::new(Counting { is_stuck: true, ..Counting::default() });
    let (released, stop) = (Arc::clone(&driver.released), CancellationToken::new());
    let start = tokio::time::Instant::now();
    stop.cancel();
    serve_and_release(future::pending(), driver, stop).await;
    assert_eq!(released.load(Ordering::SeqCst), 1);
    assert_eq!(start.elapsed().as_secs(), (STOP_LIMIT + RELEASE_LIMIT).as_secs());
}

/// CSI-55
#[tokio::test]
async fn metrics_are_served_where_asked_for_csi_55() {
    let Served { server, node, dir: _dir } = serve(Counting::default(), |config, _| {
        config.metrics_listen = Some(([127, 0, 0, 1], 0).into());
    })
    .await;
    values(&node, request(ALL, &["a"])).await.unwrap();
    values(&node, request(ALL, &["missing"])).await.unwrap_err();
    let mut stream = TcpStream::connect(server.metrics_address().unwrap()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    for line in [
        "HTTP/1.1 200 OK",
        "csi_driver_env_backend_duration_seconds_count{backend_type=\"test\"} 2",
        "csi_driver_env_backend_errors_total{backend_type=\"test\",error_type=\"not_found\"} 1",
        "csi_driver_env_calls_total{result=\"success\"} 1",
        "csi_driver_env_calls_total{result=\"not_found\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    server.stop().await;
}

#[test]
fn names_are_those_of_domains() {
    for good in ["os.csi.waybill.dev", "a", "a-1.b"] {
        assert!(check_name(good).is_ok(), "{good}");
    }
    for wrong in ["", "A.b", "a/b", "../a", "a..b", "-a", "a.", &"a".repeat(64)] {
        assert!(check_name(wrong).is_err(), "{wrong}");
    }
}
