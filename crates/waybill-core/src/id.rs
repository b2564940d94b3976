//! Identifiers that cannot be mistaken for one another.
//!
//! Each is parsed once, at the border where it enters a process. A [`PodUid`] cannot be passed as an
//! [`AuditId`], and none can carry a line break into a log or a path separator into a file name
//! unless its own rule says so.

use alloc::boxed::Box;
use core::fmt;

/// Why a text is not an identifier of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The text has no characters.
    #[error("{kind} is empty")]
    Empty {
        /// What was being parsed, in words.
        kind: &'static str,
    },
    /// The text is longer than the kind allows.
    #[error("{kind} has {length} bytes, at most {limit} are allowed")]
    TooLong {
        /// What was being parsed, in words.
        kind: &'static str,
        /// The length found, in bytes.
        length: usize,
        /// The longest length allowed, in bytes.
        limit: usize,
    },
    /// A byte that this kind does not allow.
    #[error("{kind} has an illegal byte at offset {at}")]
    Byte {
        /// What was being parsed, in words.
        kind: &'static str,
        /// Offset of the first such byte.
        at: usize,
    },
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, at most $limit:literal, $rule:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Parses `raw`; the type's documentation states the rule.
            pub fn parse(raw: &str) -> Result<Self, IdError> {
                check(raw, $kind, $limit, $rule).map(|()| Self(raw.into()))
            }

            /// The identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// One request in the audit log: 1 to 64 printable ASCII characters without space (OP-11).
    AuditId, "audit id", at most 64, graphic
);
text_id!(
    /// The name of a container inside its pod: a DNS-1123 label.
    ContainerName, "container name", at most 63, label
);
text_id!(
    /// The name of a CSI driver, which is also a directory on the node: 1 to 63 letters, digits,
    /// `-` and `.`, a letter or digit at both ends.
    DriverName, "driver name", at most 63, domain
);
text_id!(
    /// One exec session on its node: 1 to 64 letters, digits and `-`, fit for a file name.
    ExecId, "exec id", at most 64, token
);
text_id!(
    /// One life of a pod: 1 to 63 letters, digits and `-`, fit for a file name.
    PodUid, "pod uid", at most 63, token
);
text_id!(
    /// The name of a ProviderClass: a DNS-1123 subdomain.
    ProviderClassName, "provider class name", at most 253, subdomain
);

/// A point in the history of the store; a later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceVersion(u64);

impl ResourceVersion {
    /// Parses the decimal form that the API uses; no sign, no leading zero, not empty.
    pub fn parse(raw: &str) -> Result<Self, IdError> {
        let decimal = |bytes: &[u8]| match bytes {
            [b'0', _, ..] => Some(0),
            _ => bytes.iter().position(|byte| !byte.is_ascii_digit()),
        };
        check(raw, "resource version", 20, decimal)?;
        let too_large = |_| IdError::Byte { kind: "resource version", at: raw.len() - 1 };
        raw.parse().map(Self).map_err(too_large)
    }

    /// The version as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for ResourceVersion {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether `text` is a DNS-1123 label, as the names of namespaces are.
pub(crate) fn is_dns_label(text: &str) -> bool {
    check(text, "label", 63, label).is_ok()
}

/// `rule` returns the offset of the first byte that it refuses.
fn check(
    raw: &str,
    kind: &'static str,
    limit: usize,
    rule: impl Fn(&[u8]) -> Option<usize>,
) -> Result<(), IdError> {
    let length = raw.len();
    if length == 0 {
        return Err(IdError::Empty { kind });
    }
    if length > limit {
        return Err(IdError::TooLong { kind, length, limit });
    }
    match rule(raw.as_bytes()) {
        Some(at) => Err(IdError::Byte { kind, at }),
        None => Ok(()),
    }
}

fn graphic(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| !byte.is_ascii_graphic())
}

fn token(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'-'))
}

fn domain(bytes: &[u8]) -> Option<usize> {
    let inner = bytes
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')));
    inner.or_else(|| bad_end(bytes))
}

fn label(bytes: &[u8]) -> Option<usize> {
    bytes
        .iter()
        .position(|byte| !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-'))
        .or_else(|| bad_end(bytes))
}

fn subdomain(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    for part in bytes.split(|byte| *byte == b'.') {
        let fault = if part.is_empty() { Some(0) } else { label(part) };
        if let Some(at) = fault {
            return Some((start + at).min(bytes.len() - 1));
        }
        start += part.len() + 1;
    }
    None
}

/// The offset of a first or last byte that is neither letter nor digit.
fn bad_end(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [first, ..] if !first.is_ascii_alphanumeric() => Some(0),
        [.., last] if !last.is_ascii_alphanumeric() => Some(bytes.len() - 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn audit_ids_are_short_printable_text_op_11() {
        let longest = "x".repeat(64);
        assert!(AuditId::parse(&longest).is_ok());
        assert_eq!(
            AuditId::parse(&"x".repeat(65)).unwrap_err().to_string(),
            "audit id has 65 bytes, at most 64 are allowed"
        );
        assert_eq!(AuditId::parse("").unwrap_err().to_string(), "audit id is empty");
        for bad in ["a b", "a\nb", "a\0", "ä"] {
            assert!(matches!(AuditId::parse(bad), Err(IdError::Byte { .. })), "{bad:?}");
        }
    }

    #[test]
    fn names_that_become_paths_cannot_leave_their_directory() {
        for bad in [".", "..", "../x", "a/b", "/a", ".a", "a.", "-a", "a b", "a\0"] {
            assert!(DriverName::parse(bad).is_err(), "{bad:?}");
            assert!(ExecId::parse(bad).is_err() || bad == "-a", "{bad:?}");
            assert!(ProviderClassName::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(DriverName::parse("os.csi.waybill.dev").unwrap().as_str(), "os.csi.waybill.dev");
    }

    #[test]
    fn class_names_are_dns_subdomains() {
        assert!(ProviderClassName::parse("vault-secrets.prod").is_ok());
        for (bad, at) in [("a..b", 2), ("a.-b", 2), ("a.b-", 3), ("A", 0), ("a.", 1)] {
            assert!(
                matches!(ProviderClassName::parse(bad), Err(IdError::Byte { at: found, .. }) if found == at),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn resource_versions_are_plain_decimals_and_ordered() {
        let version = |raw: &str| ResourceVersion::parse(raw);
        assert!(version("9").unwrap() < version("10").unwrap());
        assert_eq!(version("18446744073709551615").unwrap().get(), u64::MAX);
        assert_eq!(version("0").unwrap().to_string(), "0");
        for bad in ["", "-1", "+1", "01", "1.0", "18446744073709551616", "999999999999999999999"] {
            assert!(version(bad).is_err(), "{bad:?}");
        }
    }
}
