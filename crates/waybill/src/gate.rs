//! `waybill gate`: admission webhooks for clusters whose API server is not ours.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use waybill_client::{Options, Session, connect, connect_in_cluster};
use waybill_stock::gate::{Config, Gate, PairPaths};

use crate::{
    Outcome,
    log::{self, LogFormat},
    rest,
};

/// Answer the admission webhooks of a cluster whose API server is not ours.
///
/// /validate judges ProviderClasses as our own API server does, /validate-pods the pods whose variables come from
/// them: whether class, driver, namespace, key and the right of the service account agree. It keeps nothing, so
/// any number may run. When it cannot judge it answers with an error, and the failurePolicy of the webhook decides.
/// Manifests are in deploy/gate.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,

    /// The certificate to show to the API server, in PEM; read again when it changes.
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,

    /// Its key.
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,

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

pub(crate) fn run(args: Args) -> Result<Outcome> {
    log::start_at(args.log_format, args.verbose);
    let drain = Duration::from_secs(args.drain);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let session = session(args.kubeconfig).await?;
        let config = Config {
            listen: args.listen,
            serving: PairPaths { certificate: args.tls_cert, key: args.tls_key },
            group: args.provider_class_group,
        };
        let gate = Gate::start(config, session.client).await?;
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

async fn session(kubeconfig: Option<PathBuf>) -> Result<Session> {
    Ok(match kubeconfig {
        Some(kubeconfig) => connect(&Options { kubeconfig, ..Options::default() }).await?,
        None => connect_in_cluster()?,
    })
}
