//! What an API server serves, and how its users call it.

use futures_util::future::try_join_all;
use http::{Request, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{
    Client,
    core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::RequestError;

/// A kind of objects that can be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// As manifests name it.
    pub kind: String,
    /// As paths name it.
    pub plural: String,
    /// For one object.
    pub singular: String,
    /// For people who type a lot.
    pub short_names: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

/// Where objects are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In all namespaces.
    Everywhere,
    /// In this one. Objects that live in none are found too.
    Namespace(String),
}

impl Resource {
    /// `v1`, or `group/version`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// As messages name it: `pod`, or `role.rbac.authorization.k8s.io`.
    pub fn display_name(&self) -> String {
        match self.group.as_str() {
            "" => self.singular.clone(),
            group => format!("{}.{group}", self.singular),
        }
    }

    /// The path of the objects of a place.
    pub fn path(&self, place: &Place) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match place {
            Place::Namespace(namespace) if self.namespaced => {
                format!("{root}/namespaces/{}/{}", escape(namespace), self.plural)
            }
            _ => format!("{root}/{}", self.plural),
        }
    }

    /// The path of one object.
    pub fn object_path(&self, place: &Place, name: &str) -> String {
        format!("{}/{}", self.path(place), escape(name))
    }
}

/// All that an API server serves, in its own order of preference.
#[derive(Clone, Debug, Default)]
pub struct Resources(Vec<Resource>);

impl Resources {
    /// Asks the API server: at once if it knows aggregated discovery, and otherwise version by version.
    pub async fn fetch(client: &Client) -> Result<Self, RequestError> {
        let core = aggregated(client, "/api").await?;
        if core.items.is_empty() {
            return Self::fetch_plain(client).await;
        }
        let groups = aggregated(client, "/apis").await?;
        Ok(Self(resources_in(core).chain(resources_in(groups)).collect()))
    }

    async fn fetch_plain(client: &Client) -> Result<Self, RequestError> {
        let core = client.list_core_api_versions().await.map_err(RequestError::of)?;
        let groups = client.list_api_groups().await.map_err(RequestError::of)?;
        let lists = core.versions.iter().map(|version| client.list_core_api_resources(version));
        let mut found = try_join_all(lists).await.map_err(RequestError::of)?;
        let versions = groups.groups.iter().flat_map(|group| &group.versions);
        let lists = versions.map(|it| client.list_api_group_resources(&it.group_version));
        found.extend(try_join_all(lists).await.map_err(RequestError::of)?);
        Ok(Self(found.into_iter().flat_map(listed).collect()))
    }

    /// The resource that a user means by `word`: `pods`, `pod`, `po`, `Pod` or `roles.rbac.authorization.k8s.io`.
    pub fn named(&self, word: &str) -> Option<&Resource> {
        let word = word.to_ascii_lowercase();
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name, Some(group)),
            None => (word.as_str(), None),
        };
        self.0.iter().find(|resource| {
            let called = resource.plural == name
                || resource.singular == name
                || resource.kind.eq_ignore_ascii_case(name)
                || resource.short_names.iter().any(|short| short == name);
            called && group.is_none_or(|group| group == resource.group)
        })
    }

    /// The resource of a manifest.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.0.iter().find(|it| it.kind == kind && it.api_version() == api_version)
    }

    /// The names of all resources, for a message.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|resource| resource.plural.as_str())
    }
}

/// Everything below a path at once; nothing from a server that does not know how.
async fn aggregated(client: &Client, path: &str) -> Result<APIGroupDiscoveryList, RequestError> {
    let request = Request::get(path).header(header::ACCEPT, ACCEPT_AGGREGATED_DISCOVERY_V2);
    let request = request.body(Vec::new()).map_err(RequestError::Build)?;
    let answer = client.request::<Value>(request).await.map_err(RequestError::of)?;
    read_aggregated(answer).map_err(RequestError::Answer)
}

/// API servers write `null` for lists that are empty, such as the verbs of a resource that has only parts of it served.
fn read_aggregated(mut answer: Value) -> Result<APIGroupDiscoveryList, serde_json::Error> {
    if answer.get("items").is_none() {
        return Ok(APIGroupDiscoveryList::default());
    }
    remove_nulls(&mut answer);
    serde_json::from_value(answer)
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn listed(list: APIResourceList) -> impl Iterator<Item = Resource> {
    let (group, version) = match list.group_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), list.group_version),
    };
    // A part of another resource has a slash in its name.
    let whole = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    whole.map(move |resource| Resource {
        group: group.clone(),
        version: version.clone(),
        kind: resource.kind,
        singular: if resource.singular_name.is_empty() {
            resource.name.clone()
        } else {
            resource.singular_name
        },
        plural: resource.name,
        short_names: resource.short_names.unwrap_or_default(),
        namespaced: resource.namespaced,
    })
}

