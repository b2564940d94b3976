//! Tokens of the pod's service account, as the kubelet sends them to drivers that ask (OP-41).

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use waybill_core::secret::SecretBytes;

use crate::driver::PodToken;

/// Key of the context under which they are, the same as for volumes.
pub(super) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    token: Secret,
    expiration_timestamp: String,
}

/// Tokens by audience; nothing if `text` is something else. What is wrong is not told: it could quote a
/// token. The text itself is wiped.
pub(super) fn parse(text: String) -> Option<BTreeMap<String, PodToken>> {
    let text = SecretBytes::from(text.into_bytes());
    let tokens: BTreeMap<String, Token> = serde_json::from_slice(text.expose()).ok()?;
    let token = |it: Token| PodToken { token: it.token.0, expires: it.expiration_timestamp };
    Some(tokens.into_iter().map(|(audience, it)| (audience, token(it))).collect())
}

/// Copied out of the text at once into memory that is wiped.
struct Secret(SecretBytes);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret(SecretBytes::copy_of(text.as_bytes())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
