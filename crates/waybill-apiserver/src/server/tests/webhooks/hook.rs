//! A webhook for tests: HTTPS with a certificate of its own, which notes who calls and what they send.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, crypto::aws_lc_rs, pki_types::PrivateKeyDer,
    server::WebPkiClientVerifier,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::authn::certificate::CertificateIdentity;

/// What a webhook does.
pub(super) enum Say {
    /// It allows, with these fields in its response.
    Allow(Value),
    /// It refuses, with this status.
    Refuse(Value),
    /// It says nothing, ever.
    Nothing,
    /// It answers with this code, these headers and this body.
    Raw(u16, Vec<(&'static str, String)>, Bytes),
}

type Handler = dyn Fn(&Value) -> Say + Send + Sync;

/// A webhook that runs.
pub(super) struct Hook {
    pub(super) url: String,
    ca_bundle: String,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

struct Shared {
    handler: Box<Handler>,
    /// The requests of the reviews that came, in their order.
    seen: Mutex<Vec<Value>>,
    /// Who called, by the certificate that they showed.
    callers: Mutex<Vec<String>>,
}

impl Hook {
    /// Starts one that asks for certificates of the authority `clients`, in PEM.
    pub(super) async fn start(
        clients: &str,
        handler: impl Fn(&Value) -> Say + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(IsCa::NoCa, clients, handler).await
    }

    /// As [`Hook::start`], with a certificate that says so much of itself.
    #[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
    pub(super) async fn start_as(
        is_ca: IsCa,
        clients: &str,
        handler: impl Fn(&Value) -> Say + Send + Sync + 'static,
    ) -> Self {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = is_ca;
        let signing_key = KeyPair::generate().unwrap();
        let own = params.self_signed(&signing_key).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(clients.as_bytes()).unwrap()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/hook", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            seen: Mutex::default(),
            callers: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let serving =
            serve(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&shared), stop.clone());
        tokio::spawn(serving);
        Self { url, ca_bundle: STANDARD.encode(own.pem()), shared, stop }
    }

    /// `clientConfig` for it.
    pub(super) fn client_config(&self) -> Value {
        json!({"url": self.url, "caBundle": self.ca_bundle})
    }

    /// What came since the last time.
    pub(super) fn take(&self) -> Vec<Value> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap())
    }

    pub(super) fn callers(&self) -> Vec<String> {
        self.shared.callers.lock().unwrap().clone()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((tcp, _)) = accepted else { return };
        let (tls, shared, stop) = (tls.clone(), Arc::clone(&shared), stop.clone());
        tasks.spawn(async move {
            let Ok(stream) = tls.accept(tcp).await else { return };
            if let Some([first, ..]) = stream.get_ref().1.peer_certificates() {
                let user = CertificateIdentity::read(first).unwrap().user().unwrap();
                shared.callers.lock().unwrap().push(user.name);
            }
            let service = service_fn(|request| answer(&shared, request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                () = stop.cancelled() => {}
                _ = connection => {}
            }
        });
    }
}

async fn answer(
    shared: &Shared,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.headers()[header::CONTENT_TYPE], "application/json");
    let target = request.uri().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let mut seen = review["request"].clone();
    let uid = seen["uid"].clone();
    let said = (shared.handler)(&seen);
    seen["target"] = target.into();
    shared.seen.lock().unwrap().push(seen);
    let response = match said {
        Say::Allow(fields) => with(json!({"uid": uid, "allowed": true}), &fields),
        Say::Refuse(status) => json!({"uid": uid, "allowed": false, "status": status}),
        Say::Nothing => std::future::pending().await,
        Say::Raw(code, headers, body) => {
            let mut raw = Response::new(Full::new(body));
            *raw.status_mut() = StatusCode::from_u16(code).unwrap();
            for (name, value) in headers {
                raw.headers_mut().insert(name, value.parse().unwrap());
            }
            return Ok(raw);
        }
    };
    let answer = json!({
        "apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response
    });
    Ok(Response::new(Full::new(Bytes::from(answer.to_string()))))
}

fn with(mut base: Value, fields: &Value) -> Value {
    for (key, value) in fields.as_object().into_iter().flatten() {
        base[key] = value.clone();
    }
    base
}

/// A response that changes the object.
pub(super) fn patch(operations: &Value) -> Value {
    json!({"patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}
