//! Puts the parts together, in the order in which they need one another, and takes them apart.

mod audit_webhook;
mod certificates;
mod encryption;
mod store;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use rustix::process::{self, geteuid, getrlimit};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_api::{gates::FeatureGates, pod::EnvOptions};
use waybill_core::secret::SecretBytes;
use waybill_stream::open_connections::{MostConnections, OpenConnections};

pub use self::audit_webhook::{AuditWebhook, AuditWebhookMode};
use self::certificates::{renew, tls_to_nodes};
pub use self::encryption::{Encryption, KeyUse, StoreKeys};
pub use self::store::{EtcdFiles, EtcdStore, StoreConfig};
use crate::{
    admission::{
        Admission, AdmissionMetrics, DynamicAdmission, Enforcer, RULES_GROUP, RuleSources,
        WebhookClient, WebhookTls,
    },
    api::{Api, open_api},
    audit::{
        AuditLog, AuditMetrics, Durability, LogOptions, Logs, OnFailure, Overflow, Policy,
        Recorder, RotatingFile, Rotation, Tee, Webhook,
    },
    authn::{
        Anonymous, Authenticator, BearerTokens,
        certificate::ClientAuthorities,
        front_proxy::{PROXY_NAMES, ProxyNames},
        jwt::{SigningKey, VerifyingKey},
        local::{
            LocalTokens,
            socket::LocalSocket,
            unix_user::{AdminRule, UnixUsers},
        },
        service_account::ServiceAccountTokens,
        token_file::TokenFile,
    },
    authz::Authorizer,
    clock::Clock,
    controllers,
    http::{InFlight, Listener, Patience},
    kinds::{self, pod::PODS},
    metrics::Metrics,
    objects::Objects,
    pki::{Pki, PkiConfig, tls::server_config},
    proxy::{NodeProxy, ProxyLimits, address::NodeAddressType, session::SessionSigner},
    read::{EventRoom, Pages, Reader},
    registry::Resource,
    store::{KeyFile, Store},
    token_objects::TokenObjects,
    write::Writer,
};

/// Who issues service account tokens, and for whom.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// How long sessions may go on after the server was told to stop.
const SESSIONS: Duration = Duration::from_secs(5);

/// How long a request waits for a place in the audit log before it is refused.
const AUDIT_PATIENCE: Duration = Duration::from_secs(5);

/// What strangers may fill of the disk, and of the memory; it is theirs alone.
const STRANGERS_ROTATION: Rotation = Rotation {
    max_bytes: 10 << 20,
    max_backups: Some(3),
    max_age: None,
    keep_at_least: SignedDuration::ZERO,
};
const STRANGERS_PLACES: u32 = 4_096;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where keys, the embedded store and the audit log live.
    pub state_dir: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where objects are kept.
    pub store: StoreConfig,
    /// What of them is encrypted there.
    pub encryption: Encryption,
    /// Which features are on.
    pub gates: FeatureGates,
    /// What is allowed in the environments of pods beyond the features.
    pub env: EnvOptions,
    /// A CSV file of static tokens.
    pub token_file: Option<PathBuf>,
    /// An `audit.k8s.io/v1` policy; without one a built-in policy applies.
    pub audit_policy: Option<PathBuf>,
    /// Refuse what cannot be recorded, and record so that it survives the loss of power.
    pub strict_audit: bool,
    /// What becomes of requests that cannot be recorded.
    pub audit_failure: AuditFailure,
    /// When files of the audit log are full, and how long they are kept.
    pub audit_rotation: AuditRotation,
    /// A service that gets audit events, too.
    pub audit_webhook: Option<AuditWebhook>,
    /// What may be asked without saying who asks.
    pub anonymous: AnonymousAccess,
    /// Further keys whose service account tokens are believed, as PEM files.
    pub service_account_keys: Vec<PathBuf>,
    /// Which address of a node is dialled: the first of these that it has.
    pub node_address_types: Vec<NodeAddressType>,
    /// What one client, and all together, may ask for at once.
    pub limits: RequestLimits,
    /// How long a token from the local socket is good.
    pub login_lifetime: Duration,
}

/// What clients may ask for at once; names and defaults are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests that read, at once; one user has at most half of them. 0 is no limit.
    pub max_requests_inflight: usize,
    /// Requests that change something, at once; one user has at most half of them. 0 is no limit.
    pub max_mutating_requests_inflight: usize,
    /// Watches, sessions and logs that are followed, at once; one user has at most half of them. 0 is no
    /// limit. Each needs up to three of the 65,536 places of the audit log.
    pub max_lasting_requests: usize,
    /// How long a client may take to send the body of a request.
    pub request_timeout: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            max_lasting_requests: 16_384,
            request_timeout: Duration::from_secs(60),
        }
    }
}

