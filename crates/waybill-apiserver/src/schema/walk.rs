//! The one pass over a document: it reads, checks, collects and prunes at once.
//!
//! It is driven by serde, so it takes raw bytes and finished values alike. Its depth is bounded by
//! [`MAX_DEPTH`], its breadth by [`MAX_ITEMS`], and what it says never includes a value of the document.

use std::{fmt, mem};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use waybill_core::quantity::Quantity;

use super::{
    compiled::{Compiled, Field, Node, NodeId},
    place::Place,
    scalar,
};

/// Deeper documents are refused. Below serde_json's own limit of 128, whose message is less clear.
pub(super) const MAX_DEPTH: usize = 120;

/// Documents with more items in their lists and maps are refused. An item takes three bytes of a body and a thousand times as much
/// of our memory, once it is a container that lacks everything, and each fault of it has been told.
pub(super) const MAX_ITEMS: usize = 50_000;

/// As many findings as upstream reports of one document.
const MAX_FINDINGS: usize = 100;

/// The state of a pass.
pub(super) struct Walk<'s> {
    schema: &'s Compiled,
    findings: Vec<String>,
    fault: Option<Fault>,
    items: usize,
}

/// Why a document cannot be read as its kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    TooDeep,
    TooLong,
    WrongType { path: String, expected: &'static str, found: &'static str },
}

/// What a pass yields.
pub(super) struct Walked {
    pub(super) value: Value,
    /// Unknown and duplicate fields, in upstream's words.
    pub(super) findings: Vec<String>,
}

/// Reads `source` as `schema` says. A fault is ours to explain; an error without one is the source's.
pub(super) fn walk<'de, D: Deserializer<'de>>(
    schema: &Compiled,
    source: D,
) -> Result<Walked, (Option<Fault>, D::Error)> {
    let mut walk = Walk { schema, findings: Vec::new(), fault: None, items: 0 };
    let seed = Seed { walk: &mut walk, node: schema.root(), place: Place::Root, depth: 0 };
    match seed.deserialize(source) {
        Ok(value) => Ok(Walked { value, findings: walk.findings }),
        Err(error) => Err((walk.fault, error)),
    }
}

