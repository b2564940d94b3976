//! `waybill apiserver`: the API server as a process of its own.

mod audit_webhook;
mod encryption;
mod store;

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use waybill_api::{
    gates::{FeatureGates, KubeVersion},
    pod::EnvOptions,
};
use waybill_apiserver::{
    AnonymousAccess, AuditFailure, AuditRotation, Config, NodeAddressType, RequestLimits, Server,
};
use waybill_core::chain::Chain;

use self::audit_webhook::AuditWebhookArgs;
pub(crate) use self::{encryption::EncryptionArgs, store::StoreArgs};
use crate::{
    Outcome,
    log::{self, LogFormat},
    rest,
    state_dir::{no_links, own_directory},
    swap,
};

/// Run a Kubernetes API server.
///
/// Keys, certificates, the embedded store and the audit log live in the state directory, which also
/// gets a kubeconfig. That kubeconfig holds no credential: it runs `waybill login`, which gets a
/// short-lived token for your Unix user from a socket in the state directory.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  waybill apiserver --state-dir /var/lib/waybill &
  kubectl --kubeconfig /var/lib/waybill/kubeconfig get namespaces")]
pub(crate) struct Args {
    /// Directory for everything the server keeps; made if it is missing.
    #[arg(long, value_name = "DIR", env = "WAYBILL_STATE_DIR", default_value = "/var/lib/waybill")]
    state_dir: PathBuf,

    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    encryption: EncryptionArgs,

    /// The Kubernetes version whose defaults apply.
    #[arg(long, value_name = "VERSION", value_parser = KubeVersion::parse, default_value_t)]
    emulated_version: KubeVersion,

    /// Feature gates, as `A=true,B=false`.
    #[arg(long, value_name = "GATES", default_value = "")]
    feature_gates: String,

    /// Refuse pods that mount a volume in a container that reads an env file from it, or in one
    /// that is no init container; without this they are warned of.
    #[arg(long)]
    strict_env_file_mounts: bool,

    /// Allow `csiSecretRef.optional` below the emulated version 1.37 (csiEnvOptional).
    #[arg(long)]
    csi_env_optional: bool,

    /// Static tokens, one `token,user,uid,"group1,group2"` per line.
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// Which requests are recorded, as an audit.k8s.io/v1 Policy; without one, a built-in policy.
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,

    /// Refuse requests that cannot be recorded, and write records through to the disk.
    #[arg(long)]
    audit_strict: bool,

    /// What becomes of requests that cannot be recorded, such as on a full disk. Exec, attach,
    /// port-forward and proxy are refused in any case.
    #[arg(long, value_name = "WHAT", default_value = "allow")]
    audit_log_failure: AuditFailureFlag,

    /// Megabytes after which a file of the audit log is full.
    #[arg(long, value_name = "MB", default_value_t = 100)]
    audit_log_maxsize: u64,

    /// How many full files of the audit log are kept; 0 for all.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    audit_log_maxbackup: usize,

    /// How many days full files of the audit log are kept; 0 for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    audit_log_maxage: u32,

    /// A file that --audit-log-maxbackup removes before it is so many days old is told of: in the log, by
    /// the metric waybill_audit_files_dropped_early_total, and by an alert.
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    audit_log_keep_at_least: u32,

    /// What may be asked without credentials.
    #[arg(long, value_name = "WHAT", default_value = "probes")]
    anonymous_auth: Anonymous,

    /// Further public keys whose service account tokens are believed, as PEM; repeatable.
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,

