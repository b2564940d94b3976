//! `$(NAME)` references in `value`, `command` and `args`, by the rules of Kubernetes.
//!
//! | Text | Becomes |
//! |---|---|
//! | `$(NAME)` | the value, if the name is known; else it stays as it is |
//! | `$$` | `$`, so `$$(NAME)` becomes the text `$(NAME)` |
//! | `$(NAME` without `)`, `$x`, `$` at the end | stays as it is |
//!
//! A result is not expanded again. Upstream re-encodes a byte above 127 that follows a `$`, which
//! breaks UTF-8 text; we keep bytes.
//!
//! A short template can stand for gigabytes, so a result has a limit, and one that exceeds it is never built.

use alloc::vec::Vec;

use memchr::memchr;

use super::value::{EnvValue, EnvValueError};

/// Replaces the references in `template` with the values that `lookup` knows.
///
/// If one of those values is secret, so is the result, which has `limit` bytes at most. Bytes that are
/// neither in a reference nor an escape are kept; a NUL in `template` is kept too and refused by
/// [`EnvValue`].
pub fn expand<'v>(
    template: &[u8],
    lookup: impl Fn(&[u8]) -> Option<&'v EnvValue>,
    limit: usize,
) -> Result<EnvValue, ExpandError> {
    let resolve = |segment| match segment {
        Segment::Text(text) => (text, false),
        Segment::Reference { name, whole } => match lookup(name) {
            Some(value) => (value.expose(), value.is_secret()),
            None => (whole, false),
        },
    };
    // The length is known before the first byte is copied: a vector that grows would leave pieces
    // of secrets behind.
    let (length, secret) =
        segments(template).map(resolve).fold((0, false), |(length, secret), (bytes, is_secret)| {
            (usize::saturating_add(length, bytes.len()), secret || is_secret)
        });
    if length > limit {
        return Err(ExpandError::TooLong { length, limit });
    }
    let mut expanded = Vec::with_capacity(length);
    segments(template).for_each(|segment| expanded.extend_from_slice(resolve(segment).0));
    Ok(if secret { EnvValue::secret(expanded) } else { EnvValue::plain(expanded) }?)
}

/// The names that `template` refers to, in their order; whether anybody knows them is not asked.
pub fn references(template: &[u8]) -> impl Iterator<Item = &[u8]> {
    segments(template).filter_map(|segment| match segment {
        Segment::Text(_) => None,
        Segment::Reference { name, .. } => Some(name),
    })
}

/// Why a template has no expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// With its references replaced it would be too long.
    #[error(
        "with its $(NAME) references replaced it takes {length} bytes, at most {limit} are possible"
    )]
    TooLong {
        /// Bytes that the expansion would have.
        length: usize,
        /// Bytes that it may have.
        limit: usize,
    },
    /// What it expands to cannot be a value.
    #[error(transparent)]
    Value(#[from] EnvValueError),
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    /// Bytes that stand for themselves.
    Text(&'a [u8]),
    /// `$(NAME)`: the name, and the whole of it for the case that nobody knows the name.
    Reference { name: &'a [u8], whole: &'a [u8] },
}

fn segments(mut rest: &[u8]) -> impl Iterator<Item = Segment<'_>> {
    core::iter::from_fn(move || {
        let (segment, after) = next_segment(rest)?;
        rest = after;
        Some(segment)
    })
}

