//! From the bytes of a request to an object of a kind.

use serde_json::{Deserializer, Value};

use super::{
    KindSchema, Versions,
    compiled::Compiled,
    walk::{Fault, MAX_DEPTH, MAX_ITEMS, Walked, walk},
    yaml::{YamlError, walk_yaml},
};

/// What to do about unknown and duplicate fields: the query parameter `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and warn.
    #[default]
    Warn,
    /// Refuse the document.
    Strict,
}

impl FieldValidation {
    /// Parses the query parameter; an empty one is an absent one.
    pub(crate) fn parse(raw: &str) -> Option<Self> {
        match raw {
            "" => Some(Self::default()),
            "Ignore" => Some(Self::Ignore),
            "Warn" => Some(Self::Warn),
            "Strict" => Some(Self::Strict),
            _ => None,
        }
    }
}

/// An object that has the shape of its kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoded {
    /// The object, without unknown fields, with its `apiVersion` and `kind`.
    pub(crate) object: Value,
    /// What the caller is to be warned about.
    pub(crate) warnings: Vec<String>,
}

/// Why a document is no object of a kind. No text shows a value of the document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DecodeError {
    /// It is not JSON.
    #[error("json parse error")]
    Malformed(#[source] serde_json::Error),
    /// It is not YAML.
    #[error("error converting YAML to JSON: yaml")]
    Yaml(#[source] YamlError),
    /// It is JSON that no object looks like.
    #[error("nesting is deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// It has more in it than anybody needs.
    #[error("lists and maps have more than {MAX_ITEMS} items together")]
    TooLong,
    /// A field holds a value of another type.
    #[error("{path}: expected {expected}, found {found}")]
    WrongType { path: String, expected: &'static str, found: &'static str },
    /// It says that it is of another version.
    #[error(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    )]
    WrongVersion { found: String, expected: String },
    /// It says that it is of another kind.
    #[error("the kind in the data ({found}) does not match the expected kind ({expected})")]
    WrongKind { found: String, expected: &'static str },
    /// It has fields that the kind has not, or has fields twice.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

impl KindSchema {
    /// Reads `body` as an object of this kind.
    pub(crate) fn decode(
        &self,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Decoded, DecodeError> {
        let mut source = Deserializer::from_slice(body);
        let walked = walked(self.compiled(), &mut source)?;
        source.end().map_err(DecodeError::Malformed)?;
        self.judge(walked, validation)
    }

    /// As [`Self::decode`], for a body in YAML.
    pub(crate) fn decode_yaml(
        &self,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Decoded, DecodeError> {
        let walked = walk_yaml(self.compiled(), body);
        let walked = walked.map_err(|(fault, error)| explain(fault, DecodeError::Yaml(error)))?;
        self.judge(walked, validation)
    }

    /// Does to a finished document, such as a patched one, what [`Self::decode`] does to bytes.
    pub(crate) fn check(
        &self,
        document: Value,
        validation: FieldValidation,
    ) -> Result<Decoded, DecodeError> {
        let walked = walked(self.compiled(), document)?;
        self.judge(walked, validation)
    }

    /// As [`Self::check`] for what a patch made; fields that stand twice in the patch are found.
    pub(crate) fn check_patched(
        &self,
        document: Value,
        patch: &[u8],
        validation: FieldValidation,
    ) -> Result<Decoded, DecodeError> {
        let mut walked = walked(self.compiled(), document)?;
        let mut findings = duplicate_fields(patch);
        findings.append(&mut walked.findings);
        self.judge(Walked { findings, ..walked }, validation)
    }

    /// Reads a configuration to be applied, in YAML or JSON: as it is written, since who applies a field
    /// manages it. That it has the shape of this kind is checked; fields that the kind has not are for
    /// the merge to refuse, whatever `validation` says.
    pub(crate) fn decode_config(
        &self,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Decoded, DecodeError> {
        let any = Compiled::any();
        let mut source = Deserializer::from_slice(body);
        let read = walked(&any, &mut source);
        let read =
            read.and_then(|read| source.end().map_err(DecodeError::Malformed).map(|()| read));
        let walked = match read {
            // Most clients send JSON, which the reader of YAML is slower with.
            Err(DecodeError::Malformed(_)) => walk_yaml(&any, body)
                .map_err(|(fault, error)| explain(fault, DecodeError::Yaml(error)))?,
            read => read?,
        };
        self.check(walked.value.clone(), FieldValidation::Ignore)?;
        match validation {
            FieldValidation::Strict if !walked.findings.is_empty() => {
                Err(DecodeError::Strict(walked.findings))
            }
            FieldValidation::Ignore => Ok(Decoded { object: walked.value, warnings: Vec::new() }),
            FieldValidation::Warn | FieldValidation::Strict => {
                Ok(Decoded { object: walked.value, warnings: walked.findings })
            }
        }
    }

    /// The message of the 400 that answers a request with such a document.
    pub(crate) fn refusal(&self, error: &DecodeError) -> String {
        let Self { kind, version, .. } = self;
        match error {
            DecodeError::Yaml(source) => {
                format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: {error}: {source}"
                )
            }
            DecodeError::Malformed(source) => {
                format!(
                    "the object provided is unrecognized (must be of type {kind}): {error}: {source}"
                )
            }
            DecodeError::WrongVersion { .. } => error.to_string(),
            DecodeError::WrongKind { found, .. } => {
                format!("{found} in version {version:?} cannot be handled as a {kind}")
            }
            DecodeError::TooDeep
            | DecodeError::TooLong
            | DecodeError::WrongType { .. }
            | DecodeError::Strict(_) => {
                format!("{kind} in version {version:?} cannot be handled as a {kind}: {error}")
            }
        }
    }

    fn judge(&self, walked: Walked, validation: FieldValidation) -> Result<Decoded, DecodeError> {
        let Walked { value: mut object, findings } = walked;
        self.check_names(&mut object)?;
        match validation {
            FieldValidation::Strict if !findings.is_empty() => Err(DecodeError::Strict(findings)),
            FieldValidation::Ignore => Ok(Decoded { object, warnings: Vec::new() }),
            FieldValidation::Warn | FieldValidation::Strict => {
                Ok(Decoded { object, warnings: findings })
            }
        }
    }

    /// Checks the names that the object gives itself, and adds those that it leaves out.
    fn check_names(&self, object: &mut Value) -> Result<(), DecodeError> {
        let named =
            |key: &str| object.get(key).and_then(Value::as_str).filter(|name| !name.is_empty());
        if let Some(found) = named("kind").filter(|kind| *kind != self.kind) {
            return Err(DecodeError::WrongKind { found: found.to_owned(), expected: self.kind });
        }
        if self.versions == Versions::Every {
            return Ok(());
        }
        let expected = self.api_version();
        if let Some(found) = named("apiVersion").filter(|version| *version != expected) {
            return Err(DecodeError::WrongVersion { found: found.to_owned(), expected });
        }
        if let Value::Object(fields) = object {
            fields.insert("apiVersion".to_owned(), expected.into());
            fields.insert("kind".to_owned(), self.kind.into());
        }
        Ok(())
    }
}

/// The fields that stand twice in `body`, which is JSON of any shape; what is no JSON has none.
fn duplicate_fields(body: &[u8]) -> Vec<String> {
    let walked = walk(&Compiled::any(), &mut Deserializer::from_slice(body));
    walked.map(|walked| walked.findings).unwrap_or_default()
}

fn walked<'de, D>(schema: &Compiled, source: D) -> Result<Walked, DecodeError>
where
    D: serde::Deserializer<'de, Error = serde_json::Error>,
{
    walk(schema, source).map_err(|(fault, error)| explain(fault, DecodeError::Malformed(error)))
}

/// The fault of a walk; without one it is `otherwise`.
fn explain(fault: Option<Fault>, otherwise: DecodeError) -> DecodeError {
    match fault {
        Some(Fault::TooDeep) => DecodeError::TooDeep,
        Some(Fault::TooLong) => DecodeError::TooLong,
        Some(Fault::WrongType { path, expected, found }) => {
            DecodeError::WrongType { path, expected, found }
        }
        None => otherwise,
    }
}

#[cfg(test)]
mod tests;
