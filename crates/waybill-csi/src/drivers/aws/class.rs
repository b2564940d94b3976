//! What a class and a variable say to this driver.

use serde_json::from_slice;
use waybill_core::secret::SecretBytes;

use crate::{
    driver::{Answer, Call, FetchError, Query},
    drivers::fields::{FIELD, Fields, named},
    http::Address,
};

/// Parameters of a class; the guide explains each.
const ROLE: &str = "roleArn";
const REGION: &str = "region";
const AUDIENCE: &str = "audience";
const CA_BUNDLE: &str = "caBundle";
const ENDPOINT: &str = "endpoint";

/// Parameters of a variable.
const VERSION_STAGE: &str = "versionStage";
const VERSION_ID: &str = "versionId";
const VERSION: &str = "version";

/// The services that are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Sts,
    SecretsManager,
    Ssm,
}

const SERVICES: [Service; 3] = [Service::Sts, Service::SecretsManager, Service::Ssm];

impl Service {
    /// Its name in addresses and signatures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sts => "sts",
            Self::SecretsManager => "secretsmanager",
            Self::Ssm => "ssm",
        }
    }

    /// The parameter of a class that names its address.
    fn endpoint(self) -> &'static str {
        match self {
            Self::Sts => "stsEndpoint",
            Self::SecretsManager => "secretsManagerEndpoint",
            Self::Ssm => "ssmEndpoint",
        }
    }
}

/// The parameters of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AwsClass {
    pub(super) role: String,
    pub(super) region: String,
    pub(super) audience: String,
    pub(super) ca_bundle: Option<String>,
    sts: Address,
    secrets_manager: Address,
    ssm: Address,
}

impl AwsClass {
    pub(super) fn parse(call: &Call) -> Result<Self, FetchError> {
        let region = call.required(REGION)?;
        // It becomes part of a host's name.
        if !region
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        {
            return Err(FetchError::invalid(format!(
                "parameter {REGION} of ProviderClass {:?} is not a region, like eu-central-1",
                call.class
            )));
        }
        let address = |service: Service| {
            let own = call.parameter(service.endpoint()).map(|raw| (service.endpoint(), raw));
            match own.or_else(|| call.parameter(ENDPOINT).map(|raw| (ENDPOINT, raw))) {
                Some((name, raw)) => Address::parse(call, name, raw),
                None => Address::parse(call, REGION, &public(service, region)),
            }
        };
        Ok(Self {
            role: call.required(ROLE)?.into(),
            region: region.into(),
            audience: call.parameter(AUDIENCE).unwrap_or("sts.amazonaws.com").into(),
            ca_bundle: call.parameter(CA_BUNDLE).map(Into::into),
            sts: address(Service::Sts)?,
            secrets_manager: address(Service::SecretsManager)?,
            ssm: address(Service::Ssm)?,
        })
    }

    /// Addresses that the class names itself.
    pub(super) fn other_addresses(&self) -> impl Iterator<Item = &Address> {
        let own = |service: Service| {
            let address = self.address(service);
            (!address.is(&public(service, &self.region))).then_some(address)
        };
        SERVICES.iter().filter_map(move |service| own(*service))
    }

    pub(super) fn address(&self, service: Service) -> &Address {
        match service {
            Service::Sts => &self.sts,
            Service::SecretsManager => &self.secrets_manager,
            Service::Ssm => &self.ssm,
        }
    }
}

/// The address that AWS documents; China is a partition of its own.
fn public(service: Service, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://{}.{region}.amazonaws.com{suffix}", service.name())
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// A secret, by its name or ARN.
    Secret { id: String, version: SecretVersion },
    /// A parameter, by its name or ARN, with `:version` or `:label` behind it.
    Parameter { name: String, selector: Option<String> },
}

/// Which version of a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SecretVersion {
    Current,
    Stage(String),
    Id(String),
}

/// One variable.
#[derive(Debug)]
pub(super) struct AwsQuery {
    pub(super) key: String,
    pub(super) item: Item,
    /// Which field of a secret that is a JSON object.
    field: Option<String>,
}

impl AwsQuery {
    pub(super) fn parse(query: &Query) -> Result<Self, FetchError> {
        let Query { key, parameters } = query;
        let wrong = |what: &str| FetchError::invalid(format!("{key} {what}"));
        let mut item = match key.split_once('/') {
            Some(("secretsmanager", id)) if !id.is_empty() => {
                Item::Secret { id: id.into(), version: SecretVersion::Current }
            }
            // A selector may stand behind a name, where no allow-list has seen it as such.
            Some(("ssm", name)) if name.contains(':') && !name.starts_with("arn:") => {
                return Err(wrong("has a selector in its name; say it with the parameter version"));
            }
            Some(("ssm", name)) if !name.is_empty() => {
                Item::Parameter { name: full_name(name), selector: None }
            }
            _ => return Err(wrong("is neither secretsmanager/<name> nor ssm/<name>")),
        };
        let mut field = None;
        for (parameter, value) in parameters {
            if parameter != FIELD && !is_version(value) {
                return Err(wrong(&format!(
                    "has a {parameter} that is none: 1 to 256 letters, digits, '.', '-', '_' and '/'"
                )));
            }
            match (parameter.as_str(), &mut item) {
                (FIELD, _) => field = Some(value.clone()),
                (VERSION_STAGE, Item::Secret { version: version @ SecretVersion::Current, .. }) => {
                    *version = SecretVersion::Stage(value.clone());
                }
                (VERSION_ID, Item::Secret { version: version @ SecretVersion::Current, .. }) => {
                    *version = SecretVersion::Id(value.clone());
                }
                (VERSION_STAGE | VERSION_ID, Item::Secret { .. }) => {
                    return Err(wrong("has both versionStage and versionId"));
                }
                (VERSION, Item::Parameter { selector, .. }) => *selector = Some(value.clone()),
                (other, Item::Secret { .. }) => {
                    return Err(wrong(&format!(
                        "has the unknown parameter {other:?}; there are {FIELD}, {VERSION_STAGE} \
                         and {VERSION_ID}"
                    )));
                }
                (other, Item::Parameter { .. }) => {
                    return Err(wrong(&format!(
                        "has the unknown parameter {other:?}; there are {FIELD} and {VERSION}"
                    )));
                }
            }
        }
        Ok(Self { key: key.clone(), item, field })
    }

