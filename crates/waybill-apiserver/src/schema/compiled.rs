//! The compact form of a schema: what decoding needs, and not a word more.

use std::collections::HashMap;

use serde_json::{Map, Value};
use waybill_policy::cel::{Declared, ObjectType};

use super::definitions::{self, Definitions};

/// The shape of one kind.
#[derive(Debug)]
pub(super) struct Compiled {
    nodes: Vec<Node>,
    root: NodeId,
}

impl Compiled {
    /// The shape of anything.
    pub(super) fn any() -> Self {
        Self { nodes: vec![Node::Any], root: NodeId(0) }
    }

    /// Compiles the definition `name` and all it refers to.
    pub(super) fn new(definitions: &Definitions, name: &str) -> Self {
        let mut compiler = Compiler { definitions, nodes: Vec::new(), named: HashMap::new() };
        let root = compiler.definition(name);
        compiler.nodes.shrink_to_fit();
        Self { nodes: compiler.nodes, root }
    }

    pub(super) fn root(&self) -> NodeId {
        self.root
    }

    /// The same as expressions see it.
    pub(super) fn object_type(&self, name: &str) -> ObjectType {
        let places = self.nodes.iter().map(Node::declared).collect();
        ObjectType::new(name, places, self.root.0)
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        // Ids come from the compiler alone, so there is no other case.
        self.nodes.get(id.0).unwrap_or(&Node::Any)
    }
}

/// The place of a node in its [`Compiled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(usize);

/// What may stand at one place of a document.
#[derive(Debug)]
pub(super) enum Node {
    Any,
    Bool,
    Int32,
    Int64,
    Number,
    Text,
    Base64,
    Time,
    MicroTime,
    IntOrString,
    Quantity,
    List(NodeId),
    Map(NodeId),
    /// Fields ordered by name.
    Object(Box<[Field]>),
}

impl Node {
    fn declared(&self) -> Declared {
        match self {
            Self::Any | Self::IntOrString => Declared::Any,
            Self::Bool => Declared::Bool,
            Self::Int32 | Self::Int64 => Declared::Int,
            Self::Number => Declared::Double,
            // Upstream's schema of a quantity is that of a text.
            Self::Text | Self::Quantity => Declared::String,
            Self::Base64 => Declared::Bytes,
            Self::Time | Self::MicroTime => Declared::Timestamp,
            Self::List(element) => Declared::List(element.0),
            Self::Map(value) => Declared::Map(value.0),
            Self::Object(fields) => Declared::Object(
                fields.iter().map(|field| (field.name.to_string(), field.node.0)).collect(),
            ),
        }
    }

    /// What messages call it.
    pub(super) fn expected(&self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Bool => "a boolean",
            Self::Int32 => "a 32-bit integer",
            Self::Int64 => "an integer",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::Base64 => "a string in base64",
            Self::Time => "a time as in RFC 3339",
            Self::MicroTime => "a time as in RFC 3339 with six decimals",
            Self::IntOrString => "an integer or a string",
            Self::Quantity => "a quantity",
            Self::List(_) => "a list",
            Self::Map(_) | Self::Object(_) => "an object",
        }
    }
}

/// A field of an object.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: Box<str>,
    pub(super) node: NodeId,
}

struct Compiler<'a> {
    definitions: &'a Definitions,
    nodes: Vec<Node>,
    named: HashMap<&'a str, NodeId>,
}

impl<'a> Compiler<'a> {
    fn definition(&mut self, name: &str) -> NodeId {
        if let Some(&id) = self.named.get(name) {
            return id;
        }
        let id = self.push(Node::Any);
        let Some((name, schema)) = self.definitions.get_key_value(name) else { return id };
        // Known before its fields are, since a definition may contain itself.
        self.named.insert(name, id);
        let node = match name.as_str() {
            definitions::INT_OR_STRING => Node::IntOrString,
            definitions::MICRO_TIME => Node::MicroTime,
            definitions::QUANTITY => Node::Quantity,
            name if definitions::OPAQUE.contains(&name) => Node::Any,
            _ => self.node(schema),
        };
        if let Some(slot) = self.nodes.get_mut(id.0) {
            *slot = node;
        }
        id
    }

    fn schema(&mut self, schema: &'a Value) -> NodeId {
        let reference = schema.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| reference.strip_prefix(definitions::REF_PREFIX)) {
            Some(name) => self.definition(name),
            None => {
                let node = self.node(schema);
                self.push(node)
            }
        }
    }

    fn node(&mut self, schema: &'a Value) -> Node {
        let text = |key| schema.get(key).and_then(Value::as_str);
        match (text("type"), text("format")) {
            (Some("boolean"), _) => Node::Bool,
            (Some("integer"), Some("int32")) => Node::Int32,
            (Some("integer"), _) => Node::Int64,
            (Some("number"), _) => Node::Number,
            (Some("string"), Some("byte")) => Node::Base64,
            (Some("string"), Some("date-time")) => Node::Time,
            (Some("string"), _) => Node::Text,
            (Some("array"), _) => Node::List(self.element(schema.get("items"))),
            (Some("object"), _) => match schema.get("properties") {
                Some(Value::Object(properties)) => self.object(properties),
                _ => Node::Map(self.element(schema.get("additionalProperties"))),
            },
            _ => Node::Any,
        }
    }

    fn element(&mut self, schema: Option<&'a Value>) -> NodeId {
        match schema {
            Some(schema) => self.schema(schema),
            None => self.push(Node::Any),
        }
    }

    fn object(&mut self, properties: &'a Map<String, Value>) -> Node {
        let mut fields: Vec<_> = properties
            .iter()
            .map(|(name, schema)| Field { name: name.as_str().into(), node: self.schema(schema) })
            .collect();
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Node::Object(fields.into())
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }
}
