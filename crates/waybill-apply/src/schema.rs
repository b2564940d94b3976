//! What lists and maps mean to server-side apply: the compact form of OpenAPI definitions.
//!
//! The facts are the extensions of Kubernetes: `x-kubernetes-list-type`, `x-kubernetes-list-map-keys`,
//! `x-kubernetes-map-type`, `x-kubernetes-preserve-unknown-fields`. A list that says nothing is atomic, a
//! map or an object that says nothing is not.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// What stands before the name of a definition in a `$ref`.
const REF_PREFIX: &str = "#/definitions/";

/// How the parts of the objects of one kind are told apart.
#[derive(Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    root: NodeId,
}

impl Schema {
    /// Compiles the definition `name` and all that it refers to.
    #[must_use]
    pub fn new(definitions: &Map<String, Value>, name: &str) -> Self {
        let mut compiler = Compiler { definitions, nodes: Vec::new(), named: HashMap::new() };
        let root = compiler.definition(name);
        compiler.nodes.shrink_to_fit();
        Self { nodes: compiler.nodes, root }
    }

    pub(crate) fn root(&self) -> &Node {
        self.node(self.root)
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        // Ids come from the compiler alone, so there is no other case.
        self.nodes.get(id.0).unwrap_or(&Node::Leaf)
    }
}

/// The place of a node in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(usize);

/// What may stand at one place of an object.
#[derive(Debug)]
pub(crate) enum Node {
    /// A scalar, or something that is owned and replaced as a whole.
    Leaf,
    /// Anything: objects by their fields, everything else as a whole.
    Open,
    /// Entries of any name.
    Map(NodeId),
    /// Fields ordered by name.
    Struct(Box<[Field]>),
    /// Values, each at most once.
    Set,
    /// Objects that differ in these fields; in the order of their names.
    Keyed(Box<[Key]>, NodeId),
}

/// A field of an object.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Box<str>,
    pub(crate) node: NodeId,
    /// Whether the object that holds it always has it, if only as an empty object: upstream's types
    /// hold such fields by value, so writing into one does not add it.
    pub(crate) always: bool,
}

/// A field in which the elements of a list differ.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: Box<str>,
    pub(crate) default: Option<Value>,
}

/// The field `name` of an object with `fields`.
pub(crate) fn find<'s>(fields: &'s [Field], name: &str) -> Option<&'s Field> {
    let at = fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
    fields.get(at)
}

struct Compiler<'a> {
    definitions: &'a Map<String, Value>,
    nodes: Vec<Node>,
    named: HashMap<&'a str, NodeId>,
}

impl<'a> Compiler<'a> {
    fn definition(&mut self, name: &str) -> NodeId {
        if let Some(&id) = self.named.get(name) {
            return id;
        }
        let id = self.push(Node::Leaf);
        let Some((name, schema)) = self.definitions.get_key_value(name) else { return id };
        // Known before its fields are, since a definition may contain itself.
        self.named.insert(name, id);
        let node = self.node(schema);
        if let Some(slot) = self.nodes.get_mut(id.0) {
            *slot = node;
        }
        id
    }

    fn schema(&mut self, schema: &'a Value) -> NodeId {
        if is_atomic(schema) {
            return self.push(Node::Leaf);
        }
        match referred(schema) {
            Some(name) => self.definition(name),
            None => {
                let node = self.node(schema);
                self.push(node)
            }
        }
    }

    fn node(&mut self, schema: &'a Value) -> Node {
        if is_atomic(schema) {
            return Node::Leaf;
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("array") => self.list(schema),
            Some("object") => {
                match (schema.get("properties"), schema.get("additionalProperties")) {
                    (Some(Value::Object(properties)), _) => self.object(properties),
                    (_, Some(entry @ Value::Object(_))) => Node::Map(self.schema(entry)),
                    _ if says(schema, "x-kubernetes-preserve-unknown-fields") => Node::Open,
                    _ => Node::Leaf,
                }
            }
            None if says(schema, "x-kubernetes-preserve-unknown-fields") => Node::Open,
            _ => Node::Leaf,
        }
    }

    fn list(&mut self, schema: &'a Value) -> Node {
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Node::Set,
            Some("map") => {
                let item = schema.get("items").unwrap_or(&Value::Null);
                let mut keys: Vec<_> = schema
                    .get("x-kubernetes-list-map-keys")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(|name| Key { name: name.into(), default: self.default(item, name) })
                    .collect();
                keys.sort_by(|a, b| a.name.cmp(&b.name));
                // Elements that are owned as a whole are still told apart by their keys.
                Node::Keyed(keys.into(), self.schema(item))
            }
            _ => Node::Leaf,
        }
    }

    /// The default of the field `name` of what `schema` describes.
    fn default(&self, schema: &Value, name: &str) -> Option<Value> {
        let schema = match referred(schema) {
            Some(definition) => self.definitions.get(definition)?,
            None => schema,
        };
        schema.get("properties")?.get(name)?.get("default").cloned()
    }

    fn object(&mut self, properties: &'a Map<String, Value>) -> Node {
        let mut fields: Vec<_> = properties
            .iter()
            .map(|(name, schema)| {
                let always = schema.get("default").and_then(Value::as_object).is_some();
                Field { name: name.as_str().into(), node: self.schema(schema), always }
            })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Node::Struct(fields.into())
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }
}

fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str)?.strip_prefix(REF_PREFIX)
}

fn is_atomic(schema: &Value) -> bool {
    schema.get("x-kubernetes-map-type").is_some_and(|found| found == "atomic")
}

fn says(schema: &Value, extension: &str) -> bool {
    schema.get(extension).is_some_and(|found| found == true)
}
