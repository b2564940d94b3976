//! `ExecCredential`, the one message of the protocol: our question to a plugin and its answer.
//!
//! Errors about an answer never quote it, because it holds a credential.

use std::fmt;

use serde::{
    Deserialize, Serialize,
    de::{Deserializer, Visitor},
};
use serde_json::error::Category;
use waybill_core::secret::SecretBytes;

use crate::{ApiVersion, ClusterInfo, DecodeError, PluginError};

/// The variable in which a plugin finds our question.
pub const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";

pub(crate) const KIND: &str = "ExecCredential";

/// The question as JSON.
pub(crate) fn question(
    version: ApiVersion,
    interactive: bool,
    cluster: Option<&ClusterInfo>,
) -> String {
    let message =
        Question { kind: KIND, api_version: version.as_str(), spec: Spec { cluster, interactive } };
    serde_json::to_string(&message).expect("text, flags and JSON values are JSON")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    kind: &'static str,
    api_version: &'static str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ClusterInfo>,
    interactive: bool,
}

/// `status` of an answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct Status {
    pub(crate) expiration_timestamp: Option<String>,
    pub(crate) token: SecretText,
    pub(crate) client_certificate_data: SecretText,
    pub(crate) client_key_data: SecretText,
}

/// Text that must not be shown; empty if it is absent or null.
#[derive(Default)]
pub(crate) struct SecretText(pub(crate) Option<SecretBytes>);

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default, rename = "apiVersion")]
    api_version: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: Option<Status>,
}

/// Reads what a plugin printed.
pub(crate) fn answer(stdout: &SecretBytes, expected: ApiVersion) -> Result<Status, PluginError> {
    let text = stdout.expose();
    let header: Header = decode(text)?;
    let missing = |part: &Option<String>| part.as_ref().is_none_or(String::is_empty);
    if missing(&header.kind) {
        return Err(PluginError::Decode(DecodeError::NoKind));
    }
    let Some(found) = header.api_version.filter(|found| !found.is_empty()) else {
        return Err(PluginError::Decode(DecodeError::NoApiVersion));
    };
    if found != expected.as_str() {
        // It is the plugin's own text, and goes to a terminal.
        let returned = found.chars().filter(|c| !c.is_control()).take(100).collect();
        return Err(PluginError::Version { configured: expected.as_str(), returned });
    }
    if header.kind.is_none_or(|kind| kind != KIND) {
        return Err(PluginError::Decode(DecodeError::OtherKind));
    }
    decode::<Answer>(text)?.status.ok_or(PluginError::NoStatus)
}

/// JSON, or YAML if it does not begin as JSON does: client-go takes both.
fn decode<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, PluginError> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let decoded = match first {
        None => Err(DecodeError::Empty),
        Some(b'{') => serde_json::from_slice(text).map_err(|error| json_fault(&error)),
        Some(_) => serde_saphyr::from_slice(text).map_err(|_| DecodeError::Yaml),
    };
    decoded.map_err(PluginError::Decode)
}

/// Where it is wrong; the text of the error itself may quote a value.
fn json_fault(error: &serde_json::Error) -> DecodeError {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Data => DecodeError::Shape { line, column },
        Category::Io | Category::Syntax | Category::Eof => DecodeError::Json { line, column },
    }
}

impl SecretText {
    pub(crate) fn bytes(&self) -> Option<&SecretBytes> {
        self.0.as_ref().filter(|bytes| !bytes.is_empty())
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = SecretText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<SecretText, E> {
                Ok(SecretText(Some(SecretBytes::copy_of(text.as_bytes()))))
            }

            fn visit_string<E>(self, text: String) -> Result<SecretText, E> {
                Ok(SecretText(Some(SecretBytes::from(text.into_bytes()))))
            }

            fn visit_none<E>(self) -> Result<SecretText, E> {
                Ok(SecretText(None))
            }

            fn visit_unit<E>(self) -> Result<SecretText, E> {
                Ok(SecretText(None))
            }

            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<SecretText, D::Error> {
                inner.deserialize_string(self)
            }
        }

        deserializer.deserialize_option(Text)
    }
}

#[cfg(test)]
/// CRED-10, CRED-11, CRED-17, CRED-20..22, CRED-26.
mod tests;
