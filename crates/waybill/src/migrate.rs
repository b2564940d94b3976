//! `waybill migrate secrets-store`: from Secrets that the Secrets Store CSI driver keeps in step to
//! variables from drivers, and back (CSI-70).

mod class;
mod cluster;
mod document;
mod edit;
mod files;
mod mapping;
mod plan;
mod reverse;
mod synced;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Result, bail};
use serde_json::Value;
use similar::TextDiff;

use self::{
    files::Files,
    plan::{Options, Plan, Report},
};
use crate::{Outcome, cluster::ClusterArgs};

/// Move variables from other systems to Waybill's drivers.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(clap::Subcommand)]
enum From {
    SecretsStore(Box<SecretsStore>),
}

/// Variables from Secrets that the Secrets Store CSI driver keeps in step: take them from a driver.
///
/// Reads every SecretProviderClass and the workloads that use its Secrets in secretKeyRef or envFrom.
/// Shows the ProviderClasses to create, with the grants for the service accounts, and every workload
/// with csiSecretRef in place of secretKeyRef; changes nothing before you say --write. Vault and AWS get
/// the driver of that name; other providers stay where they are and are asked by the driver `provider`.
///
/// The SecretProviderClasses stay, so that --reverse can go back. Ends with 1 if anything could not be
/// mapped; each such thing is listed with the reason, and left as it was.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill migrate secrets-store -f manifests/
  waybill migrate secrets-store -f manifests/ --write --new-objects provider-classes.yaml
  kubectl get secretproviderclass,deploy -A -o yaml | waybill migrate secrets-store -f -
  waybill migrate secrets-store --in-cluster -n shop
  waybill migrate secrets-store -f manifests/ -f provider-classes.yaml --reverse")]
struct SecretsStore {
    /// A file, a directory whose .yaml, .yml and .json files are taken, or - for standard input.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// The objects of the cluster, in the namespace of -n.
    #[arg(long)]
    in_cluster: bool,

    /// Change the files, or the cluster, rather than show what would change.
    #[arg(long)]
    write: bool,

    /// Where --write puts the new objects of files.
    #[arg(long, value_name = "FILE", default_value = "provider-classes.yaml")]
    new_objects: PathBuf,

    /// Go back, from csiSecretRef to secretKeyRef.
    #[arg(long)]
    reverse: bool,

    /// Ask the providers of Vault and AWS too, rather than our own drivers.
    #[arg(long, conflicts_with = "reverse")]
    keep_provider: bool,

    /// Take away the volumes that were there to keep the Secrets in step. Only for programs that do not
    /// read the mounted files.
    #[arg(long, conflicts_with = "reverse")]
    drop_volumes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let From::SecretsStore(mut args) = args.from;
    args.cluster.reserve_stdin(&args.filename);
    if args.filename.is_empty() && !args.in_cluster {
        bail!("name manifests with -f, or say --in-cluster");
    }
    let files = Files::read(&args.filename)?;
    if !args.in_cluster {
        let namespace = args.cluster.options().namespace.unwrap_or_else(|| "default".to_owned());
        let plan = args.plan(&files.objects(), namespace);
        return args.carry_out_in_files(&files, &plan);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(cluster::run(&args, &files))
}

impl SecretsStore {
    fn plan(&self, objects: &[Value], namespace: String) -> Plan {
        let Self { keep_provider, drop_volumes, .. } = *self;
        let options = Options { namespace, keep_provider, drop_volumes };
        match self.reverse {
            false => Plan::forward(objects, &options),
            true => Plan::reverse(objects, &options),
        }
    }

    fn carry_out_in_files(&self, files: &Files, plan: &Plan) -> Result<Outcome> {
        let changed = files.changed(plan)?;
        let new = files::written(&plan.new)?;
        let mut output = io::stdout().lock();
        if self.write {
            // First: a workload without its class does not start, and a class without workloads is no harm.
            if !new.is_empty() {
                files::create(&self.new_objects, &new)?;
                writeln!(output, "{} written", self.new_objects.display())?;
            }
            changed.iter().try_for_each(|file| file.write(&mut output))?;
        } else {
            for file in &changed {
                write_diff(&mut output, &file.name, &file.before, &file.after)?;
            }
            write_diff(&mut output, &self.new_objects.display().to_string(), "", &new)?;
        }
        output.flush()?;
        tell(&plan.report, changed.iter().filter_map(files::Changed::note))
    }
}

/// Shows a change as `diff -u` does.
fn write_diff(output: &mut impl Write, name: &str, before: &str, after: &str) -> Result<()> {
    if before != after {
        let diff = TextDiff::from_lines(before, after);
        write!(output, "{}", diff.unified_diff().context_radius(3).header(name, name))?;
    }
    Ok(())
}

/// Says on standard error what people should know.
fn tell(report: &Report, notes: impl Iterator<Item = String>) -> Result<Outcome> {
    let mut output = io::stderr().lock();
    for line in &report.mapped {
        writeln!(output, "mapped: {line}")?;
    }
    for line in report.notes.iter().cloned().chain(notes) {
        writeln!(output, "note: {line}")?;
    }
    for line in &report.left {
        writeln!(output, "left as it is: {line}")?;
    }
    if report.mapped.is_empty() && report.left.is_empty() {
        writeln!(
            output,
            "nothing to migrate: no variable is read from a Secret that a class makes"
        )?;
    }
    Ok(if report.left.is_empty() { Outcome::Success } else { Outcome::Failure })
}

#[cfg(test)]
mod tests;