    /// The value for the variable, out of that of the secret or parameter.
    pub(super) fn select(&self, value: &SecretBytes) -> Answer {
        let Some(field) = &self.field else { return Ok(SecretBytes::copy_of(value.expose())) };
        let fields: Fields<'_> = from_slice(value.expose()).map_err(|_| {
            FetchError::invalid(format!("{} is not a JSON object, so it has no fields", self.key))
        })?;
        named(&fields, field, &self.key)
    }
}

/// What versions, labels and stages are made of; nothing that could end one and begin something else.
fn is_version(text: &str) -> bool {
    (1..=256).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_/".contains(&byte))
}

/// AWS wants a slash before names with slashes in them, where it would be a second one in a key.
fn full_name(name: &str) -> String {
    let is_path = name.contains('/') && !name.starts_with('/') && !name.starts_with("arn:");
    if is_path { format!("/{name}") } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, parameters: &[(&str, &str)], expected: Result<Item, &str>) {
        let parameters = parameters.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let parsed = AwsQuery::parse(&Query { key: key.into(), parameters });
        let parsed = parsed.map(|query| query.item).map_err(|error| error.message);
        assert_eq!(parsed, expected.map_err(str::to_owned));
    }

    fn secret(id: &str, version: SecretVersion) -> Result<Item, &'static str> {
        Ok(Item::Secret { id: id.into(), version })
    }

    fn parameter(name: &str, selector: Option<&str>) -> Result<Item, &'static str> {
        Ok(Item::Parameter { name: name.into(), selector: selector.map(Into::into) })
    }

    #[test]
    fn a_key_names_the_service_first() {
        check("secretsmanager/prod/db", &[], secret("prod/db", SecretVersion::Current));
        check("ssm/db", &[], parameter("db", None));
        check("ssm/prod/db", &[], parameter("/prod/db", None));
        check("ssm//db", &[], parameter("/db", None));
        check(
            "ssm/arn:aws:ssm:r:1:parameter/a/b",
            &[],
            parameter("arn:aws:ssm:r:1:parameter/a/b", None),
        );
        for key in ["", "db", "ssm", "ssm/", "secretsmanager/", "s3/bucket", "SSM/db"] {
            check(key, &[], Err(&format!("{key} is neither secretsmanager/<name> nor ssm/<name>")));
        }
    }

    #[test]
    fn versions_are_those_of_the_service() {
        let stage = SecretVersion::Stage("AWSPREVIOUS".into());
        check("secretsmanager/a", &[("versionStage", "AWSPREVIOUS")], secret("a", stage));
        let id = SecretVersion::Id("1".into());
        check("secretsmanager/a", &[("versionId", "1"), ("field", "f")], secret("a", id));
        check("ssm/a", &[("version", "3")], parameter("a", Some("3")));
        let both = "secretsmanager/a has both versionStage and versionId";
        check("secretsmanager/a", &[("versionId", "1"), ("versionStage", "s")], Err(both));
        let unknown = "ssm/a has the unknown parameter \"versionId\"; there are field and version";
        check("ssm/a", &[("versionId", "1")], Err(unknown));
    }

    #[test]
    fn a_version_is_one_word() {
        for wrong in ["", "1:2", "1\n", "a b", "1,2", "é", "\u{0}", &"1".repeat(257)] {
            for (key, name) in [
                ("ssm/a", "version"),
                ("secretsmanager/a", "versionId"),
                ("secretsmanager/a", "versionStage"),
            ] {
                let text = format!(
                    "{key} has a {name} that is none: 1 to 256 letters, digits, '.', '-', '_' and '/'"
                );
                check(key, &[(name, wrong)], Err(&text));
            }
        }
        let text = "ssm/a:3 has a selector in its name; say it with the parameter version";
        check("ssm/a:3", &[], Err(text));
        check("ssm/a", &[("version", "blue-1.x_y")], parameter("a", Some("blue-1.x_y")));
    }

    #[test]
    fn regions_have_addresses_in_their_partition() {
        let address = public(Service::SecretsManager, "eu-central-1");
        assert_eq!(address, "https://secretsmanager.eu-central-1.amazonaws.com");
        assert_eq!(public(Service::Sts, "cn-north-1"), "https://sts.cn-north-1.amazonaws.com.cn");
    }
}
