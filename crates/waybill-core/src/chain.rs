//! Prints an error with all its sources.
//!
//! Our errors never repeat their source in their own text, so one printer shows the whole chain
//! once: `reading a.env: permission denied`.

use core::{error::Error, fmt};

/// Displays an error and everything that caused it, separated by `: `.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("middle")]
    struct Middle(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;

    #[test]
    fn every_source_is_printed_once() {
        assert_eq!(Chain(&Outer(Middle(Inner))).to_string(), "outer: middle: inner");
        assert_eq!(Chain(&Inner).to_string(), "inner");
    }
}
