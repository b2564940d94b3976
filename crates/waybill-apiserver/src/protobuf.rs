//! Bodies in the protobuf form of Kubernetes, `application/vnd.kubernetes.protobuf`.
//!
//! Typed clients send it even to servers that answer with JSON. A body is turned into the document
//! that the same client would have sent as JSON; checking it is up to the schema. Nothing that a
//! peer sends can panic, and no error shows a value.

mod read;
mod table;
mod tables;
mod wire;

use serde_json::{Map, Value};

use self::{
    read::ReadError,
    wire::{Reader, WireError},
};

/// The media type of such bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

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
