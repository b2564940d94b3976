//! `waybill encryption`: the keys of what an API server encrypts in its store.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result};
use clap::Subcommand;
use jiff::Timestamp;
use waybill_apiserver::{KeyUse, StoreKeys};

use crate::{
    Outcome,
    apiserver::{EncryptionArgs, StoreArgs},
    state_dir::own_directory,
};

/// Look after the keys of what is encrypted in the store.
///
/// An API server encrypts Secrets before they get into its store, under the first key of a file. It reads what was
/// written under the others, and writes that anew when it starts and when the file changes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill encryption rotate              # while the server runs, or before it starts
  waybill encryption status              # which key encrypts how much
  waybill encryption prune               # removes keys that nothing needs any more

Several servers on one etcd each have a copy of the file. Give them the new key first as the last line of it, so that
all can read what the others write; then move that line to the top.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a key and encrypt everything under it.
    ///
    /// The server does that within seconds if it runs, and otherwise when it starts; its metric
    /// waybill_store_values_to_rewrite is 0 when it is done. Older keys stay in the file until `prune`.
    Rotate(Place),
    /// Say which key encrypts how many values.
    ///
    /// An embedded store is asked while its server does not run.
    Status(Place),
    /// Remove keys that no value in the store needs.
    ///
    /// An embedded store is asked while its server does not run. Copies of the store from earlier still need them.
    Prune(Place),
}

/// Which server's keys: the same flags that it was started with.
#[derive(clap::Args)]
struct Place {
    /// Directory for everything the server keeps.
    #[arg(long, value_name = "DIR", env = "WAYBILL_STATE_DIR", default_value = "/var/lib/waybill")]
    state_dir: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    encryption: EncryptionArgs,
}

impl Place {
    fn keys(self) -> Result<StoreKeys> {
        let state_dir = own_directory(&self.state_dir)?;
        Ok(StoreKeys::new(&state_dir, self.store.config()?, self.encryption.config())?)
    }
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match args.command {
            Command::Rotate(place) => rotate(&place.keys()?)?,
            Command::Status(place) => status(&place.keys()?).await?,
            Command::Prune(place) => prune(&place.keys()?).await?,
        }
        Ok(Outcome::Success)
    })
}

fn rotate(keys: &StoreKeys) -> Result<()> {
    let id = keys.add(Timestamp::now())?;
    let path = keys.path().display();
    let mut output = io::stdout();
    writeln!(output, "{path}: the key {id} is for writing now")?;
    writeln!(output, "the server encrypts everything under it, within seconds or when it starts;")?;
    writeln!(output, "keep a copy of the file, elsewhere than copies of the store")?;
    Ok(())
}

async fn status(keys: &StoreKeys) -> Result<()> {
    let (uses, plain) = keys.uses().await.context(IN_USE)?;
    let mut output = io::stdout();
    for (at, KeyUse { id, in_file, values }) in uses.iter().enumerate() {
        let role = match (in_file, at) {
            (false, _) => "MISSING: these values cannot be read; put the key back",
            (true, 0) => "for writing",
            (true, _) if *values == 0 => "not needed any more",
            (true, _) => "for reading",
        };
        writeln!(output, "{id:<24} {values:>8} values   {role}")?;
    }
    if plain > 0 {
        writeln!(
            output,
            "{:<24} {plain:>8} values   encrypted when the server starts",
            "not encrypted"
        )?;
    }
    Ok(())
}

async fn prune(keys: &StoreKeys) -> Result<()> {
    let removed = keys.prune().await.context(IN_USE)?;
    let mut output = io::stdout();
    match removed.as_slice() {
        [] => writeln!(output, "every key is needed")?,
        removed => writeln!(output, "removed {}", removed.join(", "))?,
    }
    Ok(())
}

const IN_USE: &str = "the store must be read for this; stop the server if it is an embedded one";
