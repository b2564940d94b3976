//! Tokens of the pod's service account, as the kubelet sends them to drivers that ask (OP-41).

use std::collections::BTreeMap;

use serde::Deserialize;
use waybill_core::secret::SecretBytes;

use crate::{driver::PodToken, secret_text::SecretText};

/// Key of the context under which they are, the same as for volumes.
pub(crate) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    token: SecretText,
    expiration_timestamp: String,
}

/// Tokens by audience; nothing if `text` is something else. What is wrong is not told: it could quote a
/// token. The text itself is wiped.
pub(crate) fn parse(text: String) -> Option<BTreeMap<String, PodToken>> {
    let text = SecretBytes::from(text.into_bytes());
    let tokens: BTreeMap<String, Token> = serde_json::from_slice(text.expose()).ok()?;
    let token = |it: Token| PodToken { token: it.token.0, expires: it.expiration_timestamp };
    Some(tokens.into_iter().map(|(audience, it)| (audience, token(it))).collect())
}
