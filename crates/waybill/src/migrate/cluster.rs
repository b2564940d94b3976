//! Objects of a cluster: read, shown with their changes, and changed.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde_json::Value;
use waybill_client::{Resource, Resources};

use super::{
    SecretsStore,
    document::{set, text, title},
    edit,
    files::{Files, written},
    plan::Plan,
    synced, tell, write_diff,
};
use crate::{Outcome, apply::Named, cluster::Cluster};

/// Which kinds are read, as far as the cluster has them.
const KINDS: [(&str, &str); 12] = [
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("secrets-store.csi.x-k8s.io/v1", "SecretProviderClass"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "ProviderClass"),
    ("v1", "Pod"),
    ("v1", "PodTemplate"),
    ("v1", "ReplicationController"),
    ("v1", "ServiceAccount"),
];

/// Migrates the cluster; classes may also come from files.
pub(super) async fn run(args: &SecretsStore, files: &Files) -> Result<Outcome> {
    let cluster = args.cluster.connect().await?;
    let resources = Resources::fetch(&cluster.requests.client()).await?;
    let mut objects = Vec::new();
    for (api_version, kind) in KINDS {
        if let Some(resource) = resources.of_kind(api_version, kind) {
            read(&cluster, resource, &mut objects).await?;
        }
    }
    // A class in a file stands in for one in a cluster without the kind, and is not written.
    let is_class = |it: &Value| {
        text(it, "/kind") == Some("ProviderClass")
            || text(it, "/apiVersion").is_some_and(|it| it.starts_with(synced::GROUP))
    };
    let from_cluster = objects.clone();
    objects.extend(files.objects().into_iter().filter(is_class));
    let plan = args.plan(&objects, cluster.namespace.clone());

    let mut output = io::stdout().lock();
    let changed = changed(&from_cluster, &plan);
    if args.write {
        for object in plan.new.iter().chain(changed.iter().map(|(_, after)| after)) {
            let done = write(&cluster, &resources, object).await?;
            writeln!(output, "{done}")?;
        }
    } else {
        for (before, after) in &changed {
            let name = title(before, &cluster.namespace);
            let texts = [before, after].map(|it| written(std::slice::from_ref(it)));
            let [before, after] = texts;
            write_diff(&mut output, &name, &before?, &after?)?;
        }
        write_diff(&mut output, "new objects", "", &written(&plan.new)?)?;
    }
    output.flush()?;
    tell(&plan.report, std::iter::empty())
}

async fn read(cluster: &Cluster, resource: &Resource, objects: &mut Vec<Value>) -> Result<()> {
    let mut list = cluster.requests.get(&resource.path(&cluster.place())).await?;
    let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else { return Ok(()) };
    for mut item in items {
        let fields = [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())];
        for (field, text) in fields {
            set(&mut item, field, text);
        }
        if let Some(object) = item.as_object_mut() {
            object.remove("status");
        }
        if let Some(Value::Object(metadata)) = item.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        // What a controller made follows its owner.
        if item.pointer("/metadata/ownerReferences").is_none() {
            objects.push(item);
        }
    }
    Ok(())
}

/// The objects before and after; pods that run cannot change.
fn changed(objects: &[Value], plan: &Plan) -> Vec<(Value, Value)> {
    let changed = |(at, changes): (&usize, &Vec<_>)| {
        let before = objects.get(*at).filter(|it| text(it, "/kind") != Some("Pod"))?;
        let mut after = before.clone();
        edit::apply(&mut after, changes);
        Some((before.clone(), after))
    };
    plan.changes.iter().filter_map(changed).collect()
}

/// Makes a new object, or puts a changed one in its place. The version that was read goes along, so
/// that nobody else's change is lost.
async fn write(cluster: &Cluster, resources: &Resources, object: &Value) -> Result<String> {
    let Named { api_version, kind, name, namespace } = Named::of(object)?;
    let resource = resources
        .of_kind(api_version, kind)
        .with_context(|| format!("the server has no kind {kind} in {api_version}"))?;
    let place = cluster.place_of(namespace)?;
    let doing = || format!("{} {name}", resource.display_name());
    if object.pointer("/metadata/resourceVersion").is_some() {
        let path = resource.object_path(&place, name);
        cluster.requests.replace(&path, object).await.with_context(doing)?;
    } else {
        cluster.requests.apply(resource, &place, name, object).await.with_context(doing)?;
    }
    Ok(format!("{}/{name} written", resource.display_name()))
}
