//! The paths of the served resources, with the operations that their verbs allow.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{
    super::{KindSchema, lookup},
    ServedKind, ServedSubresource,
    operation::{Action, Operation, put_parameters},
};

/// A path with its operations, by HTTP method.
pub(super) struct Path {
    pub(super) url: String,
    operations: Vec<(&'static str, Operation)>,
}

impl Path {
    pub(super) fn to_v3(&self) -> Value {
        let parameter = |name: &str| {
            let schema = json!({"type": "string", "uniqueItems": true});
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        };
        self.render(parameter, Operation::to_v3)
    }

    pub(super) fn to_v2(&self) -> Value {
        let parameter = |name: &str| {
            json!({
                "name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true,
            })
        };
        self.render(parameter, Operation::to_v2)
    }

    fn render(
        &self,
        parameter: impl Fn(&str) -> Value,
        operation: impl Fn(&Operation) -> Value,
    ) -> Value {
        let named = |name: &&&str| self.url.contains(&format!("{{{name}}}"));
        let parameters: Vec<_> =
            ["name", "namespace"].iter().filter(named).map(|name| parameter(name)).collect();
        let mut path = Map::new();
        put_parameters(&mut path, parameters);
        for (method, found) in &self.operations {
            path.insert((*method).to_owned(), operation(found));
        }
        Value::Object(path)
    }
}

/// Every path of `kinds`.
pub(super) fn paths(kinds: &[ServedKind]) -> Vec<Path> {
    let mut paths: Vec<_> = kinds.iter().flat_map(kind_paths).collect();
    paths.retain(|path| !path.operations.is_empty());
    paths
}

fn kind_paths(kind: &ServedKind) -> Vec<Path> {
    let root = format!("/{}", kind.group_version().path());
    let all = format!("{root}/{}", kind.resource);
    let collection = if kind.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", kind.resource)
    } else {
        all.clone()
    };
    let item = format!("{collection}/{{name}}");
    let own = Subject::new(kind.group, kind.version, kind.kind);

    let mut paths: Vec<_> = kind
        .subresources
        .iter()
        .map(|sub| Path { url: format!("{item}/{}", sub.name), operations: subresource(sub) })
        .collect();
    if kind.namespaced {
        let listing = own.operations(kind.verbs, &[("list", "get", Action::List)]);
        paths.push(Path { url: all, operations: listing });
    }
    paths.push(Path { url: collection, operations: own.operations(kind.verbs, COLLECTION) });
    paths.push(Path { url: item, operations: own.operations(kind.verbs, ITEM) });
    paths
}

/// Verb, HTTP method and action.
type VerbRow = (&'static str, &'static str, Action);

const COLLECTION: &[VerbRow] = &[
    ("list", "get", Action::List),
    ("create", "post", Action::Post),
    ("deletecollection", "delete", Action::DeleteCollection),
];

const ITEM: &[VerbRow] = &[
    ("get", "get", Action::Get),
    ("update", "put", Action::Put),
    ("patch", "patch", Action::Patch),
    ("delete", "delete", Action::Delete),
];

const SUBRESOURCE: &[VerbRow] = &[
    ("get", "get", Action::Get),
    ("create", "post", Action::Post),
    ("update", "put", Action::Put),
    ("patch", "patch", Action::Patch),
];

const CONNECT: &[VerbRow] = &[("get", "get", Action::Connect), ("create", "post", Action::Connect)];

fn subresource(sub: &ServedSubresource) -> Vec<(&'static str, Operation)> {
    let rows = match sub.name {
        "exec" | "attach" | "portforward" | "proxy" => CONNECT,
        _ => SUBRESOURCE,
    };
    Subject::new(sub.group, sub.version, sub.kind).operations(sub.verbs, rows)
}

/// The kind that operations are about.
struct Subject {
    gvk: Value,
    /// Its definition and that of its list, as far as there are any.
    definition: Option<Cow<'static, str>>,
    list: Option<Cow<'static, str>>,
}

impl Subject {
    fn new(group: &str, version: &str, kind: &str) -> Self {
        let name = |kind: &str| lookup(group, version, kind).map(KindSchema::definition);
        Self {
            gvk: json!({"group": group, "version": version, "kind": kind}),
            definition: name(kind),
            list: name(&format!("{kind}List")),
        }
    }

    fn operations(&self, verbs: &[&str], rows: &[VerbRow]) -> Vec<(&'static str, Operation)> {
        rows.iter()
            .filter(|(verb, _, _)| verbs.contains(verb))
            .map(|(_, method, action)| (*method, self.operation(*action)))
            .collect()
    }

    fn operation(&self, action: Action) -> Operation {
        let named = |kind| lookup("", "v1", kind).map(KindSchema::definition);
        let own = || self.definition.clone();
        let (body, answer) = match action {
            Action::Get => (None, own()),
            Action::List => (None, self.list.clone()),
            Action::Post | Action::Put | Action::Patch => (own(), own()),
            Action::Delete | Action::DeleteCollection => (named("DeleteOptions"), named("Status")),
            Action::Connect => (None, None),
        };
        Operation { action, gvk: self.gvk.clone(), body, answer }
    }
}
