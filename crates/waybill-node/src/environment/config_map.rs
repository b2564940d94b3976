//! Variables from ConfigMaps: `data` only, as in Kubernetes.

use waybill_api::pod::KeySelector;
use waybill_core::env::value::EnvValue;

use super::{
    error::Reason,
    gather::Gathered,
    merge::{Pairs, gathered},
};
use crate::objects::ObjectKind;

/// Every key of a ConfigMap.
pub(super) fn all(found: &Gathered<'_>, name: &str) -> Result<Pairs, Reason> {
    let object = gathered(found.config_maps.get(name), ObjectKind::ConfigMap, name)?;
    let pair = |(key, value): (&String, &waybill_core::secret::SecretBytes)| {
        Ok((key.clone(), EnvValue::plain(value.expose())?))
    };
    object.data.iter().map(pair).collect()
}

/// One key, if the ConfigMap has it.
pub(super) fn one(
    found: &Gathered<'_>,
    selector: &KeySelector,
) -> Result<Option<EnvValue>, Reason> {
    let name = &*selector.name;
    let object = gathered(found.config_maps.get(name), ObjectKind::ConfigMap, name)?;
    let value = object.data.get(&selector.key);
    Ok(value.map(|value| EnvValue::plain(value.expose())).transpose()?)
}
