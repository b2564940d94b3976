//! Opening variables that a client sealed for this node.

use std::fs;

use hpke::{
    Deserializable, Kem, OpModeR, aead::ChaCha20Poly1305, kdf::HkdfSha256, kem::X25519HkdfSha256,
};
use sha2::{Digest, Sha256};
use waybill_api::stock::{Refusal, SEALED_INFO, SealedVariables, unframed};
use waybill_core::{
    env::{
        limits::EXEC_BYTES,
        merge::EnvVar,
        name::{EnvName, NameRules},
        origin::Origin,
        value::EnvValue,
    },
    secret::SecretBytes,
};

use crate::{bundle::Identity, node::Node};

/// The variables of a sealed word, and the digest of its seal, by which a second use is noticed: HPKE makes no two alike.
pub(crate) struct Opened {
    pub(crate) variables: Vec<EnvVar>,
    pub(crate) digest: [u8; 32],
}

/// Opens `word` for a container of this node.
pub(crate) fn open(node: &Node, word: &str, identity: &Identity) -> Result<Opened, Refusal> {
    let sealed = SealedVariables::parse(word).map_err(|_| Refusal::Variables)?;
    if sealed.uid != identity.uid || sealed.container != identity.container {
        return Err(Refusal::OtherContainer);
    }
    if node.seconds() > sealed.expires_at {
        return Err(Refusal::Expired);
    }
    let values = unseal(node, &sealed).ok_or(Refusal::Variables)?;
    let variables = variables(&sealed, values.expose()).ok_or(Refusal::Variables)?;
    let seal = Sha256::new().chain_update(&sealed.encapsulated).chain_update(&sealed.ciphertext);
    Ok(Opened { variables, digest: seal.finalize().into() })
}

fn unseal(node: &Node, sealed: &SealedVariables) -> Option<SecretBytes> {
    let key = SecretBytes::from(fs::read(node.layout().seal(&sealed.kid)?).ok()?);
    let key = <X25519HkdfSha256 as Kem>::PrivateKey::from_bytes(key.expose()).ok()?;
    let encapsulated =
        <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(&sealed.encapsulated).ok()?;
    let opened = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeR::Base,
        &key,
        &encapsulated,
        SEALED_INFO,
        &sealed.ciphertext,
        &sealed.additional_data(),
    );
    opened.ok().map(SecretBytes::from)
}

fn variables(sealed: &SealedVariables, values: &[u8]) -> Option<Vec<EnvVar>> {
    let values = unframed(values).ok()?;
    let bytes: usize =
        sealed.names.iter().map(String::len).chain(values.iter().map(|value| value.len())).sum();
    if values.len() != sealed.names.len() || bytes > EXEC_BYTES {
        return None;
    }
    let variable = |(name, value): (&String, &[u8])| {
        Some(EnvVar {
            name: EnvName::parse(name, NameRules::Relaxed).ok()?,
            value: EnvValue::secret(value.to_vec()).ok()?,
            origin: Origin::Caller,
        })
    };
    sealed.names.iter().zip(values).map(variable).collect()
}
