//! `waybill login`: a credential plugin for kubeconfigs.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, anyhow};
use jiff::Timestamp;
use waybill_credential::login::{self, LoginError};

use crate::Outcome;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Get a short-lived credential for your Unix user from a local API server.
///
/// Meant to be run by kubectl and other clients, as the kubeconfig of `waybill apiserver` says. The
/// server sees from the socket who you are; nothing is stored.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The socket in the server's state directory.
    #[arg(long, value_name = "SOCKET", default_value = "/var/lib/waybill/run/login.sock")]
    socket: PathBuf,

    /// Have clients ask again after so long, rather than shortly before the token ends.
    #[arg(long, value_name = "SECONDS")]
    renew_after: Option<u32>,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fetched = runtime.block_on(login::fetch(&args.socket, PATIENCE));
    let mut credential = fetched.map_err(|error| told(error, &args.socket))?;
    if let Some(seconds) = args.renew_after {
        let end = Timestamp::now() + Duration::from_secs(seconds.into());
        credential = login::shorten(&credential, end)?;
    }
    io::stdout().write_all(credential.expose())?;
    Ok(Outcome::Success)
}

/// Clients show this to people who did not call us, and a cluster that was stopped is what it mostly is.
fn told(error: LoginError, socket: &Path) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => anyhow!(
            "the cluster does not run: nobody answers at {}; start it with `waybill up`",
            socket.display()
        ),
        io::ErrorKind::PermissionDenied if !error.is_refusal() => {
            anyhow!("your user may not use {}; ask whoever runs the cluster", socket.display())
        }
        _ => error.into(),
    }
}
