//! How lines are chained: numbers and hashes. Pure.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The hash before the very first line.
pub const START: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Where a chain stands: the last line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// The number of the line; lines count from 1.
    pub n: u64,
    /// Its hash, in hex.
    pub hash: String,
}

impl Default for ChainHead {
    fn default() -> Self {
        Self { n: 0, hash: START.to_owned() }
    }
}

/// What ends every line: the member, and the closing of the object.
const MEMBER: &str = ",\"hash\":\"";
const HASH: usize = 64;
const END: &str = "\"}";

impl ChainHead {
    /// The next line, with its end, for an object of JSON in one line. The head moves on.
    pub(super) fn seal(&mut self, object: &str) -> String {
        let members = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        self.n = self.n.saturating_add(1);
        let body = format!("{{\"n\":{},{}", self.n, members.unwrap_or_default());
        self.hash = digest(&self.hash, &body);
        format!("{body}{MEMBER}{}{END}\n", self.hash)
    }

    /// Whether a line, without its end, follows this one, as far as its hash tells.
    pub(super) fn is_followed_by(&self, line: &str) -> bool {
        split(line).is_some_and(|(body, hash)| digest(&self.hash, body) == hash)
    }

    /// What a line says of itself; nothing if it is none.
    pub(super) fn of(line: &str) -> Option<Self> {
        let (body, hash) = split(line)?;
        let number = body.strip_prefix("{\"n\":")?;
        let n = number.get(..number.find(',')?)?.parse().ok()?;
        Some(Self { n, hash: hash.to_owned() })
    }
}

/// What is hashed, and the hash that is told.
fn split(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_suffix(END)?;
    let (rest, hash) = rest.split_at_checked(rest.len().checked_sub(HASH)?)?;
    Some((rest.strip_suffix(MEMBER)?, hash))
}

fn digest(before: &str, body: &str) -> String {
    let digest = Sha256::new_with_prefix(before).chain_update(body).finalize();
    digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).collect()
}

fn hex_digit(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_follows_the_one_that_it_was_sealed_after_and_no_other() {
        let mut head = ChainHead::default();
        let first = head.seal(r#"{"entry":"stop"}"#);
        let after_first = head.clone();
        let second = head.seal(r#"{"entry":"stop"}"#);
        assert!(ChainHead::default().is_followed_by(first.trim_end()));
        assert!(after_first.is_followed_by(second.trim_end()));
        assert!(!ChainHead::default().is_followed_by(second.trim_end()));
        assert!(!after_first.is_followed_by(&second.trim_end().replace("stop", "step")));
        assert_eq!(ChainHead::of(second.trim_end()), Some(head));
    }

    /// The format is a promise: anybody can check it with a shell.
    #[test]
    fn the_hash_is_that_of_the_hash_before_and_the_line_up_to_it() {
        let line = ChainHead::default().seal(r#"{"entry":"stop","at":"2026-01-02T03:04:05Z"}"#);
        let begin = r#"{"n":1,"entry":"stop","at":"2026-01-02T03:04:05Z","hash":""#;
        assert!(line.starts_with(begin) && line.ends_with("\"}\n"), "{line}");
        let body = line.split(",\"hash\"").next().unwrap();
        let shell = format!("printf '%s%s' {START} '{body}' | sha256sum | cut -c1-64");
        let output = std::process::Command::new("sh").args(["-c", &shell]).output().unwrap();
        let digest = String::from_utf8(output.stdout).unwrap();
        assert_eq!(ChainHead::of(line.trim_end()).unwrap().hash, digest.trim());
    }

    /// Somebody may have changed the last line, which a collector then goes on from.
    #[test]
    fn the_highest_number_is_no_reason_to_fail() {
        let mut head = ChainHead { n: u64::MAX, hash: START.to_owned() };
        assert!(head.seal(r#"{"entry":"stop"}"#).contains("18446744073709551615"));
    }

    #[test]
    fn whatever_is_no_line_says_nothing() {
        for text in ["", "{}", "\"}", "é\"}", "{\"n\":x,\"hash\":\"\"}"] {
            assert_eq!(ChainHead::of(text), None, "{text}");
            assert!(!ChainHead::default().is_followed_by(text));
        }
    }
}
