//! What is served, told to clients: `/api`, `/apis` and below.

pub(crate) mod aggregated;

use serde_json::{Value, json};

use crate::{
    document::put,
    registry::{RESOURCES, Resource, api_version, group_versions},
};

/// The document at `path`, if it is one of discovery.
pub(crate) fn document(path: &str) -> Option<Value> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match segments.as_slice() {
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        ["api", version] => resource_list("", version),
        ["apis"] => Some(json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": groups().into_iter().map(group).collect::<Vec<_>>(),
        })),
        ["apis", name] if groups().contains(name) => {
            let mut document = group(name);
            put(&mut document, "/kind", "APIGroup");
            put(&mut document, "/apiVersion", "v1");
            Some(document)
        }
        ["apis", group, version] => resource_list(group, version),
        _ => None,
    }
}

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = group_versions().into_iter().map(|(group, _)| group).collect();
    groups.retain(|group| !group.is_empty());
    groups.dedup();
    groups
}

fn group(name: &str) -> Value {
    let versions: Vec<Value> = group_versions()
        .into_iter()
        .filter(|(group, _)| *group == name)
        .map(|(group, version)| {
            json!({"groupVersion": api_version(group, version), "version": version})
        })
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resource_list(group: &str, version: &str) -> Option<Value> {
    let of_version = |resource: &&Resource| resource.group == group && resource.version == version;
    let resources: Vec<Value> =
        RESOURCES.iter().copied().filter(of_version).flat_map(with_subresources).collect();
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": api_version(group, version),
            "resources": resources,
        })
    })
}

fn with_subresources(resource: &'static Resource) -> Vec<Value> {
    let mut row = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.is_namespaced(),
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        put(&mut row, "/shortNames", json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        put(&mut row, "/categories", json!(resource.categories));
    }
    let mut rows = vec![row];
    for subresource in resource.subresources {
        let kind = if subresource.kind.is_empty() { resource.kind } else { subresource.kind };
        let mut row = json!({
            "name": format!("{}/{}", resource.plural, subresource.name),
            "singularName": "",
            "namespaced": resource.is_namespaced(),
            "kind": kind,
            "verbs": subresource.verbs,
        });
        if let Some((group, version)) = subresource.group_version {
            put(&mut row, "/group", group);
            put(&mut row, "/version", version);
        }
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_version_lists_its_resources() {
        for (group, version) in group_versions() {
            let path = match group {
                "" => format!("/api/{version}"),
                group => format!("/apis/{group}/{version}"),
            };
            let document = document(&path).unwrap();
            assert_eq!(document["kind"], "APIResourceList", "{path}");
            assert!(!document["resources"].as_array().unwrap().is_empty(), "{path}");
        }
        assert_eq!(document("/apis").unwrap()["kind"], "APIGroupList");
        assert_eq!(document("/api").unwrap()["versions"], json!(["v1"]));
        assert_eq!(document("/apis/storage.k8s.io").unwrap()["preferredVersion"]["version"], "v1");
        assert_eq!(document("/apis/none"), None);
        assert_eq!(document("/healthz"), None);
    }

    #[test]
    fn subresources_stand_beside_their_resource() {
        let core = document("/api/v1").unwrap();
        let names: Vec<_> = core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap())
            .collect();
        for wanted in ["pods", "pods/exec", "pods/log", "pods/status", "serviceaccounts/token"] {
            assert!(names.contains(&wanted), "{wanted}");
        }
    }
}
