//! Names of environment variables.
//!
//! An [`EnvName`] is proof that a name passed its rule set, so no later layer checks again. The
//! error texts are those of Kubernetes, letter for letter, because users search for them.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

/// A name that passed its [`NameRules`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvName(Box<[u8]>);

impl EnvName {
    /// Parses `raw` under `rules`.
    pub fn parse(raw: &str, rules: NameRules) -> Result<Self, EnvNameError> {
        Self::parse_bytes(raw.as_bytes(), rules)
    }

    /// Parses a name that arrived as bytes, as from a file or a query.
    pub fn parse_bytes(raw: &[u8], rules: NameRules) -> Result<Self, EnvNameError> {
        match rules.fault(raw) {
            Some(fault) => Err(fault),
            None => Ok(Self(raw.into())),
        }
    }

    /// The bytes as they stand in `envp`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as text; `None` is possible only under [`NameRules::Kernel`].
    pub fn as_str(&self) -> Option<&str> {
        core::str::from_utf8(&self.0).ok()
    }
}

/// Bytes that are not printable ASCII are escaped, so a name cannot forge a log line.
impl fmt::Display for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| match byte {
            b' '..=b'~' => write!(f, "{}", char::from(byte)),
            _ => write!(f, "\\x{byte:02x}"),
        })
    }
}

impl fmt::Debug for EnvName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvName({self})")
    }
}

/// The rule sets for names. A feature gate chooses between the two of the Kubernetes API, never the
/// caller's taste.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRules {
    /// What `execve` can carry: not empty, no `=`, no NUL. For names that were never ours to judge:
    /// those of images, and those the node passes on unchanged (NAME-11).
    Kernel,
    /// Printable ASCII except `=` (KEP-4369).
    Relaxed,
    /// `[-._a-zA-Z][-._a-zA-Z0-9]*`, and neither `.` nor anything that starts with `..`.
    Strict,
}

impl NameRules {
    /// Everything that is wrong with `raw`, in the order and words in which Kubernetes reports it.
    pub fn faults(self, raw: &[u8]) -> Vec<EnvNameError> {
        let Some(first) = self.fault(raw) else { return Vec::new() };
        let also_dots = match first {
            EnvNameError::StrictChar { .. } | EnvNameError::LeadingDigit => dot_fault(raw),
            _ => None,
        };
        core::iter::once(first).chain(also_dots).collect()
    }

    /// The first thing that is wrong with `raw`.
    pub fn fault(self, raw: &[u8]) -> Option<EnvNameError> {
        let first = match raw.first() {
            Some(first) => *first,
            None => return Some(EnvNameError::Empty),
        };
        if let Some(at) = raw.iter().position(|&byte| !self.allows(byte)) {
            return Some(match self {
                Self::Kernel => EnvNameError::KernelByte { at },
                Self::Relaxed => EnvNameError::RelaxedChar { at },
                Self::Strict => EnvNameError::StrictChar { at },
            });
        }
        if self != Self::Strict {
            return None;
        }
        if first.is_ascii_digit() { Some(EnvNameError::LeadingDigit) } else { dot_fault(raw) }
    }

    /// Whether `byte` may stand somewhere in a name.
    pub const fn allows(self, byte: u8) -> bool {
        match self {
            Self::Kernel => byte != b'=' && byte != 0,
            Self::Relaxed => matches!(byte, b' '..=b'<' | b'>'..=b'~'),
            Self::Strict => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'),
        }
    }
}

/// Why a text is not a name. The texts say what a name must be; they never quote the text itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvNameError {
    /// There is no name at all; the API reports this as `Required`.
    #[error("environment variable name must be non-empty")]
    Empty,
    /// A byte outside the relaxed rule.
    #[error(
        "a valid environment variable name must consist only of printable ASCII characters other \
         than '='"
    )]
    RelaxedChar {
        /// Offset of the byte.
        at: usize,
    },
    /// A byte outside the strict rule.
    #[error("{STRICT_RULE}")]
    StrictChar {
        /// Offset of the byte.
        at: usize,
    },
    /// The strict rule refuses a digit at the start.
    #[error("{STRICT_RULE}")]
    LeadingDigit,
    /// The name is `.`; upstream shares this rule with ConfigMap keys, which become file names.
    #[error("must not be '.'")]
    Dot,
    /// The name is `..`.
    #[error("must not be '..'")]
    DotDot,
    /// The name starts with `..`.
    #[error("must not start with '..'")]
    DotDotPrefix,
    /// `=` or NUL, which no environment can carry in a name.
    #[error("an environment variable name cannot contain '=' or NUL")]
    KernelByte {
        /// Offset of the byte.
        at: usize,
    },
}

