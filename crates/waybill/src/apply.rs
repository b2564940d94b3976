//! `waybill apply`: makes objects as manifests say.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use waybill_client::{Applied, Resources, read_manifests};

use crate::{
    Outcome,
    cluster::{Cluster, ClusterArgs},
    terminal::plain,
};

/// Create the objects of manifests, or change those that are there.
///
/// A field that the manifest does not name stays as it is, so nothing is removed by leaving it out;
/// kubectl apply does that, this command is for machines without kubectl.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill apply -f pod.yaml
  waybill apply -f manifests/ -n team-a
  generate | waybill apply -f -")]
pub(crate) struct Args {
    /// A file, a directory whose .yaml, .yml and .json files are taken, or - for standard input.
    #[arg(short, long, required = true, value_name = "FILE")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(mut args: Args) -> Result<Outcome> {
    args.cluster.reserve_stdin(&args.filename);
    let manifests = read_all(&args.filename)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = args.cluster.connect().await?;
        let resources = Resources::fetch(&cluster.requests.client()).await?;
        for (file, manifest) in &manifests {
            let line = apply(&cluster, &resources, manifest).await.with_context(|| file.clone())?;
            writeln!(io::stdout(), "{}", plain(&line))?;
        }
        Ok(Outcome::Success)
    })
}

/// Applies one object; says what that did.
async fn apply(cluster: &Cluster, resources: &Resources, manifest: &Value) -> Result<String> {
    let Named { api_version, kind, name, namespace } = Named::of(manifest)?;
    let resource = resources
        .of_kind(api_version, kind)
        .with_context(|| format!("the server has no kind {kind} in {api_version}"))?;
    let place = cluster.place_of(namespace)?;
    let applied = cluster.requests.apply(resource, &place, name, manifest).await?;
    let done = match applied {
        Applied::Created => "created",
        Applied::Configured => "configured",
        Applied::Unchanged => "unchanged",
    };
    Ok(format!("{}/{name} {done}", resource.display_name()))
}

/// Which object a manifest is about.
pub(crate) struct Named<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) namespace: Option<&'a str>,
}

impl<'a> Named<'a> {
    pub(crate) fn of(manifest: &'a Value) -> Result<Self> {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let kind = kind.unwrap_or_default();
        let name = text("/metadata/name").filter(|name| !name.is_empty());
        Ok(Self {
            api_version: api_version.unwrap_or_default(),
            kind,
            name: name.with_context(|| format!("an object of kind {kind} has no metadata.name"))?,
            namespace: text("/metadata/namespace"),
        })
    }
}

/// Every object of the files, with the name of its file.
pub(crate) fn read_all(files: &[PathBuf]) -> Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for path in files {
        for (name, text) in texts(path)? {
            let manifests = read_manifests(&text).with_context(|| name.clone())?;
            found.extend(manifests.into_iter().map(|manifest| (name.clone(), manifest)));
        }
    }
    if found.is_empty() {
        bail!("there is no object in what was given");
    }
    Ok(found)
}

/// The files of a path, each with its name.
pub(crate) fn texts(path: &Path) -> Result<Vec<(String, String)>> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(vec![("standard input".to_owned(), text)]);
    }
    let doing = |path: &Path| format!("cannot read {}", path.display());
    if !fs::metadata(path).with_context(|| doing(path))?.is_dir() {
        let text = fs::read_to_string(path).with_context(|| doing(path))?;
        return Ok(vec![(path.display().to_string(), text)]);
    }
    let entries = fs::read_dir(path).with_context(|| doing(path))?;
    let mut files = entries.map(|it| it.map(|it| it.path())).collect::<io::Result<Vec<_>>>()?;
    files.retain(|it| it.is_file() && is_manifest(it));
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).with_context(|| doing(&file))?;
        Ok((file.display().to_string(), text))
    };
    files.into_iter().map(read).collect()
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["json", "yaml", "yml"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_gives_its_manifests_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let pod = |name: &str| format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}}}");
        for (file, name) in [("b.yml", "b"), ("a.yaml", "a"), ("c.json.off", "c")] {
            fs::write(dir.path().join(file), pod(name)).unwrap();
        }
        let found = read_all(&[dir.path().to_owned()]).unwrap();
        let names: Vec<_> = found.iter().map(|(_, it)| Named::of(it).unwrap().name).collect();
        assert_eq!(names, ["a", "b"]);
        let empty = tempfile::tempdir().unwrap();
        assert!(read_all(&[empty.path().to_owned()]).is_err());
    }
}