fn resources_in(list: APIGroupDiscoveryList) -> impl Iterator<Item = Resource> {
    list.items.into_iter().flat_map(|group| {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        group.versions.into_iter().flat_map(move |version| {
            let group = name.clone();
            let version_name = version.version.unwrap_or_default();
            version.resources.into_iter().map(move |resource| {
                let plural = resource.resource.unwrap_or_default();
                let singular = resource.singular_resource.unwrap_or_default();
                Resource {
                    group: group.clone(),
                    version: version_name.clone(),
                    kind: resource.response_kind.and_then(|it| it.kind).unwrap_or_default(),
                    singular: if singular.is_empty() { plural.clone() } else { singular },
                    plural,
                    short_names: resource.short_names,
                    namespaced: resource.scope.as_deref() == Some("Namespaced"),
                }
            })
        })
    })
}

/// What may stand in a segment of a path as it is.
const UNESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// One segment of a path.
pub(crate) fn escape(segment: &str) -> String {
    utf8_percent_encode(segment, UNESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources() -> Resources {
        let discovery = |group: &str, resources: Value| {
            let list = json!({"items": [{"metadata": {"name": group},
                "versions": [{"version": "v1", "resources": resources}]}]});
            serde_json::from_value::<APIGroupDiscoveryList>(list).unwrap()
        };
        let core = discovery(
            "",
            json!([
                {"resource": "events", "singularResource": "event", "scope": "Namespaced",
                 "shortNames": ["ev"], "responseKind": {"kind": "Event"}},
                {"resource": "nodes", "singularResource": "", "scope": "Cluster",
                 "responseKind": {"kind": "Node"}},
            ]),
        );
        let events = discovery(
            "events.k8s.io",
            json!([{"resource": "events", "singularResource": "event", "scope": "Namespaced",
                "responseKind": {"kind": "Event"}}]),
        );
        Resources(resources_in(core).chain(resources_in(events)).collect())
    }

    /// As Kubernetes tells of an aggregated API with a part of a resource alone, and of one that does not answer.
    #[test]
    fn lists_that_are_null_are_empty() {
        let list = json!({"items": [
            {"metadata": {"name": "a", "creationTimestamp": null}, "versions": [{"version": "v1", "resources": [
                {"resource": "pods", "scope": "Namespaced", "verbs": null, "responseKind": {"kind": ""}},
                {"resource": "keys", "scope": "Cluster", "verbs": ["list"], "responseKind": {"kind": "Keys"}}]}]},
            {"metadata": {"name": "b"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]});
        let found = Resources(resources_in(read_aggregated(list).unwrap()).collect());
        assert_eq!(found.names().collect::<Vec<_>>(), ["pods", "keys"]);
        let plain = json!({"kind": "APIVersions", "versions": ["v1"]});
        assert!(read_aggregated(plain).unwrap().items.is_empty());
    }

    #[test]
    fn a_resource_is_found_by_each_of_its_names() {
        let resources = resources();
        for word in ["events", "event", "ev", "Event", "EVENTS"] {
            assert_eq!(resources.named(word).unwrap().group, "", "{word}");
        }
        assert_eq!(resources.named("events.events.k8s.io").unwrap().group, "events.k8s.io");
        assert_eq!(resources.named("pods"), None);
        assert_eq!(resources.of_kind("events.k8s.io/v1", "Event").unwrap().group, "events.k8s.io");
        assert_eq!(resources.of_kind("events.k8s.io/v2", "Event"), None);
    }

    #[test]
    fn plain_lists_say_the_same() {
        let list = json!({"groupVersion": "events.k8s.io/v1", "resources": [
            {"name": "events", "singularName": "event", "namespaced": true, "kind": "Event",
             "verbs": ["get"]},
            {"name": "events/status", "singularName": "", "namespaced": true, "kind": "Event",
             "verbs": ["get"]},
        ]});
        let found: Vec<_> = listed(serde_json::from_value(list).unwrap()).collect();
        assert_eq!(found, [resources().named("events.events.k8s.io").unwrap().clone()]);
    }

    #[test]
    fn paths_have_a_namespace_where_objects_have_one_and_names_add_no_segment() {
        let resources = resources();
        let place = Place::Namespace("a".to_owned());
        let (event, node) = (resources.named("ev").unwrap(), resources.named("node").unwrap());
        assert_eq!(event.path(&place), "/api/v1/namespaces/a/events");
        assert_eq!(event.path(&Place::Everywhere), "/api/v1/events");
        assert_eq!(node.path(&place), "/api/v1/nodes");
        assert_eq!(node.object_path(&place, "../x?y"), "/api/v1/nodes/..%2Fx%3Fy");
    }
}
