//! Plugins that are shell scripts, servers on this machine, and a clock that stands still.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kube::{
    Client, Config,
    config::{ExecConfig, ExecInteractiveMode},
};
use rustls::ServerConfig;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use waybill_credential::{Authenticator, Authenticators, Clock, Options, client_builder_with};

/// A plugin that is a script. Each run leaves a line in a file, and what it prints is another file.
pub(crate) struct Plugin {
    dir: TempDir,
    pub(crate) exec: ExecConfig,
    pub(crate) options: Options,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) registry: Authenticators,
}

impl Plugin {
    /// Prints the answer that was last set.
    pub(crate) fn answering() -> Self {
        Self::running("echo run >>\"$RUNS\"; cat \"$ANSWER\"")
    }

    /// Runs `script` in a shell, with `$RUNS`, `$ANSWER` and `$DIR`.
    pub(crate) fn running(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args = ["-c", script, "plugin"].map(str::to_owned).to_vec();
        let clock = Arc::new(ManualClock::default());
        let mut plugin = Self {
            exec: ExecConfig {
                api_version: Some("client.authentication.k8s.io/v1".to_owned()),
                command: Some("/bin/sh".to_owned()),
                args: Some(args),
                interactive_mode: Some(ExecInteractiveMode::Never),
                ..ExecConfig::default()
            },
            dir,
            options: Options { clock: clock.clone(), ..Options::default() },
            clock,
            registry: Authenticators::default(),
        };
        let file = |name| plugin.file(name).display().to_string();
        let files = [("RUNS", "runs"), ("ANSWER", "answer"), ("DIR", ".")];
        plugin.exec.env = Some(
            files
                .map(|(name, path)| [("name", name.to_owned()), ("value", file(path))])
                .map(|pairs| pairs.map(|(key, value)| (key.to_owned(), value)).into())
                .to_vec(),
        );
        plugin.token("first", None);
        plugin
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// From now on it gives this token, for so long from now.
    pub(crate) fn token(&self, token: &str, life: Option<Duration>) {
        self.answer(&serde_json::json!({"token": token}), life);
    }

    pub(crate) fn answer(&self, status: &serde_json::Value, life: Option<Duration>) {
        let mut status = status.clone();
        if let Some(life) = life {
            status["expirationTimestamp"] = (self.clock.now() + life).to_string().into();
        }
        let answer = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
        });
        // A plugin that runs meanwhile reads the old answer or the new.
        fs::write(self.file("next"), answer.to_string()).unwrap();
        fs::rename(self.file("next"), self.file("answer")).unwrap();
    }

    /// How often it was run.
    pub(crate) fn runs(&self) -> usize {
        fs::read_to_string(self.file("runs")).unwrap_or_default().lines().count()
    }

    /// A configuration with this plugin.
    pub(crate) fn config(&self, server: &str) -> Config {
        let mut config = Config::new(server.parse().unwrap());
        config.auth_info.exec = Some(self.exec.clone());
        config
    }

    pub(crate) fn authenticator(&self) -> Arc<Authenticator> {
        let mut config = self.config("http://127.0.0.1:1");
        self.registry.take_plugin("u", &mut config, &self.options).unwrap().unwrap()
    }

    pub(crate) fn client(&self, server: &str) -> Client {
        self.client_of(self.config(server))
    }

    pub(crate) fn client_of(&self, mut config: Config) -> Client {
        let plugin = self.registry.take_plugin("u", &mut config, &self.options).unwrap();
        client_builder_with(config, plugin).unwrap().build()
    }
}

/// Moves when it is told to.
#[derive(Default)]
pub(crate) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis().try_into().unwrap(), Ordering::SeqCst);
    }

    fn passed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// All clocks of a test begin at the same moment.
fn start() -> (Timestamp, Instant) {
    static START: std::sync::OnceLock<(Timestamp, Instant)> = std::sync::OnceLock::new();
    *START.get_or_init(|| (Timestamp::now(), Instant::now()))
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        start().0 + self.passed()
    }

    fn monotonic(&self) -> Instant {
        start().1 + self.passed()
    }
}

/// Serves every connection with `answer`, which is also told the number of the connection.
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
pub(crate) async fn serve<F>(tls: Option<ServerConfig>, answer: F) -> SocketAddr
where
    F: Fn(usize, &Request<Incoming>) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    tokio::spawn(async move {
        for number in 0.. {
            let (tcp, _) = listener.accept().await.unwrap();
            let (tls, answer) = (tls.clone(), answer.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = answer(number, &request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let http = http1::Builder::new();
                // A client may close its connections when it likes.
                let _ = match tls {
                    None => http.serve_connection(TokioIo::new(tcp), service).await,
                    Some(tls) => match tls.accept(tcp).await {
                        Ok(tls) => http.serve_connection(TokioIo::new(tls), service).await,
                        Err(_) => Ok(()),
                    },
                };
            });
        }
    });
    address
}

pub(crate) fn answer(status: u16) -> Response<Full<Bytes>> {
    let body = match status {
        200 => {
            r#"{"major":"1","minor":"37","gitVersion":"v1.37.0","gitCommit":"","gitTreeState":"",
            "buildDate":"","goVersion":"","compiler":"","platform":""}"#
                .to_owned()
        }
        code => format!(
            r#"{{"kind":"Status","status":"Failure","message":"no","reason":"R","code":{code}}}"#
        ),
    };
    Response::builder().status(status).body(Full::from(body)).unwrap()
}

pub(crate) fn token(request: &Request<Incoming>) -> String {
    let header = request.headers().get("authorization").map(|value| value.to_str().unwrap());
    header.unwrap_or_default().trim_start_matches("Bearer ").to_owned()
}

/// Polls until `holds`, for things that have no other end to wait for.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process is there and is no zombie.
pub(crate) fn lives(pid: &Path) -> bool {
    let Ok(pid) = fs::read_to_string(pid) else { return false };
    fs::exists(format!("/proc/{}", pid.trim())).unwrap()
}
