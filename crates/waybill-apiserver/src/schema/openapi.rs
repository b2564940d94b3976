//! The documents that tell clients what is served: OpenAPI v3, one per group version, and v2.
//!
//! `kubectl explain` reads v3, and `kubectl apply` looks there for merge keys and for the query
//! parameters of PATCH. The functions make a document anew; [`OpenApi`] keeps the bytes.

mod gnostic;
mod operation;
mod paths;
mod render;

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::OnceLock,
};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::paths::Path;
use super::{KindSchema, definitions, lookup};

/// The media type of OpenAPI v2 as protobuf, in answers; clients also ask for it with an `@` in place
/// of the dot before `v1.0`.
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The version of the server as documents give it.
const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A resource as discovery knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServedKind {
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    /// The plural in URLs.
    pub(crate) resource: &'static str,
    pub(crate) namespaced: bool,
    /// As in RBAC rules.
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: &'static [ServedSubresource],
}

impl ServedKind {
    /// The group version that serves it.
    pub(crate) fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group, version: self.version }
    }
}

/// A subresource, such as `pods/exec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServedSubresource {
    pub(crate) name: &'static str,
    /// The group version of what is sent to it, which need not be that of the resource.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) verbs: &'static [&'static str],
}

/// One version of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupVersion {
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
}

impl GroupVersion {
    /// Where it is served, below the root and below `/openapi/v3`: `api/v1`, `apis/storage.k8s.io/v1`.
    pub(crate) fn path(self) -> String {
        match self.group {
            "" => format!("api/{}", self.version),
            group => format!("apis/{group}/{}", self.version),
        }
    }
}

/// The documents as bytes, each made when it is first asked for.
#[derive(Debug)]
pub(crate) struct OpenApi {
    kinds: Vec<ServedKind>,
    v3: Vec<(GroupVersion, OnceLock<Bytes>)>,
    index: OnceLock<Bytes>,
    v2: OnceLock<Bytes>,
    v2_protobuf: OnceLock<Bytes>,
}

impl OpenApi {
    /// The documents about `kinds`.
    pub(crate) fn new(kinds: Vec<ServedKind>) -> Self {
        let versions: BTreeSet<_> = kinds.iter().map(ServedKind::group_version).collect();
        let v3 = versions.into_iter().map(|version| (version, OnceLock::new())).collect();
        let [index, v2, v2_protobuf] = [const { OnceLock::new() }; 3];
        Self { kinds, v3, index, v2, v2_protobuf }
    }

    /// `/openapi/v3/<path>`, where `path` is that of a group version.
    pub(crate) fn v3(&self, path: &str) -> Option<Bytes> {
        let (version, cell) = self.v3.iter().find(|(version, _)| version.path() == path)?;
        Some(self.v3_document(*version, cell))
    }

    /// `/openapi/v3`.
    pub(crate) fn v3_index(&self) -> Bytes {
        let index = || {
            let hashed = |(version, cell): &(GroupVersion, OnceLock<Bytes>)| {
                (*version, content_hash(&self.v3_document(*version, cell)))
            };
            bytes(&v3_index(self.v3.iter().map(hashed)))
        };
        self.index.get_or_init(index).clone()
    }

    /// `/openapi/v2` as JSON.
    pub(crate) fn v2(&self) -> Bytes {
        self.v2.get_or_init(|| bytes(&openapi_v2(&self.kinds))).clone()
    }

    /// `/openapi/v2` as [`V2_PROTOBUF`].
    pub(crate) fn v2_protobuf(&self) -> Bytes {
        let encode = || gnostic::encode(&openapi_v2(&self.kinds)).into();
        self.v2_protobuf.get_or_init(encode).clone()
    }

    fn v3_document(&self, version: GroupVersion, cell: &OnceLock<Bytes>) -> Bytes {
        cell.get_or_init(|| bytes(&openapi_v3(version, &self.kinds))).clone()
    }
}

/// The document of one group version; of `kinds` it takes those of the version.
pub(crate) fn openapi_v3(version: GroupVersion, kinds: &[ServedKind]) -> Value {
    let kinds: Vec<_> =
        kinds.iter().filter(|kind| kind.group_version() == version).copied().collect();
    let mut schemas = definitions::define(schemas_of(&kinds));
    for (name, schema) in &mut schemas {
        render::to_v3(name, schema);
    }
    let paths: Map<_, _> =
        paths::paths(&kinds).iter().map(|path| (path.url.clone(), Path::to_v3(path))).collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": SERVER_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// The index of the documents, each with a hash of its content, by which clients cache it.
pub(crate) fn v3_index(documents: impl Iterator<Item = (GroupVersion, u64)>) -> Value {
    let entry = |(version, hash): (GroupVersion, u64)| {
        let path = version.path();
        let url = format!("/openapi/v3/{path}?hash={hash:016X}");
        (path, json!({"serverRelativeURL": url}))
    };
    json!({"paths": documents.map(entry).collect::<Map<_, _>>()})
}

/// The one document of OpenAPI v2, as JSON.
pub(crate) fn openapi_v2(kinds: &[ServedKind]) -> Value {
    let mut definitions = definitions::define(schemas_of(kinds));
    for (name, definition) in &mut definitions {
        render::to_v2(name, definition);
    }
    let paths: Map<_, _> =
        paths::paths(kinds).iter().map(|path| (path.url.clone(), Path::to_v2(path))).collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": SERVER_VERSION},
        "paths": paths,
        "definitions": definitions,
    })
}

/// Every schema that the documents of `kinds` mention.
fn schemas_of(kinds: &[ServedKind]) -> Vec<&'static KindSchema> {
    let mut names = BTreeSet::from([("", "v1", "DeleteOptions"), ("", "v1", "Status")]);
    let mut lists = BTreeSet::new();
    for kind in kinds {
        names.insert((kind.group, kind.version, kind.kind));
        lists.insert((kind.group, kind.version, format!("{}List", kind.kind)));
        names.extend(kind.subresources.iter().map(|sub| (sub.group, sub.version, sub.kind)));
    }
    let singles =
        names.into_iter().filter_map(|(group, version, kind)| lookup(group, version, kind));
    let lists = lists.iter().filter_map(|(group, version, kind)| lookup(group, version, kind));
    singles.chain(lists).collect()
}

fn bytes(document: &Value) -> Bytes {
    // Exact in size, because it is kept.
    document.to_string().into_boxed_str().into_boxed_bytes().into()
}

fn content_hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
