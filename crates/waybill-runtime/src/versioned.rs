//! Records that outlive the process that wrote them, and the version that each carries.
//!
//! Within one version fields may be added, and a reader ignores what it does not know. A higher version means that the meaning
//! has changed: a reader that knows only lower ones reports the record and leaves it, and what it is about, as they are (ADR 0044).
//! A record without a version was written before there were any, and is of version 0.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A kind of record.
pub(crate) trait Versioned {
    /// The newest version that this program reads, and the one that it writes unless a record can do with less.
    const VERSION: u32;

    /// The lowest version whose readers understand all of this record.
    fn version(&self) -> u32 {
        Self::VERSION
    }
}

/// Why a record says nothing to us. Never a part of its content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Somebody who knows more wrote it.
    #[error("it is of version {version}, and this program knows none above {known}")]
    Newer { version: u32, known: u32 },
    /// Nobody could read it.
    #[error("it is damaged in line {line}, column {column}")]
    Damaged { line: usize, column: usize },
    /// The disk or the kernel failed.
    #[error("it cannot be read")]
    Io(#[from] io::Error),
}

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self::Damaged { line: error.line(), column: error.column() }
    }
}

/// A record with its version beside its fields.
#[derive(Serialize)]
struct Tagged<'a, T> {
    version: u32,
    #[serde(flatten)]
    content: &'a T,
}

/// What a record of every version has.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: u32,
}

/// The text of a record.
pub(crate) fn to_vec<T: Versioned + Serialize>(content: &T) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Tagged { version: content.version(), content })
}

/// Reads the text of a record.
pub(crate) fn from_slice<T: Versioned + DeserializeOwned>(text: &[u8]) -> Result<T, Unreadable> {
    let Version { version } = serde_json::from_slice(text)?;
    if version > T::VERSION {
        return Err(Unreadable::Newer { version, known: T::VERSION });
    }
    Ok(serde_json::from_slice(text)?)
}

/// Reads a file; `None` if there is none.
pub(crate) fn load<T: Versioned + DeserializeOwned>(path: &Path) -> Result<Option<T>, Unreadable> {
    match fs::read(path) {
        Ok(text) => from_slice(&text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Thing {
        name: String,
    }

    impl Versioned for Thing {
        const VERSION: u32 = 2;
    }

    /// D15
    #[test]
    fn what_is_older_or_has_more_fields_is_read_and_what_is_newer_is_not() {
        let read = |text: &str| from_slice::<Thing>(text.as_bytes());
        for good in [
            r#"{"name":"a"}"#,
            r#"{"version":1,"name":"a"}"#,
            r#"{"name":"a","version":2,"more":[]}"#,
        ] {
            assert_eq!(read(good).unwrap().name, "a", "{good}");
        }
        let newer = read(r#"{"version":3,"name":"a"}"#).unwrap_err();
        assert!(matches!(newer, Unreadable::Newer { version: 3, known: 2 }), "{newer}");
        // Its version is told also when nothing else of it is what we know.
        assert!(matches!(read(r#"{"version":3}"#), Err(Unreadable::Newer { .. })));
        for bad in ["", "{", "[]", r#"{"version":1}"#, r#"{"version":"x","name":"a"}"#] {
            assert!(matches!(read(bad), Err(Unreadable::Damaged { .. })), "{bad}");
        }
    }

    #[test]
    fn what_is_written_has_its_version_and_no_error_repeats_content() {
        let text = to_vec(&Thing { name: "a".into() }).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), r#"{"version":2,"name":"a"}"#);
        let error = from_slice::<Thing>(br#"{"name":["hunter2"]}"#).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
