//! From a document to a message, as a table says: the way back of [`super::read`].
//!
//! Documents come from our own store and have passed their schema. A field that is not in the table, or
//! that does not hold what the table says, is left out; see [`super::tables`] for those that are lost.

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::table::{Count, Field, Message, Type};

/// Appends `object` in the form of `message`.
pub(super) fn put_document(message: &Message, object: &Map<String, Value>, to: &mut Vec<u8>) {
    for field in message.0 {
        put_field(field, object, to);
    }
}

/// Appends a field that holds bytes, text or a whole message.
pub(super) fn put_bytes(number: u32, bytes: &[u8], to: &mut Vec<u8>) {
    put_head(number, bytes.len(), to);
    to.extend_from_slice(bytes);
}

/// Appends what comes before the `length` bytes of a field.
pub(super) fn put_head(number: u32, length: usize, to: &mut Vec<u8>) {
    put_varint(u64::from(number << 3 | 2), to);
    put_varint(length as u64, to);
}

/// Appends a field that holds a number.
pub(super) fn put_number(number: u32, value: i64, to: &mut Vec<u8>) {
    put_varint(u64::from(number << 3), to);
    put_varint(value.cast_unsigned(), to);
}

fn put_varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    to.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}

fn put_field(field: &Field, object: &Map<String, Value>, to: &mut Vec<u8>) {
    if let (Count::Inline, Type::Message(message)) = (field.count, field.of) {
        let mut inner = Vec::new();
        put_document(message, object, &mut inner);
        put_bytes(field.number, &inner, to);
        return;
    }
    let Some(value) = object.get(field.name) else { return };
    match (field.count, value) {
        (Count::List, Value::Array(elements)) => {
            for element in elements {
                put_value(field.number, field.of, element, to);
            }
        }
        (Count::Map, Value::Object(entries)) => {
            for (key, value) in entries {
                let mut entry = Vec::new();
                put_bytes(1, key.as_bytes(), &mut entry);
                put_value(2, field.of, value, &mut entry);
                put_bytes(field.number, &entry, to);
            }
        }
        (Count::List | Count::Map, _) => {}
        (Count::One | Count::Kept | Count::Inline, value) => {
            put_value(field.number, field.of, value, to);
        }
    }
}

/// Appends one value as the field `number`; nothing if it is none of its type.
fn put_value(number: u32, of: Type, value: &Value, to: &mut Vec<u8>) {
    match (of, value) {
        (Type::Text, Value::String(text)) => put_bytes(number, text.as_bytes(), to),
        (Type::Bool, Value::Bool(flag)) => put_number(number, i64::from(*flag), to),
        (Type::Int32 | Type::Int64, Value::Number(found)) => {
            if let Some(found) = found.as_i64() {
                put_number(number, found, to);
            }
        }
        (Type::Bytes, Value::String(text)) => {
            if let Ok(bytes) = STANDARD.decode(text) {
                put_bytes(number, &bytes, to);
            }
        }
        _ => {
            if let Some(message) = wrapped(of, value) {
                put_bytes(number, &message, to);
            }
        }
    }
}

/// The message that a value is.
fn wrapped(of: Type, value: &Value) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    match (of, value) {
        (Type::Message(table), Value::Object(object)) => put_document(table, object, &mut message),
        (Type::Texts, Value::Array(texts)) => {
            for text in texts {
                put_bytes(1, text.as_str()?.as_bytes(), &mut message);
            }
        }
        (Type::Time, Value::String(text)) => {
            put_number(1, instant(text)?.as_second(), &mut message);
            // Times have no parts of seconds in JSON, either.
            put_number(2, 0, &mut message);
        }
        (Type::MicroTime, Value::String(text)) => {
            let at = instant(text)?;
            put_number(1, at.as_second(), &mut message);
            put_number(2, i64::from(at.subsec_nanosecond()), &mut message);
        }
        (Type::Quantity, Value::String(text)) => put_bytes(1, text.as_bytes(), &mut message),
        (Type::Quantity, Value::Number(found)) => {
            put_bytes(1, found.to_string().as_bytes(), &mut message);
        }
        (Type::IntOrString, Value::Number(found)) => {
            put_number(1, 0, &mut message);
            put_number(2, found.as_i64()?, &mut message);
        }
        (Type::IntOrString, Value::String(text)) => {
            put_number(1, 1, &mut message);
            put_bytes(3, text.as_bytes(), &mut message);
        }
        (Type::Json, value) if !value.is_null() => {
            put_bytes(1, value.to_string().as_bytes(), &mut message);
        }
        _ => return None,
    }
    Some(message)
}

fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}
