//! What a class and a variable say to this driver.

use http::Uri;
use waybill_core::{provider::ALLOWED_FIELDS, secret::SecretBytes};

use super::cloud::{Cloud, Content};
use crate::{
    driver::{Answer, Call, FetchError, Query},
    drivers::fields::{FIELD, Fields, named},
    http::{Address, is_plain_path},
};

/// Parameters of a class; the guide explains each.
const CLOUD: &str = "cloud";
const ENDPOINT: &str = "endpoint";
const ALLOW_CREDENTIALS: &str = "allowCredentials";

/// Parameters of a variable: what a token of Azure is for, and an identity of GCE.
const RESOURCE: &str = "resource";
const AUDIENCE: &str = "audience";

/// The parameters of a class.
#[derive(Debug)]
pub(super) struct MetadataClass {
    pub(super) cloud: Cloud,
    pub(super) address: Address,
    allows_credentials: bool,
    /// Keys that `allowedFields` names letter by letter.
    named: Vec<String>,
}

impl MetadataClass {
    pub(super) fn parse(call: &Call) -> Result<Self, FetchError> {
        let cloud = Cloud::parse(call.required(CLOUD)?).ok_or_else(|| {
            FetchError::invalid(format!(
                "parameter {CLOUD} of ProviderClass {:?} is none of ec2, gce and azure",
                call.class
            ))
        })?;
        let address = match call.parameter(ENDPOINT) {
            Some(raw) => Address::parse(call, ENDPOINT, raw)?,
            None => Address::of_metadata(),
        };
        let allows_credentials = call.parameter(ALLOW_CREDENTIALS) == Some("true");
        let list = call.parameter(ALLOWED_FIELDS).unwrap_or_default();
        let named = list.split(',').map(|item| item.trim().to_owned()).collect();
        Ok(Self { cloud, address, allows_credentials, named })
    }

    /// Refuses what may hold secrets of the machine. What its owner wrote there may be had by a class that
    /// names it; a pattern names nothing.
    fn check(&self, key: &str) -> Result<(), FetchError> {
        // Servers need not care for case where we do.
        let content = self.cloud.content(&key.to_lowercase());
        match content {
            Content::Fact => Ok(()),
            _ if self.allows_credentials => Ok(()),
            Content::Custom if self.named.iter().any(|named| named == key) => Ok(()),
            Content::Custom => Err(FetchError::denied(format!(
                "{key} may hold secrets of the machine's owner; a class whose {ALLOWED_FIELDS} names it, \
                 without a pattern, allows it, as does {ALLOW_CREDENTIALS}: \"true\""
            ))),
            Content::Credential => Err(FetchError::denied(format!(
                "{key} may hold credentials of the machine, which the class does not allow; \
                 {ALLOW_CREDENTIALS}: \"true\" would"
            ))),
        }
    }
}

/// What is read in one request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub(super) key: String,
    purpose: Option<(&'static str, String)>,
}

impl Resource {
    pub(super) fn uri(&self, class: &MetadataClass) -> Result<Uri, FetchError> {
        let (path, query) = class.cloud.path(&self.key);
        let purpose = self.purpose.iter().map(|(name, value)| (*name, value.as_str()));
        let query: Vec<_> = query.iter().copied().chain(purpose).collect();
        class.address.join(&path, &query)
    }
}

/// One variable.
#[derive(Debug)]
pub(super) struct MetadataQuery {
    pub(super) resource: Resource,
    /// Which field of an answer that is a JSON object.
    field: Option<String>,
}

impl MetadataQuery {
    pub(super) fn parse(query: &Query, class: &MetadataClass) -> Result<Self, FetchError> {
        let Query { key, parameters } = query;
        if !is_plain_path(key) {
            return Err(FetchError::invalid(format!(
                "key {key:?} is not a path of metadata, like instance-id"
            )));
        }
        class.check(key)?;
        let mut parsed =
            Self { resource: Resource { key: key.clone(), purpose: None }, field: None };
        for (name, value) in parameters {
            let purpose = match (name.as_str(), class.cloud) {
                (FIELD, _) => {
                    parsed.field = Some(value.clone());
                    continue;
                }
                (RESOURCE, Cloud::Azure) => RESOURCE,
                (AUDIENCE, Cloud::Gce) => AUDIENCE,
                _ => {
                    return Err(FetchError::invalid(format!(
                        "{key} has the unknown parameter {name:?}; there is {FIELD}"
                    )));
                }
            };
            parsed.resource.purpose = Some((purpose, value.clone()));
        }
        Ok(parsed)
    }

    /// The value for the variable, out of the answer.
    pub(super) fn select(&self, value: &SecretBytes) -> Answer {
        let Some(field) = &self.field else { return Ok(SecretBytes::copy_of(value.expose())) };
        let key = &self.resource.key;
        let fields: Fields<'_> = serde_json::from_slice(value.expose()).map_err(|_| {
            FetchError::invalid(format!("{key} is not a JSON object, so it has no fields"))
        })?;
        named(&fields, field, key)
    }
}
