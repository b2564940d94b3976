//! `waybill gate`: admission webhooks for clusters whose API server is not ours.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use waybill_client::{Options, Session, connect, connect_in_cluster};
use waybill_stock::gate::{Caller, Config, Gate, PairPaths, Serving};

use crate::{
    Outcome,
    log::{self, LogFormat},
    rest, swap,
};

/// Answer the admission webhooks of a cluster whose API server is not ours.
///
/// It judges ProviderClasses as our own API server does and pods whose variables come from them, gives new pods what
/// their references need, and signs each exec session into its command, so that the node can tell that the API server
/// let it pass. What it keeps is in memory, so any number may run. When it cannot judge it answers with an error, and
/// the failurePolicy of the webhook decides. Manifests are in deploy/gate.
///
/// Each session is a line of JSON on the standard output: who, when, which pod and container, and the names of the
/// caller's variables. A session whose line cannot be written does not begin.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,

    /// The address at which other gates reach this one, so that each has the records of all. Without it they are not shared.
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,

    /// Whose questions are answered.
    #[arg(long, value_name = "WHO")]
    caller: CallerKind,

    /// With --caller=mtls: the authority of callers' certificates, in PEM; read again when it changes.
    #[arg(long, value_name = "FILE", required_if_eq("caller", "mtls"))]
    client_ca: Option<PathBuf>,

    /// With --caller=mtls: a common name that callers may have; repeatable.
    #[arg(long, value_name = "NAME", required_if_eq("caller", "mtls"))]
    client_name: Vec<String>,

    /// The certificate to show to the API server, in PEM; read again when it changes. Without it the gate makes its own
    /// and writes its authority into our webhook configurations.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A DNS name or address for the certificate that the gate makes; repeatable. The names of the Service if none is
    /// given.
    #[arg(long, value_name = "NAME", conflicts_with = "tls_cert")]
    serving_name: Vec<String>,

    /// The namespace of the gate's own objects: its authority, the public keys of all replicas and of nodes.
    #[arg(long, value_name = "NAMESPACE", default_value = "waybill-system")]
    system_namespace: String,

    /// Seconds for which a new key is published before it signs, so that nodes know it.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    key_lead: u64,

    /// The kubeconfig of the cluster. Without it, this must be a pod of the cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The API group of ProviderClasses in the cluster: that of our manifests, or storage.k8s.io.
    #[arg(long, value_name = "GROUP", default_value = "waybill.dev")]
    provider_class_group: String,

    /// Seconds to go on for, as not ready, after a signal to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain: u64,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Log more; twice for everything. RUST_LOG overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Whose questions are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CallerKind {
    /// API servers through their own aggregator: the front-proxy certificate and the user system:apiserver.
    Aggregator,
    /// Clients with a certificate of --client-ca and one of the names --client-name.
    Mtls,
    /// Whoever reaches the port. They can have any command signed for any pod as a session of anybody, so that records
    /// prove nothing. For trying things out.
    Anyone,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    log::start_at(args.log_format, args.verbose);
    swap::stay_out();
    let drain = Duration::from_secs(args.drain);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let session = session(args.kubeconfig.clone()).await?;
        let gate = Gate::start(config(args)?, session.client, Box::new(io::stdout())).await?;
        rest::hold_little_memory();
        writeln!(io::stdout(), "serving on https://{}", gate.address())?;
        tokio::select! {
            result = tokio::signal::ctrl_c() => result?,
            _ = terminate.recv() => {}
        }
        // A second signal means now.
        tokio::select! {
            () = gate.leave(drain) => {}
            result = tokio::signal::ctrl_c() => result?,
            _ = terminate.recv() => {}
        }
        gate.stop().await;
        Ok(Outcome::Success)
    })
}

fn config(args: Args) -> Result<Config> {
    let caller = match (args.caller, args.client_ca) {
        (CallerKind::Aggregator, None) => Caller::Aggregator,
        (CallerKind::Anyone, None) => Caller::Anyone,
        (CallerKind::Mtls, Some(authority)) => Caller::Mtls { authority, names: args.client_name },
        _ => bail!("--client-ca belongs to --caller=mtls"),
    };
    let serving = match (args.tls_cert, args.tls_key) {
        (Some(certificate), Some(key)) => Serving::Files(PairPaths { certificate, key }),
        _ if args.serving_name.is_empty() => {
            let service = format!("waybill-gate.{}.svc", args.system_namespace);
            Serving::Own(vec![format!("{service}.cluster.local"), service])
        }
        _ => Serving::Own(args.serving_name),
    };
    Ok(Config {
        listen: args.listen,
        advertise: args.advertise_address,
        serving,
        caller,
        group: args.provider_class_group,
        namespace: args.system_namespace,
        key_lead: Duration::from_secs(args.key_lead.min(600)),
        clock: Arc::new(|| Timestamp::now().as_second()),
    })
}

async fn session(kubeconfig: Option<PathBuf>) -> Result<Session> {
    Ok(match kubeconfig {
        Some(kubeconfig) => connect(&Options { kubeconfig, ..Options::default() }).await?,
        None => connect_in_cluster()?,
    })
}
