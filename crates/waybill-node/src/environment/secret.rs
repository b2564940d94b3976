//! Variables from Secrets. Their values stay in memory that is wiped.

use waybill_core::{
    env::value::{EnvValue, EnvValueError},
    secret::SecretBytes,
};

use super::gather::Content;
use crate::objects::Secret;

/// What a Secret gives to environments.
pub(super) fn content(object: &Secret) -> Content<'_> {
    Content { data: &object.data, to_value }
}

fn to_value(bytes: &SecretBytes) -> Result<EnvValue, EnvValueError> {
    EnvValue::secret(bytes.expose().to_vec())
}
