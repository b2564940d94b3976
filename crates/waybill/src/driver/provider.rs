//! `waybill driver provider`.

use std::path::PathBuf;

use anyhow::Result;
use waybill_csi::{
    drivers::provider::{DIRECTORIES, Provider},
    server::Server,
};

use super::serve::{ServeArgs, serve};
use crate::Outcome;

/// Values from any provider of the Secrets Store CSI driver, by its socket; nothing is written.
///
/// Its name is provider.csi.waybill.dev. Its CSIDriver object must ask for the tokens that the provider wants.
#[derive(clap::Args)]
#[command(after_help = "\
Keys are paths of files, as the provider names them: the alias of an object, or its name.

Parameters of a class are those of a SecretProviderClass, and:
  provider  the name of the provider, such as vault, aws, azure or gcp

The provider of AWS must run with --driver-writes-secrets=true.")]
pub(crate) struct Args {
    /// Where providers have their sockets; repeat it for more places.
    #[arg(long, value_name = "DIR", default_values = DIRECTORIES)]
    providers_dir: Vec<PathBuf>,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(args: Args) -> Result<Outcome> {
    let driver = Provider::new(args.providers_dir);
    serve(args.serve, |config| Server::start(driver, config))
}
