//! `waybill{<class>/<key>}`: a variable whose value a driver fetches, written as text.
//!
//! A stock API server knows no `csiSecretRef`, so the reference is the whole `value` of the variable.
//! Only the API's pod spec can ask for something by it: the agent answers for nothing else.

use std::fmt;

use waybill_core::{id::ProviderClassName, provider::KEY_BYTES};

/// A key of a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    class: ProviderClassName,
    key: Box<str>,
}

impl Reference {
    /// Reads a value: a reference, or `None` for text that is none. Text that begins as a reference must be
    /// one, so that a slip of the pen does not reach a process as its value; a literal is escaped with a
    /// second brace.
    pub fn parse(value: &str) -> Result<Option<Self>, ReferenceError> {
        let Some(rest) = value.strip_prefix(OPEN) else { return Ok(None) };
        if rest.starts_with('{') {
            return Ok(None);
        }
        let inside = rest.strip_suffix('}').ok_or(ReferenceError::Open)?;
        let (class, key) = inside.split_once('/').ok_or(ReferenceError::Slash)?;
        let class = ProviderClassName::parse(class).map_err(|_| ReferenceError::Class)?;
        if key.is_empty() || key.len() > KEY_BYTES || key.contains(char::is_control) {
            return Err(ReferenceError::Key);
        }
        Ok(Some(Self { class, key: key.into() }))
    }

    /// The ProviderClass.
    pub fn class(&self) -> &ProviderClassName {
        &self.class
    }

    /// The key, as `csiSecretRef.key`.
    pub fn key(&self) -> &str {
        &self.key
    }
}

/// The text of the reference, which [`Reference::parse`] reads.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OPEN}{}/{}}}", self.class, self.key)
    }
}

/// What an escaped value stands for: `waybill{{…` is the text with one brace less. `None` when the value is
/// not escaped and stands for itself.
pub fn literal(value: &str) -> Option<String> {
    let rest = value.strip_prefix(OPEN)?.strip_prefix('{')?;
    Some(format!("{OPEN}{rest}"))
}

const OPEN: &str = "waybill{";

/// Why a value that begins as a reference is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// Nothing closes it at the end of the value.
    #[error("a reference ends with }}; write waybill{{{{ for a literal")]
    Open,
    /// There is no `/` between class and key.
    #[error("a reference has the form waybill{{<class>/<key>}}; write waybill{{{{ for a literal")]
    Slash,
    /// The class has no possible name.
    #[error("a reference names a ProviderClass, in lower case")]
    Class,
    /// The key is empty, too long, or has a control character.
    #[error("a reference has a key of 1 to {KEY_BYTES} bytes without control characters")]
    Key,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(value: &str, expected: Result<Option<(&str, &str)>, ReferenceError>) {
        let found = Reference::parse(value);
        let parts = found.as_ref().map(|reference| {
            reference.as_ref().map(|reference| (reference.class().as_str(), reference.key()))
        });
        assert_eq!(parts.map_err(|error| *error), expected, "{value}");
    }

    #[test]
    fn a_reference_has_a_class_and_a_key() {
        check("waybill{db/password}", Ok(Some(("db", "password"))));
        check("waybill{a.b-c/x/y}z}", Ok(Some(("a.b-c", "x/y}z"))));
        check("waybill{db//p}", Ok(Some(("db", "/p"))));
    }

    #[test]
    fn other_text_is_no_reference() {
        for value in
            ["", "waybill", "Waybill{db/p}", " waybill{db/p}", "$waybill{db/p}", "waybill{{db/p}"]
        {
            check(value, Ok(None));
        }
    }

    #[test]
    fn a_broken_reference_is_an_error_and_no_literal() {
        check("waybill{", Err(ReferenceError::Open));
        check("waybill{db/p} ", Err(ReferenceError::Open));
        check("waybill{db}", Err(ReferenceError::Slash));
        check("waybill{}", Err(ReferenceError::Slash));
        check("waybill{DB/p}", Err(ReferenceError::Class));
        check("waybill{/p}", Err(ReferenceError::Class));
        check("waybill{db/}", Err(ReferenceError::Key));
        check("waybill{db/a\nb}", Err(ReferenceError::Key));
        check(&format!("waybill{{db/{}}}", "k".repeat(KEY_BYTES + 1)), Err(ReferenceError::Key));
    }

    #[test]
    fn an_escaped_value_loses_one_brace() {
        assert_eq!(literal("waybill{{db/p}").as_deref(), Some("waybill{db/p}"));
        assert_eq!(literal("waybill{{{x").as_deref(), Some("waybill{{x"));
        assert_eq!(literal("waybill{db/p}"), None);
        assert_eq!(literal("text"), None);
    }

    proptest! {
        #[test]
        fn every_reference_reads_as_it_is_written(class in "[a-z]([a-z0-9]{0,8}[.-]?[a-z0-9]){0,3}", key in "[^\\p{Cc}]{1,40}") {
            let text = format!("waybill{{{class}/{key}}}");
            let reference = Reference::parse(&text).unwrap().unwrap();
            prop_assert_eq!(reference.to_string(), text);
        }

        #[test]
        fn a_value_is_at_most_one_of_reference_and_escaped(value in "(waybill)?\\{{0,3}[a-z/}]{0,8}") {
            let is_reference = matches!(Reference::parse(&value), Ok(Some(_)) | Err(_));
            prop_assert!(!(is_reference && literal(&value).is_some()));
        }

        /// Whatever a user means literally can be written.
        #[test]
        fn every_text_can_be_written_as_a_literal(text: String) {
            let escaped = match text.strip_prefix("waybill{") {
                Some(rest) => format!("waybill{{{{{rest}"),
                None => text.clone(),
            };
            prop_assert_eq!(Reference::parse(&escaped), Ok(None));
            prop_assert_eq!(literal(&escaped).unwrap_or(escaped), text);
        }
    }
}