    /// Which address of a node is dialled: the first of these that it has.
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        value_parser = parse_address_type,
        default_values = NodeAddressType::USUAL.map(NodeAddressType::name)
    )]
    kubelet_preferred_address_types: Vec<NodeAddressType>,

    /// Requests that read, at once; of one user at most half. 0 is no limit.
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    max_requests_inflight: usize,

    /// Requests that change something, at once; of one user at most half. 0 is no limit.
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    max_mutating_requests_inflight: usize,

    /// How long a client may take to send the body of a request, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    request_timeout: u64,

    /// How long a token of `waybill login` is good, in seconds. Clients get the next one by themselves.
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    login_token_lifetime: u64,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    #[command(flatten)]
    audit_webhook: AuditWebhookArgs,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let gates = FeatureGates::parse(&args.feature_gates, args.emulated_version)?;
    let state_dir = own_directory(&args.state_dir)?;
    let config = Config {
        state_dir: state_dir.clone(),
        listen: args.listen,
        store: args.store.config()?,
        encryption: args.encryption.config(),
        gates,
        env: EnvOptions {
            csi_env_optional: args.csi_env_optional,
            strict_env_file_mounts: args.strict_env_file_mounts,
        },
        token_file: args.token_auth_file,
        audit_policy: args.audit_policy_file,
        strict_audit: args.audit_strict,
        audit_failure: args.audit_log_failure.into(),
        audit_rotation: AuditRotation {
            max_size: args.audit_log_maxsize.max(1).saturating_mul(1 << 20),
            max_backups: Some(args.audit_log_maxbackup).filter(|count| *count > 0),
            max_age: Some(days(args.audit_log_maxage)).filter(|age| !age.is_zero()),
            keep_at_least: days(args.audit_log_keep_at_least),
        },
        audit_webhook: args.audit_webhook.config(),
        anonymous: args.anonymous_auth.into(),
        service_account_keys: args.service_account_key_file,
        node_address_types: args.kubelet_preferred_address_types,
        limits: RequestLimits {
            max_requests_inflight: args.max_requests_inflight,
            max_mutating_requests_inflight: args.max_mutating_requests_inflight,
            request_timeout: Duration::from_secs(args.request_timeout),
            ..RequestLimits::default()
        },
        login_lifetime: Duration::from_secs(args.login_token_lifetime),
    };
    log::start(args.log_format);
    // It has the content of Secrets, which is encrypted on disk, in memory as it is.
    swap::stay_out();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = Server::start(config).await?;
        let kubeconfig = write_kubeconfig(&state_dir, &server)?;
        rest::hold_little_memory();
        writeln!(io::stdout(), "serving on https://{}", server.address())?;
        writeln!(io::stdout(), "try: kubectl --kubeconfig {} get ns", kubeconfig.display())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        loop {
            tokio::select! {
                result = tokio::signal::ctrl_c() => break result?,
                _ = terminate.recv() => break,
                _ = hang_up.recv() => {
                    if let Err(error) = server.reload() {
                        tracing::error!(error = %Chain(&error), "the old audit policy stays");
                    }
                }
            }
        }
        server.stop().await;
        Ok(Outcome::Success)
    })
}

fn days(count: u32) -> Duration {
    Duration::from_secs(u64::from(count) * 24 * 3600)
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum AuditFailureFlag {
    /// They go on, and are recorded when that is possible again.
    Allow,
    /// They fail with code 503.
    Fail,
}

impl From<AuditFailureFlag> for AuditFailure {
    fn from(flag: AuditFailureFlag) -> Self {
        match flag {
            AuditFailureFlag::Allow => Self::Allow,
            AuditFailureFlag::Fail => Self::Fail,
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Anonymous {
    /// Everything that RBAC gives to system:anonymous.
    Everywhere,
    Never,
    /// Health and version.
    Probes,
}

impl From<Anonymous> for AnonymousAccess {
    fn from(anonymous: Anonymous) -> Self {
        match anonymous {
            Anonymous::Everywhere => Self::Everywhere,
            Anonymous::Never => Self::Never,
            Anonymous::Probes => Self::Probes,
        }
    }
}

fn parse_address_type(name: &str) -> Result<NodeAddressType, String> {
    NodeAddressType::parse(name).ok_or_else(|| {
        let known = NodeAddressType::USUAL.map(NodeAddressType::name).join(", ");
        format!("expected one of {known}")
    })
}

/// Writes a kubeconfig whose user is our own credential plugin.
fn write_kubeconfig(state_dir: &Path, server: &Server) -> Result<PathBuf> {
    let path = state_dir.join("kubeconfig");
    let certificate = state_dir.join("ca.crt");
    write(&certificate, server.ca_certificate().as_bytes(), 0o644)?;
    let program = std::env::current_exe().context("finding this program")?;
    // JSON is YAML, and quoting is right by construction.
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "waybill", "cluster": {
            "server": format!("https://{}", server.address()),
            "certificate-authority": certificate,
        }}],
        "users": [{"name": "waybill", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": program,
            "args": ["login", "--socket", server.login_socket()],
            "interactiveMode": "Never",
        }}}],
        "contexts": [{"name": "waybill", "context": {"cluster": "waybill", "user": "waybill"}}],
        "current-context": "waybill",
    });
    write(&path, &serde_json::to_vec_pretty(&kubeconfig)?, 0o644)?;
    Ok(path)
}

/// Puts the file in its place when it is whole. One that is as it should be needs no room on the disk.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    if fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    let new = path.with_added_extension("new");
    let write = || -> io::Result<()> {
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(true).mode(mode).custom_flags(no_links());
        let mut file = options.open(&new)?;
        file.write_all(content)?;
        fs::rename(&new, path)
    };
    let written = match write() {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            // Nothing is lost if there is none.
            let _ = fs::remove_file(&new);
            write_over(path, content)
        }
        written => written,
    };
    let advice = "make room, or give --listen the port of last time";
    written.with_context(|| format!("writing {}: {advice}", path.display()))
}

/// Writes into the file that is there, which takes no room: a server on a full disk must start, because deleting objects makes
/// room. Blanks at the end of what is shorter than before mean nothing in it.
fn write_over(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = fs::File::options().write(true).custom_flags(no_links()).open(path)?;
    let before = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut padded = content.to_vec();
    padded.resize(before.max(content.len()), b' ');
    file.write_all(&padded)
}
