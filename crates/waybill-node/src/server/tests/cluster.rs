//! An API server that reviews tokens and rights, publishes keys, and does nothing else.

use std::{
    collections::HashSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use waybill_api::exec::SESSION_KEYS_PATH;

/// Knows the token `good`, and lets everybody do everything that is not denied.
pub(super) struct FakeCluster {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    _running: DropGuard,
}

struct State {
    denied: HashSet<String>,
    broken: bool,
    asked: Vec<String>,
    keys: Result<Value, StatusCode>,
    key_reads: usize,
}

impl FakeCluster {
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            denied: HashSet::new(),
            broken: false,
            asked: Vec::new(),
            keys: Err(StatusCode::NOT_FOUND),
            key_reads: 0,
        }));
        let shared = Arc::clone(&state);
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| {
                    let state = Arc::clone(&state);
                    async move { Ok::<_, Infallible>(answer(request, &state).await) }
                });
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(serving);
            }
        }));
        Self { address, state, _running: stop.drop_guard() }
    }

    pub(super) fn client(&self) -> Client {
        let url = format!("http://{}", self.address).parse().unwrap();
        Client::try_from(Config::new(url)).unwrap()
    }

    /// Denies `user verb subresource`.
    pub(super) fn deny(&self, what: &str) {
        self.state.lock().unwrap().denied.insert(what.to_owned());
    }

    /// Fails from now on.
    pub(super) fn break_down(&self) {
        self.state.lock().unwrap().broken = true;
    }

    /// Publishes these keys of exec sessions from now on, or refuses to.
    pub(super) fn publish(&self, keys: Result<Value, StatusCode>) {
        self.state.lock().unwrap().keys = keys;
    }

    /// How often its keys were read.
    pub(super) fn key_reads(&self) -> usize {
        self.state.lock().unwrap().key_reads
    }

    /// What was asked, in order: tokens, and who may do what.
    pub(super) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }
}

impl State {
    fn keys(&mut self) -> Response<Full<Bytes>> {
        self.key_reads += 1;
        let (code, body) = match &self.keys {
            Ok(keys) => (StatusCode::OK, keys.clone()),
            Err(code) => (*code, json!({"kind": "Status", "code": code.as_u16()})),
        };
        let mut answer = Response::new(Full::from(body.to_string()));
        *answer.status_mut() = code;
        answer
    }
}

async fn answer(request: Request<Incoming>, state: &Mutex<State>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    if path == SESSION_KEYS_PATH {
        return state.lock().unwrap().keys();
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let mut state = state.lock().unwrap();
    let status = match path.as_str() {
        "/apis/authentication.k8s.io/v1/tokenreviews" => {
            let token = review["spec"]["token"].as_str().unwrap();
            state.asked.push(format!("token {token}"));
            let user = json!({ "username": "alice", "groups": ["dev", "system:authenticated"] });
            json!({ "authenticated": token == "good", "user": user })
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let spec = &review["spec"];
            let attributes = &spec["resourceAttributes"];
            assert_eq!(attributes["resource"], "nodes");
            assert_eq!(attributes["name"], "node-1");
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let right = format!(
                "{} {} {}",
                text(&spec["user"]),
                text(&attributes["verb"]),
                text(&attributes["subresource"])
            );
            let groups: Vec<_> = spec["groups"].as_array().unwrap().iter().map(text).collect();
            state.asked.push(format!("{right} as {}", groups.join(",")));
            json!({ "allowed": !state.denied.contains(&right) })
        }
        _ => panic!("{path}"),
    };
    review["status"] = status;
    let mut answer = Response::new(Full::from(review.to_string()));
    *answer.status_mut() =
        if state.broken { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED };
    answer
}
