//! Glob patterns for the keys of a ProviderClass.
//!
//! The dialect is small on purpose (OP-32): `*` stands for any characters except `/`, `?` for one
//! character except `/`, `**` for any characters at all, and the rest for itself. What other dialects
//! read as more than themselves is refused, because a pattern that means something else than its
//! author thinks lets the wrong keys through.
//!
//! Names of variables are matched by the same patterns in another way, see
//! [`NamePattern`](crate::env::name_pattern::NamePattern).
//!
//! Keys come from tenants, so matching takes time in proportion to pattern times text and no stack.

use alloc::{boxed::Box, vec::Vec};
use core::{fmt, mem};

/// Longest pattern, in bytes. Patterns are policy written by hand, and matching pays for each byte.
pub const PATTERN_BYTES: usize = 1024;

/// A pattern that was understood completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pattern: Box<str>,
    tokens: Box<[Token]>,
}

impl Glob {
    /// Parses `pattern`; the module's documentation states the dialect.
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        if pattern.is_empty() {
            return Err(GlobError::Empty);
        }
        if pattern.len() > PATTERN_BYTES {
            return Err(GlobError::TooLong { length: pattern.len() });
        }
        let mut tokens = Vec::with_capacity(pattern.len());
        for (at, found) in pattern.char_indices() {
            match found {
                '*' => push_star(&mut tokens, at)?,
                '?' => tokens.push(Token::OneInSegment),
                '[' | ']' | '{' | '}' | '\\' | '!' => return Err(GlobError::Special { at, found }),
                _ if found.is_control() => return Err(GlobError::Control { at }),
                _ => tokens.push(Token::Literal(found)),
            }
        }
        Ok(Self { pattern: pattern.into(), tokens: tokens.into() })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether the pattern matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        self.reached(text, Reading::Key).and_then(|row| row.last().copied()).unwrap_or(false)
    }

    /// Which tokens, each with all before it, match all of `text`; nothing if no text that begins with
    /// `text` can be matched any more.
    pub(crate) fn reached(&self, text: &str, reading: Reading) -> Option<Vec<bool>> {
        // `row[i]` tells whether the tokens up to and including `i` match all of the text read so
        // far, and `nothing` tells it for no tokens at all.
        let leading = self.tokens.iter().take_while(|token| token.spans()).count();
        let mut row: Vec<bool> = (0..self.tokens.len()).map(|i| i < leading).collect();
        let mut nothing = true;
        for next in text.chars() {
            let mut diagonal = mem::replace(&mut nothing, false);
            let mut left = false;
            for (cell, token) in row.iter_mut().zip(&self.tokens) {
                let above = *cell;
                *cell = match token {
                    Token::Literal(wanted) => diagonal && reading.same(next, *wanted),
                    Token::OneInSegment => diagonal && !reading.ends_segment(next),
                    Token::ManyInSegment => left || (above && !reading.ends_segment(next)),
                    Token::Many => left || above,
                };
                diagonal = above;
                left = *cell;
            }
            if !row.contains(&true) {
                return None;
            }
        }
        Some(row)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

/// Why a text is not a pattern. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlobError {
    /// There is no pattern.
    #[error("pattern is empty")]
    Empty,
    /// The pattern is longer than [`PATTERN_BYTES`].
    #[error("pattern has {length} bytes, at most {PATTERN_BYTES} are allowed")]
    TooLong {
        /// The length found, in bytes.
        length: usize,
    },
    /// Three stars or more in a row, which no dialect defines.
    #[error("'***' at offset {at} has no meaning, use '*' or '**'")]
    Stars {
        /// Offset of the third star.
        at: usize,
    },
    /// A character that is special in other dialects.
    #[error("'{found}' at offset {at} is not supported, only '*', '**' and '?' are special")]
    Special {
        /// Offset of the character.
        at: usize,
        /// The character.
        found: char,
    },
    /// A control character, which nobody can see in a policy.
    #[error("control character at offset {at}")]
    Control {
        /// Offset of the character.
        at: usize,
    },
}

/// What a text is, which decides what the tokens stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A key of a ProviderClass: `/` ends a segment, and case counts.
    Key,
    /// The name of a variable: `/` is a character like any other, and case does not count.
    Name,
}

impl Reading {
    fn same(self, one: char, other: char) -> bool {
        match self {
            Self::Key => one == other,
            Self::Name => one.eq_ignore_ascii_case(&other),
        }
    }

