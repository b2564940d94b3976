//! Bodies in YAML, `application/yaml`.
//!
//! They are read as the YAML of Go programs is: `yes` is a boolean and `0644` is octal. Depth,
//! aliases and what aliases expand to are bounded, and no error shows a value.

use serde_json::Value;
use serde_saphyr::{
    Error, Options,
    options::{DuplicateKeyPolicy, NonFiniteFloatPolicy},
};

use super::{
    compiled::Compiled,
    walk::{Fault, Walked, walk},
};

/// Deeper documents are refused. Each level of YAML takes much more of the stack than one of JSON.
const MAX_DEPTH: usize = 48;

/// Most aliases in a document.
const MAX_ALIASES: usize = 1000;

/// Most values in a document, those counted that aliases stand for.
const MAX_NODES: usize = 100_000;

/// Most text in a document, all that aliases stand for included; as large as a body may be.
const MAX_TEXT: usize = 3 * 1024 * 1024;

/// What is wrong with a document, and on which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(crate) struct YamlError {
    line: u64,
    what: String,
}

/// Reads `body` as `schema` says; a fault is ours to explain, an error without one is that of YAML.
pub(super) fn walk_yaml(
    schema: &Compiled,
    body: &[u8],
) -> Result<Walked, (Option<Fault>, YamlError)> {
    let text =
        std::str::from_utf8(body).map_err(|error| (None, not_text(body, error.valid_up_to())))?;
    let mut fault = None;
    let read = read(text, DuplicateKeyPolicy::LastWins, |source| {
        walk(schema, source).map_err(|(found, error)| {
            fault = found;
            error
        })
    });
    let mut walked = read.map_err(|error| (fault, explain(&error)))?;
    // A duplicate of a key that looks like a number is not shown to the walk.
    if !walked.findings.iter().any(|finding| finding.starts_with("duplicate"))
        && let Some(line) = duplicate_key(text)
    {
        walked.findings.push(format!("line {line}: key already set in map"));
    }
    Ok(walked)
}

fn read<'de, R>(
    text: &'de str,
    duplicate_keys: DuplicateKeyPolicy,
    with: impl FnOnce(serde_saphyr::Deserializer<'de, '_>) -> Result<R, Error>,
) -> Result<R, Error> {
    serde_saphyr::with_deserializer_from_str_with_options(text, options(duplicate_keys), with)
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    let budget = serde_saphyr::budget! {
        max_depth: MAX_DEPTH,
        flow_nesting_limit: MAX_DEPTH,
        max_aliases: MAX_ALIASES,
        max_nodes: MAX_NODES,
        max_total_scalar_bytes: MAX_TEXT,
        max_recorded_anchor_bytes: 2 * MAX_TEXT,
    };
    serde_saphyr::options! {
        budget: budget,
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
    }
}

/// The line of the first key that stands twice in a map.
fn duplicate_key(text: &str) -> Option<u64> {
    let read = read(text, DuplicateKeyPolicy::Error, |source| {
        serde::Deserialize::deserialize(source).map(|_: Value| ())
    });
    match read {
        Err(error @ Error::DuplicateMappingKey { .. }) => Some(line(&error)),
        Err(_) | Ok(()) => None,
    }
}

fn explain(error: &Error) -> YamlError {
    let what = match error {
        Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => "too many aliases",
        Error::AliasError { error, .. } => return explain(error),
        Error::Budget { .. } => "too deep, or too large with what aliases stand for",
        // The parser's own texts name a character of the document at most.
        Error::ExternalMessage { msg, .. } => msg,
        Error::MultipleDocuments { .. } => "more than one document",
        _ => "not valid YAML",
    };
    YamlError { line: line(error), what: what.to_owned() }
}

fn line(error: &Error) -> u64 {
    error.location().map_or(1, |location| location.line())
}

fn not_text(body: &[u8], at: usize) -> YamlError {
    let before = body.iter().take(at).filter(|&&byte| byte == b'\n').count();
    YamlError { line: before as u64 + 1, what: "not UTF-8".to_owned() }
}

#[cfg(test)]
mod tests;
