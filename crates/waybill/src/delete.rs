//! `waybill delete`: ends objects, and waits until they are gone.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use waybill_client::{Place, Resource, Resources, delete_options};

use crate::{
    Outcome,
    apply::{Named, read_all},
    cluster::{Cluster, ClusterArgs},
    get::query,
    target::{resource, targets},
    terminal::plain,
};

/// Delete objects.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill delete pod web
  waybill delete pod/web configmap/web
  waybill delete -f pod.yaml --grace-period 0
  waybill delete pods -l app=web --wait=false")]
pub(crate) struct Args {
    /// A type and names, as `pod NAME…` or `TYPE/NAME…`.
    #[arg(value_name = "TYPE", required_unless_present = "filename", conflicts_with = "filename")]
    what: Vec<String>,

    /// The objects of these files; directories and - as for `waybill apply`.
    #[arg(short, long, value_name = "FILE")]
    filename: Vec<PathBuf>,

    /// All objects with these labels.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "filename")]
    selector: Option<String>,

    /// All objects of the type, in the namespace.
    #[arg(long, conflicts_with_all = ["filename", "selector"])]
    all: bool,

    /// How many seconds an object has to end; what it says itself by default.
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,

    /// Wait until the objects are gone.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    wait: bool,

    /// Do not complain about objects that are not there.
    #[arg(long)]
    ignore_not_found: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// One object that has to go.
struct Doomed<'a> {
    resource: &'a Resource,
    place: Place,
    name: String,
}

pub(crate) fn run(mut args: Args) -> Result<Outcome> {
    let files = std::mem::take(&mut args.filename);
    args.cluster.reserve_stdin(&files);
    let manifests = if files.is_empty() { Vec::new() } else { read_all(&files)? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let what = std::mem::take(&mut args.what);
        let wanted = if manifests.is_empty() { targets(&what)? } else { Vec::new() };
        let selector = args.selector.take();
        let (grace, wait, forgiving, all) =
            (args.grace_period, args.wait, args.ignore_not_found, args.all);
        let cluster = args.cluster.connect().await?;
        let resources = Resources::fetch(&cluster.requests.client()).await?;
        let mut doomed = Vec::new();
        for (file, manifest) in &manifests {
            doomed.push(of_manifest(&cluster, &resources, manifest).with_context(|| file.clone())?);
        }
        for (kind, name) in wanted {
            let resource = resource(&resources, &kind)?;
            match (name, &selector) {
                (Some(_), Some(_)) => bail!("a name and --selector do not go together"),
                (Some(name), None) => {
                    doomed.push(Doomed { resource, place: cluster.place(), name });
                }
                (None, Some(labels)) => doomed.extend(listed(&cluster, resource, labels).await?),
                (None, None) if all => doomed.extend(listed(&cluster, resource, "").await?),
                (None, None) => bail!("say which {kind}: a name, --selector or --all"),
            }
        }
        let mut going = Vec::new();
        for doomed in doomed {
            match end(&cluster, &doomed, grace).await {
                Ok(uid) => going.push((doomed, uid)),
                Err(error) if forgiving && is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if wait {
            for (doomed, uid) in going {
                let Doomed { resource, place, name } = doomed;
                cluster.requests.wait_for_end(resource, &place, &name, &uid).await?;
            }
        }
        Ok(Outcome::Success)
    })
}

/// Asks for the end of an object; returns its uid.
async fn end(cluster: &Cluster, doomed: &Doomed<'_>, grace: Option<u32>) -> Result<String> {
    let Doomed { resource, place, name } = doomed;
    let path = resource.object_path(place, name);
    let answer = cluster.requests.delete(&path, &delete_options(grace, None)).await?;
    writeln!(io::stdout(), "{}/{} deleted", resource.display_name(), plain(name))?;
    // The object itself, or a status that names it.
    let uid = answer.pointer("/metadata/uid").or_else(|| answer.pointer("/details/uid"));
    Ok(uid.and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn of_manifest<'a>(
    cluster: &Cluster,
    resources: &'a Resources,
    manifest: &Value,
) -> Result<Doomed<'a>> {
    let Named { api_version, kind, name, namespace } = Named::of(manifest)?;
    let resource = resources
        .of_kind(api_version, kind)
        .with_context(|| format!("the server has no kind {kind} in {api_version}"))?;
    Ok(Doomed { resource, place: cluster.place_of(namespace)?, name: name.to_owned() })
}

async fn listed<'a>(
    cluster: &Cluster,
    resource: &'a Resource,
    labels: &str,
) -> Result<Vec<Doomed<'a>>> {
    let place = cluster.place();
    let path = format!("{}?{}", resource.path(&place), query(&[("labelSelector", labels)]));
    let list = cluster.requests.get(&path).await?;
    let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
    let names = items.filter_map(|item| item.pointer("/metadata/name")?.as_str());
    Ok(names.map(|name| Doomed { resource, place: place.clone(), name: name.to_owned() }).collect())
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<waybill_client::RequestError>();
    error.is_some_and(waybill_client::RequestError::is_not_found)
}
