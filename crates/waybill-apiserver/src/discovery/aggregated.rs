//! All that is served in two documents: `/api` and `/apis` as clients of today ask for them (`apidiscovery.k8s.io`, version 2).
//!
//! A client that takes them asks twice, where it else asks once for each group and version.

use serde_json::{Map, Value, json};

use super::groups;
use crate::{
    document::put,
    registry::{RESOURCES, Resource, Subresource, group_versions},
};

/// What such documents are called, which is how clients tell them from the others at the same paths.
pub(crate) const MEDIA_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Whether `accept` names these documents before the others.
pub(crate) fn is_wanted(accept: &str) -> bool {
    let wanted = accept.split(',').find_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let (mut group, mut version, mut kind) = ("", "", "");
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "g" => group = value.trim(),
                "v" => version = value.trim(),
                "as" => kind = value.trim(),
                _ => {}
            }
        }
        match (group, version, kind) {
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => Some(true),
            (_, _, "") => Some(false),
            _ => None,
        }
    });
    wanted.unwrap_or(false)
}

/// The document at `path`, if it is one of the two.
pub(crate) fn document(path: &str) -> Option<Value> {
    let names = match path.trim_matches('/') {
        "api" => vec![""],
        "apis" => groups(),
        _ => return None,
    };
    Some(json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": names.into_iter().map(group).collect::<Vec<_>>(),
    }))
}

fn group(name: &str) -> Value {
    let mut metadata = Map::new();
    if !name.is_empty() {
        metadata.insert("name".to_owned(), name.into());
    }
    let versions = group_versions().into_iter().filter(|(group, _)| *group == name);
    let versions: Vec<_> = versions.map(|(group, version)| of_version(group, version)).collect();
    json!({ "metadata": metadata, "versions": versions })
}

fn of_version(group: &str, version: &str) -> Value {
    let resources = RESOURCES.iter().filter(|it| it.group == group && it.version == version);
    let resources: Vec<_> = resources.map(|it| row(it)).collect();
    json!({ "version": version, "resources": resources, "freshness": "Current" })
}

fn row(resource: &Resource) -> Value {
    let mut row = json!({
        "resource": resource.plural,
        "responseKind": kind(resource.group, resource.version, resource.kind),
        "scope": if resource.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        put(&mut row, "/shortNames", json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        put(&mut row, "/categories", json!(resource.categories));
    }
    let below: Vec<_> = resource.subresources.iter().map(|it| row_below(resource, it)).collect();
    if !below.is_empty() {
        put(&mut row, "/subresources", below);
    }
    row
}

fn row_below(resource: &Resource, subresource: &Subresource) -> Value {
    let own = (resource.group, resource.version);
    let (group, version) = subresource.group_version.unwrap_or(own);
    let name = if subresource.kind.is_empty() { resource.kind } else { subresource.kind };
    json!({
        "subresource": subresource.name,
        "responseKind": kind(group, version, name),
        "verbs": subresource.verbs,
    })
}

fn kind(group: &str, version: &str, kind: &str) -> Value {
    json!({ "group": group, "version": version, "kind": kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_they_name_first() {
        let plain = "application/json";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert!(is_wanted(MEDIA_TYPE));
        // What client-go asks for.
        assert!(is_wanted(&format!("{MEDIA_TYPE},{beta},{plain}")));
        assert!(is_wanted(&format!("{beta}, {MEDIA_TYPE};profile=nopeer, {plain}")));
        for other in ["", "*/*", plain, beta, "text/html", &format!("{plain},{MEDIA_TYPE}")] {
            assert!(!is_wanted(other), "{other}");
        }
    }

    #[test]
    fn all_that_is_served_is_in_two_documents() {
        let mut found = Vec::new();
        for path in ["/api", "/apis/"] {
            let document = document(path).unwrap();
            for group in document["items"].as_array().unwrap() {
                let name = group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                for version in group["versions"].as_array().unwrap() {
                    let label = version["version"].as_str().unwrap();
                    for row in version["resources"].as_array().unwrap() {
                        found.push((name.clone(), label.to_owned(), row["resource"].clone()));
                    }
                }
            }
        }
        let all: Vec<_> = RESOURCES
            .iter()
            .map(|it| (it.group.to_owned(), it.version.to_owned(), json!(it.plural)))
            .collect();
        assert_eq!(found, all);
        assert_eq!(document("/apis/apps"), None);
    }

    #[test]
    fn subresources_stand_below_their_resource_with_their_own_kinds() {
        let core = document("/api").unwrap();
        let accounts = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
        let accounts = accounts.iter().find(|it| it["resource"] == "serviceaccounts").unwrap();
        let expected = json!({
            "resource": "serviceaccounts",
            "responseKind": { "group": "", "version": "v1", "kind": "ServiceAccount" },
            "scope": "Namespaced",
            "singularResource": "serviceaccount",
            "verbs": Resource::BASE.verbs,
            "shortNames": ["sa"],
            "subresources": [{
                "subresource": "token",
                "responseKind": {
                    "group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest",
                },
                "verbs": ["create"],
            }],
        });
        assert_eq!(*accounts, expected);
    }
}
