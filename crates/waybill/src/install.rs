//! `waybill install` and `waybill uninstall`: Waybill on a cluster whose components are not ours.

use std::io::{self, Write};

use anyhow::Result;
use clap::ValueEnum;
use waybill_stock::install::{
    DEFAULT_IMAGE, InstallOptions, RemoveOptions, check, install, manifests, remove,
};

use crate::{Outcome, cluster::ClusterArgs, terminal::plain};

/// Install Waybill on a cluster whose API server, kubelets and runtimes are not ours.
///
/// Applies a namespace, rights, the gate, an agent for every node, a RuntimeClass, a CSIDriver, webhooks and policies. A second
/// time changes nothing; a newer program upgrades in place. Each node's runtime is restarted once, when its agent has written
/// a handler into its configuration; containers go on meanwhile.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill install --check
  waybill install --image registry.example/waybill:0.1.0
  waybill install --print > waybill.yaml

Then label namespaces, and their new pods are covered:
  kubectl label namespace shop waybill.dev/exec=enforce")]
pub(crate) struct Args {
    /// The image of gates and agents; `cargo xtask image` makes one.
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    image: String,

    /// What becomes of an exec without a session, in namespaces whose label waybill.dev/exec does not say.
    #[arg(long, value_name = "MODE", default_value = "record")]
    mode: ModeArg,

    /// An audience of the pods' tokens that drivers need; repeat it for more.
    #[arg(long, value_name = "NAME")]
    audience: Vec<String>,

    /// Print the manifests, and do nothing.
    #[arg(long, conflicts_with = "check")]
    print: bool,

    /// Say what the cluster lacks, and do nothing.
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// It is refused
    Enforce,
    /// It happens, and is on record as nobody's
    Record,
}

/// Take Waybill off a cluster, while pods run.
///
/// First what could refuse requests, then what is on the nodes, then the rest. Pods of the RuntimeClass go on; on their nodes a
/// link to the real runtime stays in the place of the wrapper.
#[derive(clap::Args)]
pub(crate) struct RemoveArgs {
    /// Go on although pods have variables from drivers; those cannot end afterwards until Waybill is installed again.
    #[arg(long)]
    ignore_pods: bool,

    /// Leave the ProviderClasses.
    #[arg(long)]
    keep_classes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let options = InstallOptions {
        image: args.image.clone(),
        mode: match args.mode {
            ModeArg::Enforce => "enforce".to_owned(),
            ModeArg::Record => "record".to_owned(),
        },
        audiences: args.audience.clone(),
    };
    if args.print {
        for object in manifests(&options)?.iter().flatten() {
            writeln!(io::stdout(), "---\n{}", serde_json::to_string_pretty(object)?)?;
        }
        return Ok(Outcome::Success);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = args.cluster.connect().await?.requests.client();
        if args.check {
            let findings = check(&client, &options).await?;
            for finding in &findings {
                let mark = if finding.is_fault { "lacks" } else { "ok   " };
                writeln!(io::stdout(), "{mark}  {}", plain(&finding.text))?;
            }
            let is_fit = !findings.iter().any(|finding| finding.is_fault);
            return Ok(if is_fit { Outcome::Success } else { Outcome::Failure });
        }
        install(&client, &options, &mut say).await?;
        Ok(Outcome::Success)
    })
}

pub(crate) fn run_remove(args: &RemoveArgs) -> Result<Outcome> {
    let options = RemoveOptions { ignore_pods: args.ignore_pods, keep_classes: args.keep_classes };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = args.cluster.connect().await?.requests.client();
        remove(&client, options, &mut say).await?;
        Ok(Outcome::Success)
    })
}

/// A step that was done.
fn say(step: &str) {
    let _ = writeln!(io::stdout(), "{}", plain(step));
}
