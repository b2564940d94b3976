//! Does a driver answer NodeGetEnvVars as the proposal says?
//!
//! Runs against the socket of any driver, with keys that it has. A driver without the capability is
//! *unsupported*, not wrong. Nothing here changes anything, whatever the backend is.

mod cases;
mod client;

use std::{collections::BTreeMap, path::PathBuf};

use self::cases::CASES;
use crate::conformance::{Report, Verdict};

pub use self::client::{Client, DriverUnreachable};

/// A driver, and what it can be asked for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its socket.
    pub socket: PathBuf,
    /// Parameters of the class; allow-lists are added by the cases that need some.
    pub parameters: BTreeMap<String, String>,
    /// Keys that have a value for this pod; two or more say more than one.
    pub keys: Vec<Key>,
    /// A key that has none.
    pub missing: Key,
    /// What stands in the pod's context in place of what the suite would put there.
    pub context: BTreeMap<String, String>,
}

/// A key with parameters of its variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// What to read.
    pub key: String,
    /// For this variable alone.
    pub parameters: BTreeMap<String, String>,
}

impl Key {
    /// Reads `KEY`, or `KEY?name=value&name=value`.
    pub fn parse(text: &str) -> Self {
        let (key, parameters) = text.split_once('?').unwrap_or((text, ""));
        let parameters = parameters.split('&').filter_map(|pair| pair.split_once('='));
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { key: key.to_owned(), parameters: parameters.collect() }
    }

    /// A key beside this one that a backend will not have.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self { key: format!("{}-waybill-missing", self.key), parameters: self.parameters.clone() }
    }
}

impl Target {
    /// A driver at `socket` with these keys, whose classes need no parameters.
    pub fn new(socket: impl Into<PathBuf>, keys: &[&str]) -> Self {
        let keys: Vec<_> = keys.iter().map(|key| Key::parse(key)).collect();
        let missing = keys.first().map_or_else(|| Key::parse("waybill-missing"), Key::sibling);
        Self {
            socket: socket.into(),
            parameters: BTreeMap::new(),
            keys,
            missing,
            context: BTreeMap::new(),
        }
    }
}

/// Runs every case against one driver.
pub async fn run(target: &Target) -> Result<Vec<Report>, DriverUnreachable> {
    let client = Client::connect(target).await?;
    let supported = client.has_capability().await;
    let mut reports = Vec::with_capacity(CASES.len());
    for case in CASES {
        let verdict = if case.needs_capability && !supported {
            Verdict::Unsupported
        } else {
            match (case.check)(&client).await {
                Ok(()) => Verdict::Passed,
                Err(found) => Verdict::Failed(found),
            }
        };
        reports.push(Report { case: case.name, requirement: case.requirement, verdict });
    }
    Ok(reports)
}
