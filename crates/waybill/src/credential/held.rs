//! `waybill credential list` and `forget`: what the agent holds, and its end.

use std::io::{self, Write};

use anyhow::Result;
use jiff::Timestamp;
use waybill_credential::agent::{HeldCredential, Listing};

use super::agent;
use crate::{Outcome, columns::align};

/// Make the agent forget what it holds.
///
/// The next kubectl runs its plugin again. Plugins that keep credentials themselves may still give the old one.
#[derive(clap::Args)]
pub(super) struct ForgetArgs {
    /// Forget only what this plugin gave, as `waybill credential list` names it.
    #[arg(value_name = "PLUGIN", conflicts_with = "all")]
    plugin: Option<String>,

    /// Forget everything, which is what happens if no plugin is named.
    #[arg(long)]
    all: bool,
}

pub(super) async fn list() -> Result<Outcome> {
    let listing = agent::find()?.list().await?;
    let mut out = io::stdout().lock();
    match listing {
        None => writeln!(out, "no agent runs, and nothing is held")?,
        Some(listing) => write!(out, "{}", show(&listing))?,
    }
    Ok(Outcome::Success)
}

pub(super) async fn forget(args: &ForgetArgs) -> Result<Outcome> {
    let count = agent::find()?.forget(args.plugin.clone()).await?;
    let mut out = io::stdout().lock();
    match count {
        0 => writeln!(out, "there was nothing to forget")?,
        1 => writeln!(out, "forgot 1 credential")?,
        count => writeln!(out, "forgot {count} credentials")?,
    }
    Ok(Outcome::Success)
}

fn show(listing: &Listing) -> String {
    let swap = if listing.locked { "is never swapped out" } else { "may be swapped out" };
    let head = format!("agent: process {}, whose memory {swap}\n", listing.pid);
    if listing.held.is_empty() {
        return head + "nothing is held\n";
    }
    let titles = ["PLUGIN", "SERVER", "OBTAINED", "EXPIRES", "USES"].map(str::to_owned).to_vec();
    let rows: Vec<_> = [titles].into_iter().chain(listing.held.iter().map(row)).collect();
    head + &align(&rows)
}

fn row(held: &HeldCredential) -> Vec<String> {
    let time = |second| {
        Timestamp::from_second(second).map_or_else(|_| "?".to_owned(), |time| time.to_string())
    };
    vec![
        held.plugin.clone(),
        held.server.clone().unwrap_or_else(|| "-".to_owned()),
        time(held.obtained),
        held.expires.map_or_else(|| "-".to_owned(), time),
        held.uses.to_string(),
    ]
}
