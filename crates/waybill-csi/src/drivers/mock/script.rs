//! The file that says what a mock does, in YAML or JSON.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::process::geteuid;
use serde::{Deserialize, Deserializer, de::Error};
use waybill_core::{duration::parse_duration, secret::SecretBytes};

use crate::{
    driver::{FailureKind, FetchError, Hints, Sharing},
    secret_text::SecretText,
};

/// Larger files are no scripts.
const SCRIPT_BYTES: u64 = 16 << 20;

/// What a mock does.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Script {
    capability: bool,
    hints: HintTexts,
    sharing: SharingName,
    #[serde(rename = "cacheTTL")]
    cache_ttl: Time,
    values: BTreeMap<String, SecretText>,
    base64_values: BTreeMap<String, Base64>,
    errors: BTreeMap<String, Failure>,
    calls: Vec<Behaviour>,
    otherwise: Behaviour,
    journal: Option<PathBuf>,
}

/// What happens to one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Behaviour {
    /// As it should.
    #[default]
    Answer,
    /// The same after a while.
    Delay(Time),
    /// No answer, ever.
    Hang,
    /// The process ends.
    Crash,
    /// The call fails so.
    Status(FailedCall),
    /// Results in reverse order.
    WrongOrder,
    /// The last result is missing.
    MissingResult,
    /// The last result is there twice.
    ExtraResult,
    /// The first result is for another variable.
    WrongName,
    /// The first result has both.
    ValueAndError,
    /// A NUL byte at the end of the first value.
    Nul,
    /// A byte at the end of the first value that is no text.
    NotUtf8,
    /// So many bytes as the first value.
    Oversize(usize),
    /// So many results.
    Results(usize),
}

/// A gRPC status.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FailedCall {
    pub(super) code: i32,
    #[serde(default)]
    pub(super) message: String,
}

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// It cannot be read.
    #[error("cannot read the script {}", path.display())]
    Read {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Others could read the values in it.
    #[error("others may read the script {}, which has values in it; `chmod 600` it", path.display())]
    Open {
        /// Where it is.
        path: PathBuf,
    },
    /// It says something that is not understood. The parser's words could quote a value, so they are not
    /// repeated.
    #[error("the script {} is not understood at line {line}; the guide for authors shows one", path.display())]
    Syntax {
        /// Where it is.
        path: PathBuf,
        /// Where the parser stopped; zero if it does not say.
        line: u64,
    },
}

impl Script {
    pub(super) fn read(path: &Path) -> Result<Self, ScriptError> {
        let failed = |source| ScriptError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let owner = geteuid().as_raw();
        if metadata.mode() & 0o077 != 0 || ![0, owner].contains(&metadata.uid()) {
            return Err(ScriptError::Open { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        file.take(SCRIPT_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let bytes = SecretBytes::from(bytes);
        serde_saphyr::from_slice(bytes.expose()).map_err(|error| ScriptError::Syntax {
            path: path.to_owned(),
            line: error.location().map_or(0, |location| location.line()),
        })
    }

    pub(super) fn capability(&self) -> bool {
        self.capability
    }

    pub(super) fn hints(&self) -> Hints {
        let HintTexts { max_payload_bytes, max_value_bytes, rpc_timeout, max_in_flight } =
            self.hints;
        let rpc_timeout = rpc_timeout.map(|Time(timeout)| timeout);
        Hints { max_payload_bytes, max_value_bytes, rpc_timeout, max_in_flight }
    }

    pub(super) fn sharing(&self) -> Sharing {
        match self.sharing {
            SharingName::Class => Sharing::Class,
            SharingName::Identity => Sharing::Identity,
            SharingName::Pod => Sharing::Pod,
        }
    }

    pub(super) fn cache_ttl(&self) -> Duration {
        self.cache_ttl.0
    }

    pub(super) fn value(&self, key: &str) -> Option<&SecretBytes> {
        let text = self.values.get(key).map(|text| &text.0);
        text.or_else(|| self.base64_values.get(key).map(|value| &value.0))
    }

    pub(super) fn failure(&self, key: &str) -> Option<FetchError> {
        let Failure { kind, message } = self.errors.get(key)?;
        let kind = match kind {
            KindName::NotFound => FailureKind::NotFound,
            KindName::Denied => FailureKind::Denied,
            KindName::Invalid => FailureKind::Invalid,
            KindName::Unavailable => FailureKind::Unavailable,
            KindName::Backend => FailureKind::Backend,
        };
        Some(FetchError { kind, message: message.clone() })
    }

    /// What happens to a call, counted from zero.
    pub(super) fn behaviour(&self, call: usize) -> Behaviour {
        self.calls.get(call).unwrap_or(&self.otherwise).clone()
    }

    pub(super) fn journal(&self) -> Option<&Path> {
        self.journal.as_deref()
    }
}

impl Default for Script {
    fn default() -> Self {
        Self {
            capability: true,
            hints: HintTexts::default(),
            sharing: SharingName::Identity,
            cache_ttl: Time::default(),
            values: BTreeMap::new(),
            base64_values: BTreeMap::new(),
            errors: BTreeMap::new(),
            calls: Vec::new(),
            otherwise: Behaviour::Answer,
            journal: None,
        }
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct HintTexts {
    max_payload_bytes: Option<u32>,
    max_value_bytes: Option<u32>,
    rpc_timeout: Option<Time>,
    max_in_flight: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SharingName {
    Class,
    Identity,
    Pod,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    kind: KindName,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindName {
    NotFound,
    Denied,
    Invalid,
    Unavailable,
    Backend,
}

/// As Go writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = parse_duration(&text).map(Self);
        time.ok_or_else(|| D::Error::custom("expected a duration such as 200ms"))
    }
}

struct Base64(SecretBytes);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = SecretText::deserialize(deserializer)?.0;
        let bytes = BASE64_STANDARD.decode(text.expose());
        bytes.map(|bytes| Self(bytes.into())).map_err(|_| D::Error::custom("expected base64"))
    }
}
