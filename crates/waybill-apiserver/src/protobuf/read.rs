//! From a message to a document, as a table says.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{
    table::{Count, Field, Message, Type},
    wire::{Reader, Wire, WireError},
};
use crate::document::time;

/// The second in which the zero time of Go lies; it says that there is no time.
const GO_ZERO: i64 = -62_135_596_800;

/// The last second of the year 9999; RFC 3339 has no later one.
const LAST_SECOND: i64 = 253_402_300_799;

/// Reads `bytes` as `message` says. Fields that it does not have are skipped, as upstream does.
pub(super) fn document(message: &Message, bytes: &[u8]) -> Result<Map<String, Value>, ReadError> {
    let mut object = Map::new();
    fill(&mut object, message, bytes)?;
    Ok(object)
}

/// What is wrong with a message, and in which of its fields; it shows no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadError {
    /// From the inside out.
    path: Vec<&'static str>,
    source: WireError,
}

impl ReadError {
    fn within(mut self, field: &Field) -> Self {
        if !field.name.is_empty() {
            self.path.push(field.name);
        }
        self
    }
}

impl From<WireError> for ReadError {
    fn from(source: WireError) -> Self {
        Self { path: Vec::new(), source }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str("the message is malformed");
        }
        let path: Vec<_> = self.path.iter().rev().copied().collect();
        write!(f, "{} is malformed", path.join("."))
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Adds what `bytes` hold to `object`. A message that comes in parts is the sum of them.
fn fill(object: &mut Map<String, Value>, message: &Message, bytes: &[u8]) -> Result<(), ReadError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let Some(field) = message.field(number) {
            add(object, field, wire).map_err(|error| error.within(field))?;
        }
    }
    Ok(())
}

fn add(object: &mut Map<String, Value>, field: &Field, wire: Wire<'_>) -> Result<(), ReadError> {
    match (field.count, field.of) {
        (Count::Inline, Type::Message(message)) => fill(object, message, wire.bytes()?),
        (Count::One | Count::Kept, Type::Message(message)) => {
            let inner = member(object, field.name);
            fill(inner, message, wire.bytes()?)?;
            if field.count == Count::One && inner.is_empty() {
                object.remove(field.name);
            }
            Ok(())
        }
        (Count::One | Count::Kept | Count::Inline, of) => {
            let value = value(of, wire)?;
            if value.is_null() || field.count == Count::One && is_zero(&value) {
                object.remove(field.name);
            } else {
                object.insert(field.name.to_owned(), value);
            }
            Ok(())
        }
        (Count::List, of) => {
            let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(list) = list else { return Ok(()) };
            add_elements(list, of, wire)
        }
        (Count::Map, of) => {
            let (key, value) = entry(of, wire.bytes()?)?;
            member(object, field.name).insert(key, value);
            Ok(())
        }
    }
}

/// The object that is a member of another, made if it is not there.
fn member<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let member = object.entry(name).or_insert(Value::Null);
    if !member.is_object() {
        *member = Value::Object(Map::new());
    }
    member.as_object_mut().expect("it was just made one")
}

/// One element, or several numbers if they come packed.
fn add_elements(list: &mut Vec<Value>, of: Type, wire: Wire<'_>) -> Result<(), ReadError> {
    if let (Type::Bool | Type::Int32 | Type::Int64, Wire::Bytes(bytes)) = (of, wire) {
        let mut numbers = Reader::new(bytes);
        while let Some(number) = numbers.packed()? {
            list.push(value(of, Wire::Varint(number))?);
        }
        return Ok(());
    }
    list.push(value(of, wire)?);
    Ok(())
}

/// An entry of a map, which is a message of key and value.
fn entry(of: Type, bytes: &[u8]) -> Result<(String, Value), ReadError> {
    let mut key = "";
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => key = wire.text()?,
            2 => found = Some(value(of, wire)?),
            _ => {}
        }
    }
    let found = found.map_or_else(|| value(of, Wire::Bytes(&[])), Ok)?;
    Ok((key.to_owned(), found))
}

/// A value on its own; null if it says that there is none.
fn value(of: Type, wire: Wire<'_>) -> Result<Value, ReadError> {
    Ok(match of {
        Type::Text => wire.text()?.into(),
        Type::Bool => (wire.varint()? != 0).into(),
        Type::Int32 => wire.int32()?.into(),
        Type::Int64 => wire.int64()?.into(),
        Type::Bytes => STANDARD.encode(wire.bytes()?).into(),
        Type::Message(message) => document(message, wire.bytes()?)?.into(),
        Type::Texts => texts(wire.bytes()?)?,
        Type::Time => instant(wire.bytes()?)?.map_or(Value::Null, |at| time(at).into()),
        Type::MicroTime => instant(wire.bytes()?)?.map_or(Value::Null, |at| micro_time(at).into()),
        Type::Quantity => quantity(wire.bytes()?)?,
        Type::IntOrString => int_or_string(wire.bytes()?)?,
        Type::Json => json(wire.bytes()?)?,
    })
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn texts(bytes: &[u8]) -> Result<Value, WireError> {
    let mut list: Vec<Value> = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            list.push(wire.text()?.into());
        }
    }
    Ok(list.into())
}

/// A `Time` or `MicroTime`, which look alike on the wire; an empty one is the zero time.
fn instant(bytes: &[u8]) -> Result<Option<Timestamp>, WireError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => seconds = wire.int64()?,
            2 => nanos = wire.int32()?,
            _ => {}
        }
    }
    match seconds {
        _ if bytes.is_empty() => Ok(None),
        GO_ZERO if nanos == 0 => Ok(None),
        GO_ZERO..=LAST_SECOND if (0..1_000_000_000).contains(&nanos) => {
            Timestamp::new(seconds, nanos).map(Some).map_err(|_| WireError::Time)
        }
        _ => Err(WireError::Time),
    }
}

fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Go knows no empty quantity.
fn quantity(bytes: &[u8]) -> Result<Value, WireError> {
    let mut text = "0";
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 && wire != Wire::Bytes(&[]) {
            text = wire.text()?;
        }
    }
    Ok(text.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, WireError> {
    let (mut kind, mut int, mut text) = (0, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match number {
            1 => kind = wire.varint()?,
            2 => int = wire.int32()?,
            3 => text = wire.text()?,
            _ => {}
        }
    }
    match kind {
        0 => Ok(int.into()),
        1 => Ok(text.into()),
        _ => Err(WireError::IntOrString),
    }
}

/// The one field of a message, which is JSON; null if there is none.
fn json(bytes: &[u8]) -> Result<Value, WireError> {
    let mut raw: &[u8] = b"null";
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            raw = wire.bytes()?;
        }
    }
    serde_json::from_slice(raw).map_err(|_| WireError::Json)
}
