//! `waybill login`: a credential plugin for kubeconfigs.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::Result;
use jiff::Timestamp;
use waybill_credential::login;

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
    let mut credential = runtime.block_on(login::fetch(&args.socket, PATIENCE))?;
    if let Some(seconds) = args.renew_after {
        let end = Timestamp::now() + Duration::from_secs(seconds.into());
        credential = login::shorten(&credential, end)?;
    }
    io::stdout().write_all(credential.expose())?;
    Ok(Outcome::Success)
}
