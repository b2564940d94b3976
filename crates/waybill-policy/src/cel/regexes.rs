//! Regular expressions as RE2 reads them, which is what CEL specifies.
//!
//! The crate `regex` is of the same family and as safe: its time is linear in the text. Where the two
//! read a pattern differently, the pattern is rewritten: `\d`, `\w`, `\s` and `\b` know ASCII only,
//! and brackets do not nest and know no set operations.

use regex::{Regex, RegexBuilder};

use super::{budget::Budget, value::EvalError};

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 4096;

/// As large as a compiled pattern may be, in bytes.
const MAX_COMPILED: usize = 1 << 20;

/// The same for a pattern that is put together while a request waits: short ones such as `\pL{60}` take
/// milliseconds, and the time to compile goes with the size.
const MAX_COMPILED_AT_RUN_TIME: usize = 1 << 17;

/// What compiling a pattern costs, when it is not known before, and for each of its bytes.
const UNITS: u64 = 10_000;
const UNITS_PER_BYTE: u64 = 50;

pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    compile_within(pattern, MAX_COMPILED)
}

fn compile_within(pattern: &str, most: usize) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("the pattern has {} bytes, and may have {MAX_PATTERN}", pattern.len()));
    }
    RegexBuilder::new(&as_re2(pattern))
        .size_limit(most)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(50)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "the pattern is too large once compiled".to_owned(),
            // The crate's text repeats the rewritten pattern over several lines; the last says why.
            error => error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
        })
}

/// Compiles a pattern that an expression put together.
pub(super) fn compile_at_run_time(budget: &mut Budget, pattern: &str) -> Result<Regex, EvalError> {
    budget.charge(UNITS + UNITS_PER_BYTE * pattern.len() as u64)?;
    compile_within(pattern, MAX_COMPILED_AT_RUN_TIME).map_err(EvalError::Function)
}

fn as_re2(pattern: &str) -> String {
    let mut written = String::with_capacity(pattern.len() + 16);
    let mut characters = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match (character, in_class) {
            ('\\', _) => match characters.next() {
                Some(escaped) => written.push_str(&escape(escaped, in_class)),
                None => written.push('\\'),
            },
            ('[', false) => {
                written.push('[');
                if characters.next_if_eq(&'^').is_some() {
                    written.push('^');
                }
                // A bracket right at the beginning is itself.
                if characters.next_if_eq(&']').is_some() {
                    written.push_str("\\]");
                }
                in_class = true;
            }
            ('[', true) => match characters.peek() {
                Some(':') => {
                    // A named class, such as `[:alpha:]`, up to its end.
                    written.push('[');
                    while let Some(next) = characters.next() {
                        written.push(next);
                        if next == ':' && characters.next_if_eq(&']').is_some() {
                            written.push(']');
                            break;
                        }
                    }
                }
                _ => written.push_str("\\["),
            },
            (']', true) => {
                written.push(']');
                in_class = false;
            }
            ('&' | '~', true) => {
                written.push('\\');
                written.push(character);
            }
            ('-', true) if characters.peek() == Some(&'-') => written.push_str("\\-"),
            (other, _) => written.push(other),
        }
    }
    written
}

fn escape(escaped: char, in_class: bool) -> String {
    match (escaped, in_class) {
        ('d', false) => "[0-9]".to_owned(),
        ('d', true) => "0-9".to_owned(),
        ('D', _) => "[^0-9]".to_owned(),
        ('w', false) => "[0-9A-Za-z_]".to_owned(),
        ('w', true) => "0-9A-Za-z_".to_owned(),
        ('W', _) => "[^0-9A-Za-z_]".to_owned(),
        ('s', false) => "[\\t\\n\\x0C\\r ]".to_owned(),
        ('s', true) => "\\t\\n\\x0C\\r ".to_owned(),
        ('S', _) => "[^\\t\\n\\x0C\\r ]".to_owned(),
        ('b', false) => "(?-u:\\b)".to_owned(),
        (other, _) => format!("\\{other}"),
    }
}