fn next_segment(rest: &[u8]) -> Option<(Segment<'_>, &[u8])> {
    if rest.is_empty() {
        return None;
    }
    let text = |length| {
        let (text, after) = rest.split_at(length);
        Some((Segment::Text(text), after))
    };
    match memchr(b'$', rest) {
        None => return text(rest.len()),
        Some(0) => {}
        Some(at) => return text(at),
    }
    match rest {
        [_, b'$', after @ ..] => Some((Segment::Text(b"$"), after)),
        [_, b'(', inside @ ..] => match memchr(b')', inside) {
            Some(end) => {
                let (name, after) = (inside.get(..end)?, inside.get(end + 1..)?);
                Some((Segment::Reference { name, whole: rest.get(..end + 3)? }, after))
            }
            None => text(2),
        },
        _ => text(rest.len().min(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let plain = EnvValue::plain(*b"value").unwrap();
        let odd = EnvValue::plain(*b"$(A)").unwrap();
        let empty = EnvValue::plain(*b"").unwrap();
        let known = |name: &[u8]| match name {
            b"A" | b"a:b" | b"$(A" | b"" => Some(&plain),
            b"ODD" => Some(&odd),
            b"EMPTY" => Some(&empty),
            _ => None,
        };
        let expanded = expand(template.as_bytes(), known, 100).unwrap();
        assert_eq!(core::str::from_utf8(expanded.expose()), Ok(expected), "{template:?}");
        assert!(!expanded.is_secret());
    }

    /// NAME-10
    #[test]
    fn references_become_values_name_10() {
        check("$(A)", "value");
        check("-$(A)-$(A)-", "-value-value-");
        check("$(a:b)", "value");
        check("[$(EMPTY)]", "[]");
    }

    /// NAME-10
    #[test]
    fn unknown_references_stay_as_text_name_10() {
        check("$(B)", "$(B)");
        check("$(B)$(A)", "$(B)value");
        check("$( A)", "$( A)");
    }

    #[test]
    fn a_doubled_dollar_escapes() {
        check("$$(A)", "$(A)");
        check("$$$(A)", "$value");
        check("$$$$(A)", "$$(A)");
        check("$$", "$");
        check("a$$b", "a$b");
    }

    #[test]
    fn what_is_no_reference_stays() {
        check("", "");
        check("$", "$");
        check("a$", "a$");
        check("$A", "$A");
        check("${A}", "${A}");
        check("$(A", "$(A");
        check("$(", "$(");
        check("$x$(A)", "$x$(A)".replace("$(A)", "value").as_str());
    }

    #[test]
    fn a_name_ends_at_the_first_closing_parenthesis() {
        check("$($(A))", "value)");
        check("$()", "value");
    }

    #[test]
    fn results_are_not_expanded_again() {
        check("$(ODD)", "$(A)");
    }

    /// Upstream turns the byte after `$` into a code point; we keep bytes.
    #[test]
    fn text_after_a_dollar_keeps_its_bytes() {
        check("$é$(A)", "$évalue");
        check("é$(A)é", "évalueé");
    }

    #[test]
    fn a_secret_makes_the_result_secret() {
        let secret = EnvValue::secret(b"s".to_vec()).unwrap();
        let lookup = |name: &[u8]| (name == b"S").then_some(&secret);
        assert!(expand(b"x$(S)y", lookup, 3).unwrap().is_secret());
        assert!(!expand(b"x$$(S)y", lookup, 6).unwrap().is_secret());
        assert_eq!(expand(b"x$(S)y", lookup, 3).unwrap().expose(), b"xsy");
    }

    #[test]
    fn references_are_those_that_would_be_replaced() {
        let names = |template: &'static str| references(template.as_bytes()).collect::<Vec<_>>();
        assert_eq!(names("$(A)-$$(B)-$(a:b)$(A)"), [&b"A"[..], b"a:b", b"A"]);
        assert!(names("$A ${A} $$$$(A) $(A").is_empty());
    }

    /// 64 KiB of references stood for gigabytes, and the node built them.
    #[test]
    fn what_would_be_too_long_is_told_and_never_built() {
        let long = EnvValue::plain(std::vec![b'x'; 1 << 20]).unwrap();
        let lookup = |_: &[u8]| Some(&long);
        let template = b"$(A)".repeat(1 << 14);
        let error = expand(&template, lookup, 131_071).unwrap_err();
        assert_eq!(error, ExpandError::TooLong { length: 1 << 34, limit: 131_071 });
        assert_eq!(expand(b"$(A)", lookup, 1 << 20).unwrap().len(), 1 << 20);
        assert!(expand(b"$(A)", lookup, (1 << 20) - 1).is_err());
    }
}
