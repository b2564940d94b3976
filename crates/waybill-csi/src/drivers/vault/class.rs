//! What a class and a variable say to this driver.

use crate::{
    driver::{Call, FetchError, Query},
    drivers::fields::FIELD,
    http::{Address, is_plain_path},
};

/// Parameters of a class; the guide explains each.
const ADDRESS: &str = "vaultAddr";
const ROLE: &str = "vaultRole";
const NAMESPACE: &str = "vaultNamespace";
const AUTH_PATH: &str = "vaultAuthPath";
const AUDIENCE: &str = "audience";
const CA_BUNDLE: &str = "caBundle";
const KV_VERSION: &str = "kvVersion";

/// Parameter of a variable.
const VERSION: &str = "version";

/// Where paths are not secrets but the backend's own affairs, the login of the pod among them.
const OWN_PATHS: [&str; 4] = ["auth", "cubbyhole", "identity", "sys"];

/// The parameters of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VaultClass {
    pub(super) address: Address,
    pub(super) role: String,
    pub(super) namespace: Option<String>,
    /// Where the auth method is mounted, below `auth/`.
    pub(super) auth_path: String,
    pub(super) audience: String,
    pub(super) ca_bundle: Option<String>,
    /// Told by the answer if the class does not say.
    pub(super) kv_version: Option<KvVersion>,
}

/// The two layouts of the KV engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum KvVersion {
    One,
    Two,
}

impl VaultClass {
    pub(super) fn parse(call: &Call) -> Result<Self, FetchError> {
        let wrong = |name: &str, rule: &str| {
            let class = &call.class;
            FetchError::invalid(format!("parameter {name} of ProviderClass {class:?} {rule}"))
        };
        let auth_path = call.parameter(AUTH_PATH).unwrap_or("kubernetes").trim_matches('/');
        let auth_path = auth_path.strip_prefix("auth/").unwrap_or(auth_path);
        if !is_plain_path(auth_path) {
            return Err(wrong(AUTH_PATH, "must be the path of an auth method, like kubernetes"));
        }
        let kv_version = match call.parameter(KV_VERSION) {
            None => None,
            Some("1") => Some(KvVersion::One),
            Some("2") => Some(KvVersion::Two),
            Some(_) => return Err(wrong(KV_VERSION, "must be 1 or 2")),
        };
        Ok(Self {
            address: Address::parse(call, ADDRESS, call.required(ADDRESS)?)?,
            role: call.required(ROLE)?.into(),
            namespace: call.parameter(NAMESPACE).map(|text| text.trim_matches('/').into()),
            auth_path: auth_path.into(),
            audience: call.parameter(AUDIENCE).unwrap_or("vault").into(),
            ca_bundle: call.parameter(CA_BUNDLE).map(Into::into),
            kv_version,
        })
    }
}

fn is_own_path(segment: &str) -> bool {
    OWN_PATHS.contains(&segment)
}

/// What is read in one request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SecretPath {
    /// The path of the API, as in `secret/data/db-creds`.
    pub(super) key: String,
    /// Only secrets of KV version 2 have versions.
    pub(super) version: Option<u64>,
}

impl SecretPath {
    /// Whether it could lead to the backend's own affairs, since a namespace may stand in front of a path:
    /// `team/auth/token/lookup-self` is the login of the pod if there is a namespace `team`.
    pub(super) fn may_be_own(&self) -> bool {
        self.key.split('/').any(is_own_path)
    }
}

/// One variable.
#[derive(Debug)]
pub(super) struct VaultQuery {
    pub(super) path: SecretPath,
    /// Which field of the secret; the only one, if it is not named.
    pub(super) field: Option<String>,
}

impl VaultQuery {
    pub(super) fn parse(query: &Query, class: &VaultClass) -> Result<Self, FetchError> {
        let key = &query.key;
        if !is_plain_path(key) {
            return Err(FetchError::invalid(format!(
                "key {key:?} is not a path of the API, like secret/data/db-creds"
            )));
        }
        if key.split('/').next().is_some_and(is_own_path) {
            return Err(FetchError::denied(format!("key {key:?} is not in a secrets engine")));
        }
        let mut parsed = Self { path: SecretPath { key: key.clone(), version: None }, field: None };
        for (name, value) in &query.parameters {
            match name.as_str() {
                FIELD => parsed.field = Some(value.clone()),
                VERSION => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    let wrong = || FetchError::invalid(format!("version of {key} is not a number"));
                    parsed.path.version = Some(number.ok_or_else(wrong)?);
                }
                // The proposal's example repeats the role at the variable. It is the class that decides.
                ROLE if *value == class.role => {}
                ROLE => {
                    return Err(FetchError::denied(format!(
                        "vaultRole of {key} is not the role of the ProviderClass"
                    )));
                }
                _ => {
                    return Err(FetchError::invalid(format!(
                        "{key} has the unknown parameter {name:?}; there are {FIELD} and {VERSION}"
                    )));
                }
            }
        }
        Ok(parsed)
    }
}
