//! Bodies in the protobuf form of Kubernetes, `application/vnd.kubernetes.protobuf`.
//!
//! Typed clients send it even to servers that answer with JSON. A body is turned into the document
//! that the same client would have sent as JSON; checking it is up to the schema. Nothing that a
//! peer sends can panic, and no error shows a value. Answers are in it only for clients that take
//! nothing else: objects are kept as JSON.

mod read;
mod table;
pub(crate) mod tables;
mod wire;
mod write;

use serde_json::{Map, Value};

use crate::document::text;

pub(crate) use self::table::Message;
use self::{
    read::ReadError,
    wire::{Reader, WireError},
};

/// The media type of such bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The media type of watches in it.
pub(crate) const STREAM_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// What every body begins with; see `k8s.io/apimachinery/pkg/runtime/serializer/protobuf`.
const MAGIC: &[u8] = b"k8s\0";

/// As much of a name as is repeated to the peer that sent it.
const NAME_LIMIT: usize = 128;

/// The object that `body` holds, with its `apiVersion` and `kind`.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = Envelope::parse(body)?;
    let Envelope { api_version, kind, .. } = envelope;
    let mut object = envelope.content()?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// `object` as a body; nothing if there is no table for its kind.
pub(crate) fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    let message = tables::lookup_answer(api_version, kind)?;
    let mut raw = Vec::new();
    write::put_document(message, object.as_object()?, &mut raw);
    Some(enveloped(api_version, kind, &raw))
}

/// What comes before the items of a list; all lists look alike but for those. Together the items take
/// `items_len` bytes.
pub(crate) fn list_head(
    api_version: &str,
    item_kind: &str,
    metadata: &Value,
    items_len: usize,
) -> Vec<u8> {
    let (mut inner, mut part) = (Vec::new(), Vec::new());
    if let Value::Object(metadata) = metadata {
        write::put_document(&tables::LIST_META, metadata, &mut inner);
    }
    write::put_bytes(1, &inner, &mut part);
    let mut head = envelope_head(api_version, &format!("{item_kind}List"));
    write::put_head(2, part.len() + items_len, &mut head);
    head.extend_from_slice(&part);
    head
}

/// `object` as an item of a list.
pub(crate) fn list_item(object: &Value) -> Option<Vec<u8>> {
    let message = tables::lookup_answer(text(object, "/apiVersion"), text(object, "/kind"))?;
    let (mut raw, mut item) = (Vec::new(), Vec::new());
    write::put_document(message, object.as_object()?, &mut raw);
    write::put_bytes(2, &raw, &mut item);
    Some(item)
}

/// One event of a watch, with the four bytes of its length before it.
pub(crate) fn encode_event(change: &str, object: &Value) -> Option<Vec<u8>> {
    let mut raw_extension = Vec::new();
    write::put_bytes(1, &encode(object)?, &mut raw_extension);
    let mut event = vec![0; 4];
    write::put_bytes(1, change.as_bytes(), &mut event);
    write::put_bytes(2, &raw_extension, &mut event);
    let length = u32::try_from(event.len() - 4).ok()?;
    event.get_mut(..4)?.copy_from_slice(&length.to_be_bytes());
    Some(event)
}

fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut body = envelope_head(api_version, kind);
    write::put_bytes(2, raw, &mut body);
    body
}

/// The envelope up to what is in it.
fn envelope_head(api_version: &str, kind: &str) -> Vec<u8> {
    let mut type_meta = Vec::new();
    write::put_bytes(1, api_version.as_bytes(), &mut type_meta);
    write::put_bytes(2, kind.as_bytes(), &mut type_meta);
    let mut head = MAGIC.to_vec();
    write::put_bytes(1, &type_meta, &mut head);
    head
}

/// Why a body is no object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ProtobufError {
    /// It does not begin as such bodies do.
    #[error("the body does not begin as one in protobuf does")]
    Magic,
    /// The message around the object is malformed.
    #[error("the message around the object is malformed")]
    Envelope(#[source] WireError),
    /// The object is compressed or otherwise wrapped.
    #[error("the object has a content encoding")]
    ContentEncoding,
    /// The object is neither protobuf nor JSON.
    #[error("the object has an unknown content type")]
    ContentType,
    /// The object says that it is JSON and is not.
    #[error("the object is not a JSON object")]
    Json,
    /// There is no table for the kind.
    #[error("{kind:?} in {api_version:?} is not read in protobuf, but in application/json")]
    UnknownKind { api_version: String, kind: String },
    /// The object is malformed.
    #[error("the object is malformed")]
    Object(#[source] ReadError),
}

/// `runtime.Unknown` of `k8s.io/apimachinery`.
#[derive(Clone, Copy, Debug, Default)]
struct Envelope<'a> {
    api_version: &'a str,
    kind: &'a str,
    raw: &'a [u8],
    content_encoding: &'a str,
    content_type: &'a str,
}

impl<'a> Envelope<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, ProtobufError> {
        let message = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
        let mut envelope = Self::default();
        envelope.fill(message).map_err(ProtobufError::Envelope)?;
        Ok(envelope)
    }

    fn fill(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.next()? {
            match number {
                1 => self.fill_type(wire.bytes()?)?,
                2 => self.raw = wire.bytes()?,
                3 => self.content_encoding = wire.text()?,
                4 => self.content_type = wire.text()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn fill_type(&mut self, message: &'a [u8]) -> Result<(), WireError> {
        let mut reader = Reader::new(message);
        while let Some((number, wire)) = reader.next()? {
            match number {
                1 => self.api_version = wire.text()?,
                2 => self.kind = wire.text()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn content(self) -> Result<Map<String, Value>, ProtobufError> {
        if !self.content_encoding.is_empty() {
            return Err(ProtobufError::ContentEncoding);
        }
        match self.content_type {
            "" | MEDIA_TYPE => {
                let message = tables::lookup(self.api_version, self.kind);
                let message = message.ok_or_else(|| self.unknown_kind())?;
                read::document(message, self.raw).map_err(ProtobufError::Object)
            }
            "application/json" => serde_json::from_slice(self.raw).map_err(|_| ProtobufError::Json),
            _ => Err(ProtobufError::ContentType),
        }
    }

    fn unknown_kind(self) -> ProtobufError {
        let cut = |name: &str| name.chars().take(NAME_LIMIT).collect();
        ProtobufError::UnknownKind { api_version: cut(self.api_version), kind: cut(self.kind) }
    }
}

#[cfg(test)]
mod tests;
