//! `waybill get`: objects as the server's tables, or as they are.

use std::{
    io::{self, Write},
    pin::pin,
};

use anyhow::{Result, bail};
use clap::ValueEnum;
use futures_util::StreamExt;
use serde_json::{Value, json};
use waybill_client::{Place, Requests, Resource, Resources, Shape};

use crate::{
    Outcome,
    cluster::{Cluster, ClusterArgs},
    columns::align,
    target::{resource, targets},
    terminal::{escaped, plain},
};

/// Show objects.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill get pods -A
  waybill get pod web -o yaml
  waybill get pods,configmaps -l app=web
  waybill get pods -w")]
pub(crate) struct Args {
    /// A type and names, as `pods`, `pod NAME…` or `TYPE/NAME…`.
    #[arg(required = true, value_name = "TYPE")]
    what: Vec<String>,

    /// In all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Only objects with these labels, as `a=b,c!=d`.
    #[arg(short = 'l', long, value_name = "LABELS", default_value = "")]
    selector: String,

    /// How to print them.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,

    /// Go on with what changes.
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Name,
    Table,
    /// The table with more columns.
    Wide,
    Yaml,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let wanted = targets(&args.what)?;
    if wanted.iter().any(|(_, name)| name.is_some())
        && (args.all_namespaces || !args.selector.is_empty())
    {
        bail!("a name is one object; leave -A and -l away, or the name");
    }
    if args.watch && (wanted.len() > 1 || !matches!(args.output, Format::Table | Format::Wide)) {
        bail!("--watch shows a table of one type");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shape = Shape { namespaces: args.all_namespaces, wide: args.output == Format::Wide };
        let cluster = args.cluster.connect().await?;
        let resources = Resources::fetch(&cluster.requests.client()).await?;
        let place = if args.all_namespaces { Place::Everywhere } else { cluster.place() };
        let mut paths = Vec::new();
        for (kind, name) in &wanted {
            let resource = resource(&resources, kind)?;
            paths.push((resource, path(resource, &place, name.as_deref(), &args.selector)));
        }
        match args.output {
            Format::Table | Format::Wide => tables(&cluster, &paths, shape, args.watch).await,
            Format::Name => names(&cluster.requests, &paths).await,
            Format::Json | Format::Yaml => documents(&cluster.requests, &paths, args.output).await,
        }
    })
}

fn path(resource: &Resource, place: &Place, name: Option<&str>, selector: &str) -> String {
    let path = match name {
        Some(name) => resource.object_path(place, name),
        None => resource.path(place),
    };
    match selector {
        "" => path,
        selector => format!("{path}?{}", query(&[("labelSelector", selector)])),
    }
}

/// Parameters as a query.
pub(crate) fn query(parameters: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                    char::from(byte).to_string()
                }
                other => format!("%{other:02X}"),
            })
            .collect()
    };
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", escape(value));
    parameters.iter().map(pair).collect::<Vec<_>>().join("&")
}

async fn tables(
    cluster: &Cluster,
    paths: &[(&Resource, String)],
    shape: Shape,
    watch: bool,
) -> Result<Outcome> {
    let mut empty = true;
    for (index, (_, path)) in paths.iter().enumerate() {
        let table = cluster.requests.table(path).await?;
        if !table.is_empty() {
            let gap = if index > 0 && !empty { "\n" } else { "" };
            write!(io::stdout(), "{gap}{}", align(&table.lines(shape)))?;
            empty = false;
        }
        if watch {
            return follow(cluster, path, table.resource_version(), shape).await;
        }
    }
    if empty {
        let place = if shape.namespaces {
            String::new()
        } else {
            format!(" in namespace {}", cluster.namespace)
        };
        writeln!(io::stderr(), "nothing found{place}")?;
    }
    Ok(Outcome::Success)
}

async fn follow(cluster: &Cluster, path: &str, version: &str, shape: Shape) -> Result<Outcome> {
    let joint = if path.contains('?') { '&' } else { '?' };
    let path = format!("{path}{joint}watch=true&resourceVersion={version}");
    let mut tables = pin!(cluster.requests.watch_tables(&path).await?);
    while let Some(table) = tables.next().await {
        // Only the first table of a watch names its columns, and people have seen them.
        let lines = table?.lines(shape);
        let rows: Vec<_> = lines.into_iter().skip(1).collect();
        write!(io::stdout(), "{}", align(&rows))?;
    }
    Ok(Outcome::Success)
}

async fn names(requests: &Requests, paths: &[(&Resource, String)]) -> Result<Outcome> {
    for (resource, path) in paths {
        for object in objects(requests.get(path).await?) {
            let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            writeln!(io::stdout(), "{}/{}", resource.display_name(), plain(name))?;
        }
    }
    Ok(Outcome::Success)
}

async fn documents(
    requests: &Requests,
    paths: &[(&Resource, String)],
    format: Format,
) -> Result<Outcome> {
    let mut found = Vec::new();
    for (_, path) in paths {
        found.push(with_kinds(requests.get(path).await?));
    }
    let document = match <[Value; 1]>::try_from(found) {
        Ok([one]) => one,
        Err(several) => {
            let items: Vec<_> = several.into_iter().flat_map(objects).collect();
            json!({"apiVersion": "v1", "kind": "List", "items": items})
        }
    };
    let mut output = io::stdout().lock();
    if format == Format::Yaml {
        output.write_all(serde_saphyr::to_string(&document)?.as_bytes())?;
    } else {
        writeln!(output, "{}", escaped(&serde_json::to_string_pretty(&document)?))?;
    }
    Ok(Outcome::Success)
}

/// A list whose items say what they are, so that each can be used alone; servers say it once for all.
fn with_kinds(mut document: Value) -> Value {
    let text = |field| document.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let Some(kind) = kind.strip_suffix("List") else { return document };
    let items = document.get_mut("items").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        item.entry("kind").or_insert_with(|| kind.into());
        item.entry("apiVersion").or_insert_with(|| version.as_str().into());
    }
    document
}

/// The objects of a list, or the one object that it is.
fn objects(mut document: Value) -> Vec<Value> {
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => vec![document],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_a_list_can_be_used_alone() {
        let list = json!({"kind": "PodList", "apiVersion": "v1", "items": [
            {"metadata": {"name": "a"}}, {"kind": "Other", "apiVersion": "x/v1"},
        ]});
        let items = objects(with_kinds(list));
        let kinds: Vec<_> = items.iter().map(|it| (&it["kind"], &it["apiVersion"])).collect();
        assert_eq!(kinds, [(&json!("Pod"), &json!("v1")), (&json!("Other"), &json!("x/v1"))]);
        let pod = json!({"kind": "Pod", "spec": {}});
        assert_eq!(objects(with_kinds(pod.clone())), [pod]);
    }

    #[test]
    fn queries_are_escaped() {
        let query = query(&[("labelSelector", "a in (b, c)"), ("x", "ü&")]);
        assert_eq!(query, "labelSelector=a%20in%20%28b%2C%20c%29&x=%C3%BC%26");
    }
}