    fn ends_segment(self, char: char) -> bool {
        self == Self::Key && char == '/'
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// The character itself.
    Literal(char),
    /// `?`
    OneInSegment,
    /// `*`
    ManyInSegment,
    /// `**`
    Many,
}

impl Token {
    /// Whether the token stands for any number of characters, none included.
    fn spans(self) -> bool {
        match self {
            Self::ManyInSegment | Self::Many => true,
            Self::Literal(_) | Self::OneInSegment => false,
        }
    }
}

fn push_star(tokens: &mut Vec<Token>, at: usize) -> Result<(), GlobError> {
    match tokens.last_mut() {
        Some(Token::Many) => return Err(GlobError::Stars { at }),
        Some(star @ Token::ManyInSegment) => *star = Token::Many,
        _ => tokens.push(Token::ManyInSegment),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: bool) {
        let glob = Glob::parse(pattern).unwrap();
        assert_eq!(glob.matches(text), expected, "{pattern:?} on {text:?}");
    }

    #[track_caller]
    fn refused(pattern: &str, expected: GlobError) {
        assert_eq!(Glob::parse(pattern).unwrap_err(), expected, "{pattern:?}");
    }

    #[test]
    fn a_star_stays_in_its_segment_op_32() {
        check("secret/data/*", "secret/data/db-creds", true);
        check("secret/data/*", "secret/data/", true);
        check("secret/data/*", "secret/data", false);
        check("secret/data/*", "secret/data/app/db", false);
        check("*/db", "app/db", true);
        check("*/db", "app/prod/db", false);
        check("a*c*e", "abcde", true);
        check("a*c*e", "ace", true);
        check("a*c*e", "abde", false);
        check("*", "", true);
        check("*", "a/b", false);
    }

    #[test]
    fn two_stars_cross_segments_op_32() {
        check("secret/**", "secret/data/app/db", true);
        check("secret/**", "secret/", true);
        check("secret/**", "secret", false);
        check("**/db", "a/b/db", true);
        check("a/**/z", "a/b/c/z", true);
        check("a/**/z", "a//z", true);
        check("a/**/z", "a/z", false);
        check("**", "", true);
        check("**", "/a//b/", true);
    }

    #[test]
    fn a_question_mark_is_one_character_and_never_a_slash_op_32() {
        check("db-?", "db-1", true);
        check("db-?", "db-", false);
        check("db-?", "db-12", false);
        check("db-?", "db-é", true);
        check("db-?", "db-😀", true);
        check("a?b", "a/b", false);
    }

    #[test]
    fn everything_else_is_itself_op_32() {
        check("a.b", "a.b", true);
        check("a.b", "axb", false);
        check("$(x)|^a+", "$(x)|^a+", true);
        check("a", "A", false);
        check("a", "", false);
        check("a", "ab", false);
        check("é", "e\u{301}", false);
        check("%2e", ".", false);
    }

    #[test]
    fn patterns_that_could_mean_more_are_refused_with_their_place() {
        refused("", GlobError::Empty);
        refused("a***", GlobError::Stars { at: 3 });
        refused("a/****/b", GlobError::Stars { at: 4 });
        for found in ['[', ']', '{', '}', '\\', '!'] {
            refused(&["é", &found.to_string()].concat(), GlobError::Special { at: 2, found });
        }
        refused("a\0", GlobError::Control { at: 1 });
        refused("a\n", GlobError::Control { at: 1 });
        refused("a\u{9b}", GlobError::Control { at: 1 });
        assert!(Glob::parse(&"x".repeat(1024)).is_ok());
        refused(&"x".repeat(1025), GlobError::TooLong { length: 1025 });
        assert_eq!(
            Glob::parse("a/{b,c}").unwrap_err().to_string(),
            "'{' at offset 2 is not supported, only '*', '**' and '?' are special"
        );
    }

    /// A matcher that tries every split would not come back from these.
    #[test]
    fn hostile_input_takes_pattern_times_text_steps() {
        let text = "a".repeat(4096);
        for unit in ["**a", "*a", "*a**a", "?*", "a*?**"] {
            let pattern = [&unit.repeat(1000 / unit.len()), "b"].concat();
            check(&pattern, &text, false);
        }
        check(&"**a".repeat(341), &text, true);
    }

    /// The definition of the dialect, word for word, and exponential.
    fn reference(pattern: &[char], text: &[char]) -> bool {
        let rest_matches =
            |rest: &[char], count: usize| count <= text.len() && reference(rest, &text[count..]);
        match pattern {
            [] => text.is_empty(),
            ['*', '*', rest @ ..] => (0..=text.len()).any(|count| rest_matches(rest, count)),
            ['*', rest @ ..] => {
                let segment = text.iter().take_while(|c| **c != '/').count();
                (0..=segment).any(|count| rest_matches(rest, count))
            }
            ['?', rest @ ..] => text.first().is_some_and(|c| *c != '/') && rest_matches(rest, 1),
            [literal, rest @ ..] => text.first() == Some(literal) && rest_matches(rest, 1),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab/é*?]{1,9}", text in "[ab/é]{0,9}") {
            if let Ok(glob) = Glob::parse(&pattern) {
                let chars = |text: &str| text.chars().collect::<Vec<_>>();
                prop_assert_eq!(glob.matches(&text), reference(&chars(&pattern), &chars(&text)));
            }
        }

        #[test]
        fn no_text_makes_it_panic(pattern in any::<String>(), text in any::<String>()) {
            if let Ok(glob) = Glob::parse(&pattern) {
                glob.matches(&text);
                prop_assert_eq!(glob.as_str(), pattern);
            }
        }
    }
}
