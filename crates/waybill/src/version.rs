//! `waybill version`: what this build is.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::json;
use waybill_api::gates::KubeVersion;

use crate::Outcome;

/// Say what this build is: version, commit, target, and the Kubernetes version whose rules it follows.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Json,
    Text,
}

/// From the build script: a commit with `-changed` behind it if files differed from it, or `unknown`.
const COMMIT: &str = env!("WAYBILL_COMMIT");
const TARGET: &str = env!("WAYBILL_TARGET");
const PROFILE: &str = env!("WAYBILL_PROFILE");

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let version = env!("CARGO_PKG_VERSION");
    let kubernetes = KubeVersion::default();
    let text = match args.output {
        Output::Json => serde_json::to_string_pretty(&json!({
            "version": version,
            "commit": COMMIT,
            "target": TARGET,
            "profile": PROFILE,
            "kubernetes": kubernetes.to_string(),
        }))?,
        Output::Text => format!(
            "waybill {version}\ncommit      {COMMIT}\ntarget      {TARGET}\nprofile     {PROFILE}\nKubernetes  {kubernetes}"
        ),
    };
    writeln!(io::stdout(), "{text}")?;
    Ok(Outcome::Success)
}