/// What may be asked without saying who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnonymousAccess {
    /// Everything that the user `system:anonymous` may do.
    Everywhere,
    /// Nothing.
    Never,
    /// Health and version.
    #[default]
    Probes,
}

/// What becomes of requests that cannot be recorded. Sessions in containers are refused in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditFailure {
    /// They go on, and are recorded when that is possible again.
    #[default]
    Allow,
    /// They are refused.
    Fail,
}

/// When files of the audit log are full, and how long they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditRotation {
    /// The bytes of a file that is full.
    pub max_size: u64,
    /// How many full files are kept; `None` for all.
    pub max_backups: Option<usize>,
    /// How long they are kept; `None` for ever.
    pub max_age: Option<Duration>,
    /// Should `max_backups` make one go earlier, the log, a metric and an alert tell.
    pub keep_at_least: Duration,
}

impl Default for AuditRotation {
    fn default() -> Self {
        Self {
            max_size: 100 << 20,
            max_backups: Some(10),
            max_age: None,
            keep_at_least: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

/// A server that runs.
pub struct Server {
    address: SocketAddr,
    ca_certificate: String,
    socket_path: PathBuf,
    stop: CancellationToken,
    tasks: TaskTracker,
    socket: Option<LocalSocket>,
    api: Arc<Api>,
    pki: Arc<Pki>,
    audit_policy: Option<PathBuf>,
}

/// Why a server does not start: what was being done, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct ServerError {
    step: String,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Server {
    /// Starts a server; it serves when this returns.
    pub async fn start(config: Config) -> Result<Self, ServerError> {
        Self::start_with(config, None).await
    }

    /// The same, where `gate` may stand in for the rules that administrators write.
    async fn start_with(
        config: Config,
        gate: Option<Arc<dyn DynamicAdmission>>,
    ) -> Result<Self, ServerError> {
        let clock: Clock = Arc::new(now);
        let state = &config.state_dir;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(during(format!("listening on {}", config.listen)))?;
        let address = listener.local_addr().map_err(during("reading the listening address"))?;
        let pki = Pki::open(
            PkiConfig {
                dir: state.join("pki"),
                names: vec![address.ip().to_string()],
                ..PkiConfig::default()
            },
            clock(),
        )
        .map(Arc::new)
        .map_err(during("opening the keys of the cluster"))?;
        let authorizer = Arc::new(Authorizer::default());
        let sources = Arc::new(RuleSources::new());
        let store = store::open(&config.store, state).await?;
        let (store, keys) = encryption::seal(&config.encryption, state, store, clock()).await?;
        let stored = Arc::clone(&store) as _;
        let objects = load_objects(stored, &keys.file, &authorizer, &sources).await?;
        let objects = Arc::new(objects);
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let feed = (Arc::clone(&objects), stop.clone());
        tasks.spawn(async move { feed.0.feed(feed.1).await });
        tasks.spawn(encryption::follow_keys(store, keys, stop.clone()));

        let local =
            Arc::new(LocalTokens::new(config.login_lifetime).map_err(during("making a key"))?);
        let metrics = Metrics::new(config.gates);
        let audit_metrics = AuditMetrics::default();
        metrics.register(|registry| audit_metrics.register(registry));
        metrics.register(|registry| objects.register(registry));
        let admission_metrics = AdmissionMetrics::default();
        metrics.register(|registry| admission_metrics.register(registry));
        let rules = gate.unwrap_or_else(|| {
            let client = WebhookClient::new(Arc::clone(&objects), WebhookTls::new(&pki));
            Arc::new(Enforcer::new(Arc::clone(&sources), client, admission_metrics))
        });
        let webhook = config.audit_webhook.as_ref();
        let webhook = webhook.map(|it| audit_webhook::start(it, &metrics, &clock)).transpose()?;
        let recorder = Arc::new(recorder(&config, &audit_metrics, webhook.as_ref(), &clock)?);
        let authenticator = authenticator(&config, &pki, &local, &objects)?;
        let writer = Arc::new(Writer {
            objects: Arc::clone(&objects),
            admission: Admission {
                objects: Arc::clone(&objects),
                authorizer: Arc::clone(&authorizer),
                audiences: authenticator.tokens.service_accounts.audiences().to_vec(),
                dynamic: rules,
            },
            context: kinds::Context { gates: config.gates, env: config.env },
            clock: Arc::clone(&clock),
        });
        let api = Arc::new(Api {
            reader: Reader {
                objects: Arc::clone(&objects),
                pages: Pages::default(),
                room: EventRoom::default(),
            },
            writer: Arc::clone(&writer),
            authenticator,
            authorizer: Arc::clone(&authorizer),
            recorder: Arc::clone(&recorder),
            metrics,
            proxy: NodeProxy::new(tls_to_nodes(&pki)?, ProxyLimits::default()),
            session_signer: SessionSigner::new(pki.exec_session_key())
                .map_err(during("reading the key of exec sessions"))?,
            node_address_types: config.node_address_types.clone(),
            open_api: open_api(),
            sessions: TaskTracker::new(),
            changes: TaskTracker::new(),
            gates: config.gates,
            clock: Arc::clone(&clock),
            in_flight: InFlight::new(
                config.limits.max_requests_inflight,
                config.limits.max_mutating_requests_inflight,
                config.limits.max_lasting_requests,
            ),
            strangers_lines: Mutex::default(),
            request_timeout: config.limits.request_timeout,
        });
        controllers::ensure_basics(&writer, &recorder)
            .await
            .map_err(|status| during("creating the first objects")(status.message().to_owned()))?;
        // Not before: a webhook that does not answer must not keep the server from starting.
        sources.activate();
        let ca_certificate = pki.cluster_authority_pem().to_owned();
        let front_proxies = pki.front_proxy_authorities_pem();
        let told = controllers::Told { ca_certificate: &ca_certificate, front_proxies, address };
        controllers::start(&writer, &recorder, &authorizer, told, &tasks, &stop);

        let hints = [pki.cluster_authority().clone()];
        let tls = server_config(pki.serving(), &hints).map_err(during("setting up TLS"))?;
        let listener = Listener {
            socket: listener,
            tls: Arc::new(tls),
            patience: Patience::default(),
            open: OpenConnections::new(MostConnections::within(
                getrlimit(process::Resource::Nofile).current,
            )),
        };
        tasks.spawn(listener.serve(Arc::clone(&api), stop.clone()));
        tasks.spawn(renew(Arc::clone(&api), Arc::clone(&pki), stop.clone()));
        tasks.close();

        let socket_path = state.join("run").join("login.sock");
        let admins = AdminRule {
            server_uid: geteuid().as_raw(),
            group: crate::authz::MASTERS_GROUP.to_owned(),
        };
        let users = UnixUsers::new(admins);
        let socket = LocalSocket::bind(&socket_path, local, users, recorder, Arc::clone(&clock))
            .map_err(during("opening the local socket"))?;
        Ok(Self {
            address,
            ca_certificate,
            socket_path,
            stop,
            tasks,
            socket: Some(socket),
            api,
            pki,
            audit_policy: config.audit_policy,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of the authority that signed the server's, in PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.ca_certificate
    }

    /// Where `waybill login` gets its tokens.
    pub fn login_socket(&self) -> &Path {
        &self.socket_path
    }

    /// Opens the audit log again and reads its policy again, as after a change by the administrator.
    pub fn reload(&self) -> Result<(), ServerError> {
        self.api.recorder.reopen();
        self.api.recorder.set_policy(audit_policy(self.audit_policy.as_deref())?);
        Ok(())
    }

    /// A certificate, and its key, with which a client is `user` in `groups`; both in PEM.
    pub fn issue_client(
        &self,
        user: &str,
        groups: &[&str],
        lifetime: Duration,
    ) -> Result<(String, SecretBytes), ServerError> {
        let issued = self
            .pki
            .issue_client(user, groups, lifetime, (self.api.clock)())
            .map_err(during("issuing a certificate"))?;
        Ok((issued.certificate, issued.key))
    }

    /// Stops: no new connections, watches end, requests get a while to end.
    pub async fn stop(mut self) {
        if let Some(socket) = self.socket.take() {
            socket.close().await;
        }
        self.stop.cancel();
        for (_, cache) in self.api.reader.objects.caches() {
            cache.end_watches();
        }
        self.api.proxy.shutdown(SESSIONS).await;
        self.tasks.wait().await;
        self.api.changes.close();
        self.api.changes.wait().await;
    }
}

/// Ends everything at once, unless [`Server::stop`] did so before.
impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn load_objects(
    store: Arc<dyn Store>,
    key_file: &KeyFile,
    authorizer: &Arc<Authorizer>,
    sources: &Arc<RuleSources>,
) -> Result<Objects, ServerError> {
    let (authorizer, sources) = (Arc::clone(authorizer), Arc::clone(sources));
    let observer = move |resource: &'static Resource, old: Option<&_>, new: Option<&_>| {
        if resource.is(&PODS) {
            authorizer.nodes().pod_changed(old, new);
            return;
        }
        if resource.group == RULES_GROUP {
            sources.follow(resource, old, new);
            return;
        }
        let followed = match (old, new) {
            (_, Some(new)) => authorizer.rbac().put(new),
            (Some(old), None) => authorizer.rbac().delete(old),
            (None, None) => Ok(()),
        };
        if let Err(error) = followed {
            tracing::warn!(%error, "a role or binding grants nothing");
        }
    };
    let keys = key_file.path().display();
    let step = format!("reading the store with the keys of {keys}");
    Objects::load(store, Box::new(observer)).await.map_err(during(step))
}

fn authenticator(
    config: &Config,
    pki: &Pki,
    local: &Arc<LocalTokens>,
    objects: &Arc<Objects>,
) -> Result<Authenticator, ServerError> {
    let key = SigningKey::from_pem(pki.service_account_key())
        .map_err(during("reading the key of service accounts"))?;
    let file = match &config.token_file {
        Some(path) => TokenFile::open(path).map_err(during("reading the token file"))?,
        None => TokenFile::parse(&SecretBytes::from(Vec::new()))
            .map_err(during("reading the token file"))?,
    };
    let authorities = |roots: &[_]| {
        ClientAuthorities::new(roots).map_err(during("reading the authorities of clients"))
    };
    Ok(Authenticator {
        clients: authorities(&[pki.cluster_authority().clone()])?,
        front_proxies: authorities(pki.front_proxy_authorities())?,
        proxy_names: ProxyNames::new(PROXY_NAMES.iter().map(|&name| name.to_owned()).collect()),
        tokens: BearerTokens {
            file,
            local: Some(Arc::clone(local)),
            service_accounts: ServiceAccountTokens::new(
                ISSUER.to_owned(),
                vec![ISSUER.to_owned()],
                key,
                further_keys(config)?,
            ),
            objects: Arc::new(TokenObjects(Arc::clone(objects))),
        },
        anonymous: match config.anonymous {
            AnonymousAccess::Everywhere => Anonymous::Everywhere,
            AnonymousAccess::Never => Anonymous::Never,
            AnonymousAccess::Probes => Anonymous::default(),
        },
    })
}

fn further_keys(config: &Config) -> Result<Vec<VerifyingKey>, ServerError> {
    let read = |path: &PathBuf| {
        let what = format!("reading the key of service accounts {}", path.display());
        let pem = std::fs::read(path).map_err(during(what.clone()))?;
        VerifyingKey::from_pem(&pem).map_err(during(what))
    };
    config.service_account_keys.iter().map(read).collect()
}

fn recorder(
    config: &Config,
    metrics: &AuditMetrics,
    webhook: Option<&Arc<Webhook>>,
    clock: &Clock,
) -> Result<Recorder, ServerError> {
    let policy = audit_policy(config.audit_policy.as_deref())?;
    let AuditRotation { max_size, max_backups, max_age, keep_at_least } = config.audit_rotation;
    let rotation = Rotation {
        max_bytes: max_size,
        max_backups,
        max_age: max_age.map(saturating),
        keep_at_least: saturating(keep_at_least),
    };
    let options = if config.strict_audit {
        LogOptions {
            overflow: Overflow::Reject(AUDIT_PATIENCE),
            durability: Durability::Disk,
            ..LogOptions::default()
        }
    } else {
        LogOptions::default()
    };
    let log = |name: &str, rotation, options| {
        let path = config.state_dir.join("audit").join(name);
        audit_log(&path, rotation, options, metrics, webhook.cloned(), clock)
    };
    let users = log("audit.log", rotation, options)?;
    let places = LogOptions { places: STRANGERS_PLACES, ..options };
    let strangers = log("anonymous.log", STRANGERS_ROTATION, places)?;
    let on_failure = match config.audit_failure {
        AuditFailure::Allow if !config.strict_audit => OnFailure::Allow,
        _ => OnFailure::Refuse,
    };
    Ok(Recorder::new(policy, Logs::new(users, strangers), on_failure, Arc::clone(clock)))
}

fn audit_log(
    path: &Path,
    rotation: Rotation,
    options: LogOptions,
    metrics: &AuditMetrics,
    webhook: Option<Arc<Webhook>>,
    clock: &Clock,
) -> Result<AuditLog, ServerError> {
    let what = || format!("opening the audit log {}", path.display());
    let file = RotatingFile::open(path, rotation, clock()).map_err(during(what()))?;
    let file = file.counting(metrics.dropped.clone());
    let sink = Tee { file, webhook };
    AuditLog::start(sink, options, metrics.clone(), Arc::clone(clock)).map_err(during(what()))
}

fn saturating(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn audit_policy(path: Option<&Path>) -> Result<Policy, ServerError> {
    let Some(path) = path else { return Ok(Policy::built_in()) };
    let what = || format!("reading the audit policy {}", path.display());
    let text = std::fs::read_to_string(path).map_err(during(what()))?;
    Policy::parse(&text).map_err(during(what()))
}

/// Names the step that failed.
fn during<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    step: impl Into<String>,
) -> impl FnOnce(E) -> ServerError {
    let step = step.into();
    move |source| ServerError { step, source: source.into() }
}

#[expect(clippy::disallowed_methods, reason = "the one clock of the server, passed to everybody")]
fn now() -> Timestamp {
    Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
