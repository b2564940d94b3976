//! Reads Rust source just well enough to search it.
//!
//! Comments and literals are blanked out, so that a rule about code finds code alone. This is no
//! parser: it knows where comments and literals end, and nothing else.

/// `text` with every comment and literal replaced by spaces; the lines stay where they are.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let opaque = opaque_length(rest);
        if opaque == 0 {
            code.push(first);
            rest = rest.split_at(first.len_utf8()).1;
        } else {
            let (blanked, after) = rest.split_at(opaque);
            code.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = after;
        }
    }
    code
}

/// The part of `code` in front of its `#[cfg(test)] mod tests { … }`, which comes last in our files.
/// The attribute on anything else, such as an `extern crate`, does not end the part.
pub(crate) fn without_tests(code: &str) -> &str {
    let attribute = "#[cfg(test)]";
    let opens_module = |at: usize| {
        let after = code.split_at(at + attribute.len()).1.trim_start();
        let name = after.strip_prefix("mod ").unwrap_or_default();
        name.trim_start_matches(is_word).trim_start().starts_with('{')
    };
    match code.match_indices(attribute).find(|(at, _)| opens_module(*at)) {
        Some((at, _)) => code.split_at(at).0,
        None => code,
    }
}

/// Whether `word` stands in `line` on its own, not as a part of a longer name.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let (before, found) = line.split_at(at);
        let after = found.split_at(word.len()).1;
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the comment or literal that `rest` starts with; zero if it starts with code.
fn opaque_length(rest: &str) -> usize {
    if rest.starts_with("//") {
        rest.find('\n').unwrap_or(rest.len())
    } else if rest.starts_with("/*") {
        block_comment_length(rest)
    } else if rest.starts_with('"') {
        quoted_length(rest, '"')
    } else if rest.starts_with('\'') {
        char_length(rest)
    } else if rest.starts_with('r') {
        raw_string_length(rest)
    } else {
        0
    }
}

/// Block comments nest.
fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(inner) = rest.get(at..).filter(|inner| !inner.is_empty()) {
        if inner.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if inner.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += inner.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// A literal between two `quote`s, with escapes.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// A quote starts a character when a second one follows it; otherwise it starts a lifetime.
fn char_length(rest: &str) -> usize {
    let mut after = rest.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted_length(rest, '\''),
        _ => 0,
    }
}

/// `r"…"` and `r#"…"#`; a raw identifier such as `r#type` is code.
fn raw_string_length(rest: &str) -> usize {
    let hashes = rest.chars().skip(1).take_while(|&c| c == '#').count();
    let open = 1 + hashes;
    if !rest.split_at(open).1.starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = rest.split_at(open + 1).1;
    body.find(&close).map_or(rest.len(), |at| open + 1 + at + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let squeezed = code(text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeezed, expected, "{text:?}");
    }

    #[test]
    fn comments_are_not_code() {
        check("a // b\nc", "a c");
        check("//! b\n/// c\nd", "d");
        check("a /* b /* c */ d */ e", "a e");
        check("a /* never closed", "a");
    }

    #[test]
    fn literals_are_not_code() {
        check(r#"f("a", b)"#, "f( , b)");
        check(r#"f("a\"b", c)"#, "f( , c)");
        check(r##"f(r"a\", b)"##, "f( , b)");
        check("f(r#\"a \" b\"#, c)", "f( , c)");
        check("f(br#\"a\"#, b\"c\")", "f(b , b )");
        check(r"f('a', '\'', '\u{1F600}', 'é', '/')", "f( , , , , )");
        check("\"// a\" b", "b");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
        check("r#type r for", "r#type r for");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "a\n\"b\nc\"\n/* d\n*/ e";
        assert_eq!(code(text).lines().count(), text.lines().count());
        assert!(code(text).lines().nth(4).unwrap().contains('e'));
    }

    #[test]
    fn only_a_test_module_ends_the_code() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n b }"), "a\n");
        let import = "#[cfg(test)]\nextern crate std;\nb";
        assert_eq!(without_tests(import), import);
        let elsewhere = "#[cfg(test)]\nmod tests;\nb";
        assert_eq!(without_tests(elsewhere), elsewhere);
    }

    #[test]
    fn a_word_is_not_a_part_of_a_name() {
        assert!(has_word("unsafe { }", "unsafe"));
        assert!(has_word("(unsafe)", "unsafe"));
        assert!(!has_word("allow(unsafe_code)", "unsafe"));
    }
}
