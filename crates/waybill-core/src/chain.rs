//! Prints an error with all its sources.
//!
//! Our errors never repeat their source in their own text, so one printer shows the whole chain
//! once: `reading a.env: permission denied`. Errors of others do repeat theirs; what the text before ends with is
//! not said again.

use alloc::string::{String, ToString};
use core::{error::Error, fmt};

/// Displays an error and everything that caused it, separated by `: `.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said: String = self.0.to_string();
        f.write_str(&said)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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

    /// As errors of gRPC do.
    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeating(#[source] Middle);

    #[test]
    fn what_an_error_repeats_is_not_said_twice() {
        assert_eq!(Chain(&Repeating(Middle(Inner))).to_string(), "outer: middle: inner");
    }

    #[test]
    fn every_source_is_printed_once() {
        assert_eq!(Chain(&Outer(Middle(Inner))).to_string(), "outer: middle: inner");
        assert_eq!(Chain(&Inner).to_string(), "inner");
    }
}
