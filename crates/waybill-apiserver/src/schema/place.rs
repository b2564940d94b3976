//! Where in a document a finding is.

use std::fmt;

/// A name longer than this is cut in messages, which may end up in headers.
const NAME_LIMIT: usize = 128;

/// A place in a document, as a chain back to its root; writing it costs nothing until it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Root,
    Field(&'a Self, &'a str),
    Element(&'a Self, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(&cut(name)),
            Self::Field(parent, name) => write!(f, "{parent}.{}", cut(name)),
            Self::Element(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME_LIMIT) {
        Some((at, _)) => format!("{}...", name.get(..at).unwrap_or_default()),
        None => name.to_owned(),
    }
}
