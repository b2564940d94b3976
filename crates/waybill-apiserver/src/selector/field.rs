//! Field selectors: `spec.nodeName=a,status.phase!=Failed`.
//!
//! This is the grammar alone; which fields a resource has is in `supported`.

use std::{borrow::Cow, fmt};

/// Requirements on fields, all of which must hold; without any, every object matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldRequirement {
    /// The path of the field, such as `metadata.name`.
    pub(crate) field: String,
    /// How it is compared.
    pub(crate) operator: FieldOperator,
    /// With what.
    pub(crate) value: String,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldOperator {
    /// `=` or `==`.
    Equals,
    /// `!=`.
    NotEquals,
}

/// Why a field selector is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldSelectorError {
    /// A backslash before a character that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A term without an operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    /// A `,` or `=` in a value without a backslash.
    // Upstream prints the code point.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
    /// A field that is not among the two that every resource has.
    #[error("{0:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")]
    Unknown(String),
    /// A field that this resource, which has fields of its own, does not offer.
    #[error("field label not supported: {0}")]
    Unsupported(String),
}

impl FieldSelector {
    /// Reads a field selector.
    pub(crate) fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let requirements = terms(text)
            .filter(|term| !term.is_empty())
            .map(|term| FieldRequirement::parse(text, term))
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// A selector of these requirements.
    pub(crate) fn new(requirements: Vec<FieldRequirement>) -> Self {
        Self { requirements }
    }

    /// Whether every requirement holds; a field without a value has the empty one.
    pub(crate) fn matches<'a>(&self, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = field(&requirement.field).unwrap_or_default();
            match requirement.operator {
                FieldOperator::Equals => value == requirement.value,
                FieldOperator::NotEquals => value != requirement.value,
            }
        })
    }

    /// The only value that `field` may have, if the selector says so.
    pub(crate) fn exact(&self, field: &str) -> Option<&str> {
        let exact = |requirement: &&FieldRequirement| {
            requirement.operator == FieldOperator::Equals && requirement.field == field
        };
        self.requirements.iter().find(exact).map(|requirement| requirement.value.as_str())
    }

    /// Whether there is no requirement, so that every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements as they were written.
    pub(crate) fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl FieldRequirement {
    fn parse(selector: &str, term: &str) -> Result<Self, FieldSelectorError> {
        let not_understood =
            || FieldSelectorError::Term { selector: selector.to_owned(), term: term.to_owned() };
        // The first operator divides: the field has no backslashes, since no field needs them.
        let at = term.find('=').ok_or_else(not_understood)?;
        let (field, value) = term.split_at_checked(at).ok_or_else(not_understood)?;
        let (field, operator) = match field.strip_suffix('!') {
            Some(field) => (field, FieldOperator::NotEquals),
            None => (field, FieldOperator::Equals),
        };
        let value = match operator {
            FieldOperator::Equals => value.strip_prefix("==").or(value.strip_prefix('=')),
            FieldOperator::NotEquals => value.strip_prefix('='),
        };
        let value = unescape(value.ok_or_else(not_understood)?)?;
        Ok(Self { field: field.to_owned(), operator, value })
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            FieldOperator::Equals => "=",
            FieldOperator::NotEquals => "!=",
        };
        write!(f, "{}{operator}", self.field)?;
        for c in self.value.chars() {
            let backslash = if matches!(c, '\\' | ',' | '=') { "\\" } else { "" };
            write!(f, "{backslash}{c}")?;
        }
        Ok(())
    }
}

/// The parts of `text` between commas that no backslash protects.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c: char| {
        let divides = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        divides
    })
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(next @ ('\\' | ',' | '=')) => plain.push(next),
                Some(next) => return Err(FieldSelectorError::Escape(format!("\\{next}"))),
                None => return Err(FieldSelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(c)),
            _ => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, FieldOperator, &str)]) {
        let selector = FieldSelector::parse(text).unwrap();
        let requirements: Vec<_> = selector
            .requirements()
            .iter()
            .map(|r| (r.field.as_str(), r.operator, r.value.as_str()))
            .collect();
        assert_eq!(requirements, expected, "{text:?}");
    }

    #[track_caller]
    fn refused(text: &str, message: &str) {
        assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), message);
    }

    #[test]
    fn terms_are_divided_and_unescaped() {
        use FieldOperator::{Equals, NotEquals};
        check("", &[]);
        check(",", &[]);
        check("a.b=c", &[("a.b", Equals, "c")]);
        check("a==b,c!=d", &[("a", Equals, "b"), ("c", NotEquals, "d")]);
        check("a=", &[("a", Equals, "")]);
        check("a!=", &[("a", NotEquals, "")]);
        check(r"a=b\,c\=d\\", &[("a", Equals, r"b,c=d\")]);
    }

    #[test]
    fn faults_read_as_in_kubernetes() {
        refused("a", "invalid selector: 'a'; can't understand 'a'");
        refused("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'");
        refused("a=b=c", "invalid field selector: unescaped character in value: 61");
        refused(r"a=\b", r"invalid field selector: invalid escape sequence: \b");
        refused(r"a=b\", r"invalid field selector: invalid escape sequence: \");
    }

    #[test]
    fn a_field_without_a_value_has_the_empty_one() {
        let matches = |text: &str| {
            let selector = FieldSelector::parse(text).unwrap();
            selector.matches(|field| (field == "a").then_some(Cow::Borrowed("1")))
        };
        assert!(matches("a=1"));
        assert!(!matches("a!=1"));
        assert!(matches("b="));
        assert!(!matches("a=1,b!="));
    }

    #[test]
    fn only_an_equation_is_exact() {
        let selector = FieldSelector::parse("metadata.name=x,a!=y").unwrap();
        assert_eq!(selector.exact("metadata.name"), Some("x"));
        assert_eq!(selector.exact("a"), None);
    }

    proptest! {
        #[test]
        fn what_was_read_prints_so_that_it_reads_the_same(text in r"[a-c!=,\\.]{0,24}|\PC*") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                let again = FieldSelector::parse(&selector.to_string());
                prop_assert_eq!(again.unwrap(), selector);
            }
        }
    }
}