impl Walk<'_> {
    fn find(&mut self, what: &str, place: Place<'_>) {
        if self.findings.len() < MAX_FINDINGS {
            let finding = format!("{what} field {:?}", place.to_string());
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

/// One value, to be read as `node`.
struct Seed<'w, 's, 'p> {
    walk: &'w mut Walk<'s>,
    node: NodeId,
    place: Place<'p>,
    depth: usize,
}

impl<'s> Seed<'_, 's, '_> {
    fn node(&self) -> &'s Node {
        self.walk.schema.node(self.node)
    }

    fn refuse<T, E: Error>(self, found: &'static str) -> Result<T, E> {
        let path = match self.place {
            Place::Root => "document".to_owned(),
            Place::Field(..) | Place::Element(..) => self.place.to_string(),
        };
        let expected = self.node().expected();
        self.walk.fault = Some(Fault::WrongType { path, expected, found });
        Err(E::custom("wrong type"))
    }

    fn child<'c>(&'c mut self, node: NodeId, place: Place<'c>) -> Seed<'c, 's, 'c> {
        Seed { walk: self.walk, node, place, depth: self.depth + 1 }
    }

    fn check_depth<E: Error>(&mut self) -> Result<(), E> {
        if self.depth < MAX_DEPTH {
            return Ok(());
        }
        self.walk.fault = Some(Fault::TooDeep);
        Err(E::custom("too deep"))
    }

    /// Counts an item of a list or map.
    fn count<E: Error>(&mut self) -> Result<(), E> {
        self.walk.items += 1;
        if self.walk.items <= MAX_ITEMS {
            return Ok(());
        }
        self.walk.fault = Some(Fault::TooLong);
        Err(E::custom("too long"))
    }

    fn integer<E: Error>(self, number: i64) -> Result<Value, E> {
        match self.node() {
            Node::Int32 | Node::IntOrString if i32::try_from(number).is_err() => {
                self.refuse("a larger number")
            }
            Node::Any | Node::Int32 | Node::Int64 | Node::IntOrString | Node::Number => {
                Ok(number.into())
            }
            // Typed servers answer with text, and so do we, since not every reader takes both.
            Node::Quantity => Ok(number.to_string().into()),
            _ => self.refuse("a number"),
        }
    }

    fn object<'de, A: MapAccess<'de>>(
        mut self,
        fields: &'s [Field],
        mut map: A,
    ) -> Result<Value, A::Error> {
        let mut object = Map::new();
        let mut seen = vec![false; fields.len()];
        let place = self.place;
        while let Some(key) = map.next_key_seed(KeySeed(fields))? {
            let (at, field) = match key {
                Key::Known(at, field) => (at, field),
                Key::Unknown(name) => {
                    map.next_value::<IgnoredAny>()?;
                    self.walk.find("unknown", Place::Field(&place, &name));
                    continue;
                }
            };
            let inner = Place::Field(&place, &field.name);
            if let Some(true) = seen.get_mut(at).map(|seen| mem::replace(seen, true)) {
                self.walk.find("duplicate", inner);
            }
            let value = map.next_value_seed(self.child(field.node, inner))?;
            // For a field null is the same as nothing.
            if !value.is_null() {
                object.insert(field.name.to_string(), value);
            }
        }
        Ok(Value::Object(object))
    }

    fn map<'de, A: MapAccess<'de>>(
        mut self,
        element: NodeId,
        mut map: A,
    ) -> Result<Value, A::Error> {
        let mut object = Map::new();
        let place = self.place;
        while let Some(key) = map.next_key::<String>()? {
            let inner = Place::Field(&place, &key);
            if object.contains_key(&key) {
                self.walk.find("duplicate", inner);
            }
            let value = map.next_value_seed(self.child(element, inner))?;
            self.count()?;
            let value = self.null_as_zero(element, value);
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }

    /// In maps and lists null is the zero of their type, as Go reads it.
    fn null_as_zero(&self, node: NodeId, value: Value) -> Value {
        if !value.is_null() {
            return value;
        }
        match self.walk.schema.node(node) {
            Node::Any | Node::Time | Node::MicroTime => Value::Null,
            Node::Bool => false.into(),
            Node::Int32 | Node::Int64 | Node::IntOrString | Node::Number => 0.into(),
            Node::Text | Node::Base64 => "".into(),
            Node::Quantity => "0".into(),
            Node::List(_) => Value::Array(Vec::new()),
            Node::Map(_) | Node::Object(_) => Value::Object(Map::new()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.node().expected())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        match self.place {
            Place::Root => self.refuse("null"),
            Place::Field(..) | Place::Element(..) => Ok(Value::Null),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        match self.node() {
            Node::Any | Node::Bool => Ok(value.into()),
            _ => self.refuse("a boolean"),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        self.integer(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        if let Ok(number) = i64::try_from(number) {
            return self.integer(number);
        }
        match self.node() {
            Node::Any | Node::Number => Ok(number.into()),
            Node::Quantity => Ok(number.to_string().into()),
            _ => self.refuse("a larger number"),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        match self.node() {
            Node::Any | Node::Number => {
                Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
            }
            Node::Quantity => Ok(number.to_string().into()),
            Node::Int32 | Node::Int64 | Node::IntOrString => {
                self.refuse("a number that is no integer or too large")
            }
            _ => self.refuse("a number"),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        let fits = match self.node() {
            Node::Any | Node::Text | Node::IntOrString => true,
            Node::Base64 if text.contains(['\n', '\r']) => {
                // Go skips line ends in base64 and typed servers answer without them.
                return self.visit_str(&text.replace(['\n', '\r'], ""));
            }
            Node::Base64 => scalar::is_base64(text),
            Node::Time => scalar::is_time(text),
            Node::MicroTime => scalar::is_micro_time(text),
            Node::Quantity => Quantity::parse(text).is_ok(),
            Node::Bool | Node::Int32 | Node::Int64 | Node::Number => {
                return self.refuse("a string");
            }
            Node::List(_) | Node::Map(_) | Node::Object(_) => return self.refuse("a string"),
        };
        if fits { Ok(text.into()) } else { self.refuse("other text") }
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        let element = match self.node() {
            Node::Any => self.node,
            Node::List(element) => *element,
            _ => return self.refuse("a list"),
        };
        let place = self.place;
        let mut list = Vec::new();
        loop {
            let inner = Place::Element(&place, list.len());
            let Some(value) = seq.next_element_seed(self.child(element, inner))? else { break };
            self.count()?;
            let value = self.null_as_zero(element, value);
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<Value, A::Error> {
        self.check_depth()?;
        match self.node() {
            Node::Any => {
                let any = self.node;
                self.map(any, map)
            }
            Node::Map(element) => self.map(*element, map),
            Node::Object(fields) => self.object(fields, map),
            _ => self.refuse("an object"),
        }
    }
}

/// A key of an object.
enum Key<'s> {
    Known(usize, &'s Field),
    Unknown(String),
}

struct KeySeed<'s>(&'s [Field]);

impl<'de, 's> DeserializeSeed<'de> for KeySeed<'s> {
    type Value = Key<'s>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key<'s>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'s> Visitor<'_> for KeySeed<'s> {
    type Value = Key<'s>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Key<'s>, E> {
        let found = self.0.binary_search_by(|field| (*field.name).cmp(name)).ok();
        let known = found.and_then(|at| Some(Key::Known(at, self.0.get(at)?)));
        Ok(known.unwrap_or_else(|| Key::Unknown(name.to_owned())))
    }
}