/// The doubled spaces are upstream's.
const STRICT_RULE: &str = "a valid environment variable name must consist of alphabetic \
    characters, digits, '_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or \
    'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')";

fn dot_fault(raw: &[u8]) -> Option<EnvNameError> {
    match raw {
        b"." => Some(EnvNameError::Dot),
        b".." => Some(EnvNameError::DotDot),
        [b'.', b'.', ..] => Some(EnvNameError::DotDotPrefix),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{string::ToString, vec};

    use super::*;

    #[track_caller]
    fn check(raw: &str, rules: NameRules, expected: Option<EnvNameError>) {
        assert_eq!(EnvName::parse(raw, rules).err(), expected, "{raw:?}");
    }

    /// NAME-01, NAME-19
    #[test]
    fn strict_names_name_01() {
        let strict = |raw, expected| check(raw, NameRules::Strict, expected);
        strict("my.env-name", None);
        strict("_", None);
        strict("-", None);
        strict(".hidden", None);
        strict("a..", None);
        strict("1a", Some(EnvNameError::LeadingDigit));
        strict("a:b", Some(EnvNameError::StrictChar { at: 1 }));
        strict(".", Some(EnvNameError::Dot));
        strict("..", Some(EnvNameError::DotDot));
        strict("..a", Some(EnvNameError::DotDotPrefix));
        assert!(EnvNameError::LeadingDigit.to_string().starts_with(
            "a valid environment variable name must consist of alphabetic characters, digits, \
             '_', '-', or '.', and must not start with a digit (e.g. "
        ));
    }

    /// NAME-02, NAME-19
    #[test]
    fn relaxed_names_name_02() {
        let relaxed = |raw, expected| check(raw, NameRules::Relaxed, expected);
        relaxed("Logging:LogLevel:Default", None);
        relaxed(" ", None);
        relaxed("..", None);
        relaxed("1", None);
        relaxed("!\"#$%&'()", None);
        relaxed("A=B", Some(EnvNameError::RelaxedChar { at: 1 }));
        assert_eq!(
            EnvNameError::RelaxedChar { at: 0 }.to_string(),
            "a valid environment variable name must consist only of printable ASCII characters \
             other than '='"
        );
    }

    /// NAME-03: each of the 256 bytes, alone and as second byte, under both rules.
    #[test]
    fn every_byte_alone_and_second_name_03() {
        let passes = |raw: &[u8], rules| EnvName::parse_bytes(raw, rules).is_ok();
        for byte in 0..=u8::MAX {
            let relaxed = (32..=126).contains(&byte) && byte != 61;
            assert_eq!(passes(&[byte], NameRules::Relaxed), relaxed, "{byte}");
            assert_eq!(passes(&[b'A', byte], NameRules::Relaxed), relaxed, "A{byte}");

            let second = b"-._ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                .contains(&byte);
            let alone = second && !byte.is_ascii_digit() && byte != b'.';
            assert_eq!(passes(&[byte], NameRules::Strict), alone, "{byte}");
            assert_eq!(passes(&[b'A', byte], NameRules::Strict), second, "A{byte}");

            let kernel = byte != b'=' && byte != 0;
            assert_eq!(passes(&[byte], NameRules::Kernel), kernel, "{byte}");
            assert_eq!(passes(&[b'A', byte], NameRules::Kernel), kernel, "A{byte}");
        }
    }

    /// NAME-04
    #[test]
    fn empty_and_non_ascii_names_always_fail_name_04() {
        for rules in [NameRules::Relaxed, NameRules::Strict] {
            check("", rules, Some(EnvNameError::Empty));
            for bad in ["Ç", "A😀", "A\u{7f}", "A\t", "\n", "A\0"] {
                assert!(EnvName::parse(bad, rules).is_err(), "{bad:?}");
            }
        }
    }

    #[test]
    fn the_strict_rules_report_pattern_and_dots_together() {
        let faults = NameRules::Strict.faults(b"..=");
        assert_eq!(faults, vec![EnvNameError::StrictChar { at: 2 }, EnvNameError::DotDotPrefix]);
        assert_eq!(NameRules::Strict.faults(b".."), vec![EnvNameError::DotDot]);
        assert_eq!(NameRules::Strict.faults(b"ok"), vec![]);
    }

    #[test]
    fn display_escapes_what_could_forge_a_log_line() {
        let name = EnvName::parse_bytes(b"a\nb\xff", NameRules::Kernel).unwrap();
        assert_eq!(name.to_string(), "a\\x0ab\\xff");
        assert_eq!(name.as_str(), None);
    }
}
