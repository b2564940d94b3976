//! Variables from ConfigMaps: `data` only, as in Kubernetes.

use waybill_core::{
    env::value::{EnvValue, EnvValueError},
    secret::SecretBytes,
};

use super::gather::Content;
use crate::objects::ConfigMap;

/// What a ConfigMap gives to environments.
pub(super) fn content(object: &ConfigMap) -> Content<'_> {
    Content { data: &object.data, to_value }
}

fn to_value(bytes: &SecretBytes) -> Result<EnvValue, EnvValueError> {
    EnvValue::plain(bytes.expose())
}
