//! Variables from Secrets. Their values stay in memory that is wiped.

use waybill_api::pod::KeySelector;
use waybill_core::{env::value::EnvValue, secret::SecretBytes};

use super::{
    error::Reason,
    gather::Gathered,
    merge::{Pairs, gathered},
};
use crate::objects::ObjectKind;

/// Every key of a Secret.
pub(super) fn all(found: &Gathered<'_>, name: &str) -> Result<Pairs, Reason> {
    let object = gathered(found.secrets.get(name), ObjectKind::Secret, name)?;
    let pair = |(key, value): (&String, &SecretBytes)| Ok((key.clone(), copy(value)?));
    object.data.iter().map(pair).collect()
}

/// One key, if the Secret has it.
pub(super) fn one(
    found: &Gathered<'_>,
    selector: &KeySelector,
) -> Result<Option<EnvValue>, Reason> {
    let name = &*selector.name;
    let object = gathered(found.secrets.get(name), ObjectKind::Secret, name)?;
    object.data.get(&selector.key).map(copy).transpose()
}

fn copy(value: &SecretBytes) -> Result<EnvValue, Reason> {
    Ok(EnvValue::secret(value.expose().to_vec())?)
}
