//! `waybill driver os`.

use std::path::PathBuf;

use anyhow::Result;
use waybill_csi::{
    drivers::os::{KEYS, Os},
    server::Server,
};

use super::serve::{ServeArgs, serve};
use crate::Outcome;

/// Facts about the host: names, kernel, distribution, processors, memory, network.
///
/// Its name is os.csi.waybill.dev. Nothing that it tells is secret.
#[derive(clap::Args)]
#[command(after_help = keys())]
pub(crate) struct Args {
    /// Where the host's files are; in a container, where they are mounted.
    #[arg(long, value_name = "DIR", default_value = "/")]
    host_root: PathBuf,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(args: Args) -> Result<Outcome> {
    let driver = Os::new(args.host_root);
    serve(args.serve, |config| Server::start(driver, config))
}

fn keys() -> String {
    let lines = KEYS.iter().map(|(key, meaning)| format!("  {key:<30} {meaning}\n"));
    format!("Keys:\n{}", lines.collect::<String>())
}
