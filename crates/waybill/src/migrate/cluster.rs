//! Objects of a cluster: read, shown with their changes, and changed.

use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use waybill_client::{Resource, Resources};

use super::{
    SecretsStore,
    class::{MIGRATED_FROM, MigratedFrom},
    document::{items, set, text, title},
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
    // All of them before anything is written.
    for object in &plan.new {
        check_new(&cluster, &resources, object).await?;
    }
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

/// Refuses a new object whose name another one has: it may be an administrator's, and names of new objects
/// come from those of tenants.
async fn check_new(cluster: &Cluster, resources: &Resources, object: &Value) -> Result<()> {
    let Named { api_version, kind, name, namespace } = Named::of(object)?;
    let Some(resource) = resources.of_kind(api_version, kind) else { return Ok(()) };
    let place = cluster.place_of(namespace)?;
    match cluster.requests.get(&resource.object_path(&place, name)).await {
        Ok(found) if is_ours(&found, object) => Ok(()),
        Ok(_) => bail!(
            "there is a {kind} {name} already, which says something else; nothing was written. Rename \
             it, or the SecretProviderClass"
        ),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{} {name}", resource.display_name())),
    }
}

/// Whether `found` is what an earlier migration of the same class made, or says no more than `new`.
fn is_ours(found: &Value, new: &Value) -> bool {
    let same = |pointer: &str| found.pointer(pointer) == new.pointer(pointer);
    match text(new, "/kind") {
        Some("ProviderClass") => {
            let origin = migrated_from(found);
            origin.is_some() && origin == migrated_from(new)
        }
        // A planned one is only for such as ask for no tokens.
        Some("CSIDriver") => true,
        Some("ClusterRole") => same("/rules"),
        Some("RoleBinding") => {
            let subjects = items(new, "/subjects");
            same("/roleRef/name")
                && items(found, "/subjects").iter().all(|it| subjects.contains(it))
        }
        _ => false,
    }
}

/// Namespace and name of the SecretProviderClass that a class stands for.
fn migrated_from(class: &Value) -> Option<(String, String)> {
    let annotation = class.pointer("/metadata/annotations")?.get(MIGRATED_FROM)?;
    let origin: MigratedFrom = serde_json::from_str(annotation.as_str()?).ok()?;
    Some((origin.namespace, origin.name))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// CSI-70
    #[test]
    fn objects_of_others_are_not_overwritten_csi_70() {
        let class = |from: &str| {
            let from = json!({"name": from, "namespace": "shop", "variables": []}).to_string();
            json!({"kind": "ProviderClass", "metadata": {"annotations": {MIGRATED_FROM: from}}})
        };
        assert!(is_ours(&class("db"), &class("db")));
        assert!(!is_ours(&class("other"), &class("db")));
        assert!(!is_ours(&json!({"kind": "ProviderClass", "metadata": {}}), &class("db")));
        let role = |verb: &str| json!({"kind": "ClusterRole", "rules": [{"verbs": [verb]}]});
        assert!(is_ours(&role("use"), &role("use")) && !is_ours(&role("*"), &role("use")));
        let binding = |names: &[&str]| {
            let subjects: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"kind": "RoleBinding", "roleRef": {"name": "r"}, "subjects": subjects})
        };
        assert!(is_ours(&binding(&["a"]), &binding(&["a", "b"])));
        assert!(!is_ours(&binding(&["a", "c"]), &binding(&["a", "b"])));
    }
}
