//! `name=value`, `name: value`, `"name": "value"` and `'name' => 'value'`, wherever they stand in a text.

use std::ops::Range;

use super::{HIDDEN, Language, QUOTES, name};

/// A name is read so far back.
const LONGEST_NAME: usize = 64;

/// Finds values of fields whose names are called secrets.
pub(super) fn find(text: &str, language: Language, add: &mut impl FnMut(Range<usize>)) {
    let bytes = text.as_bytes();
    let first = QUOTES.map(|quote| bytes.iter().position(|byte| *byte == quote));
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if !b":=".contains(byte) {
            continue;
        }
        let Some(operator) = Operator::read(text, at - 1) else { continue };
        // A quote ends a value if it was opened before it.
        let is_open = first.map(|first| first.is_some_and(|first| first < operator.name.start));
        let quotes = QUOTES.into_iter().zip(is_open).filter_map(|(it, open)| open.then_some(it));
        let value = Value { text, language, quotes: quotes.collect() };
        if let Some(range) = value.of(&operator) {
            at = at.max(range.end);
            add(range);
        }
    }
}

/// What stands between a name that is called a secret and its value.
struct Operator {
    name: Range<usize>,
    is_colon: bool,
    /// The name stands between quotes, or in brackets.
    is_quoted: bool,
    has_space: bool,
    /// Where the value begins.
    end: usize,
}

impl Operator {
    fn read(text: &str, at: usize) -> Option<Self> {
        let bytes = text.as_bytes();
        let byte = |at: usize| bytes.get(at).copied();
        let back = |from: usize, of: &[u8]| {
            let run = bytes.get(..from).unwrap_or_default().iter().rev();
            from - run.take_while(|byte| of.contains(byte)).count()
        };
        let is_colon = byte(at) == Some(b':');
        let operator = if is_colon { at } else { back(at, b":!=<>+") };
        let spaces = back(operator, b" \t");
        let closing = back(spaces, b"\"'\\]");
        let is_quoted = closing < spaces;
        let run = bytes.get(..closing).unwrap_or_default().iter().rev();
        let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let name = closing - run.take_while(is_name).take(LONGEST_NAME).count()..closing;
        if !name::is_secret(text.get(name.clone())?) {
            return None;
        }
        let after = bytes.get(at + 1..)?;
        let more = after.iter().take_while(|byte| !is_colon && b"=>~".contains(byte)).count();
        let space = after.iter().skip(more).take_while(|byte| b" \t".contains(byte)).count();
        let (had_space, has_space) = (spaces < operator, space > 0);
        let end = at + 1 + more + space;
        if is_colon {
            let is_path = !is_quoted
                && (back(name.start, b"/") < name.start || !has_space && byte(end) == Some(b'/'));
            let is_double = byte(at + 1) == Some(b':') || back(at, b":") < at;
            let is_choice = had_space && !is_quoted;
            if is_path || is_double || is_choice {
                return None;
            }
        } else if has_space && !had_space {
            // `NAME= command` sets nothing.
            return None;
        }
        Some(Self { name, is_colon, is_quoted, has_space, end })
    }
}

/// Where a value ends.
struct Value<'a> {
    text: &'a str,
    language: Language,
    quotes: Vec<u8>,
}

impl Value<'_> {
    fn of(&self, operator: &Operator) -> Option<Range<usize>> {
        let start = operator.end;
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        if rest.starts_with(HIDDEN) {
            return Some(start..start + HIDDEN.len());
        }
        if self.language == Language::Code && is_reference(rest) {
            return None;
        }
        if let Some(quoted) = quoted(self.text, start) {
            return Some(quoted);
        }
        let name = self.text.get(operator.name.clone()).unwrap_or_default();
        let length = match (operator.is_colon, operator.is_quoted) {
            (true, true) => self.until(rest, |byte| {
                b",;(){}[]<>|&\"'".contains(&byte) || byte.is_ascii_whitespace()
            }),
            (true, false) if operator.has_space || name::is_long_header(name) => self.line(rest),
            (true, false) => self.one_or_two_words(rest),
            (false, _) => self.bare(rest),
        };
        Some(start..start + length)
    }

    fn until(&self, rest: &str, is_end: impl Fn(u8) -> bool) -> usize {
        rest.bytes().position(is_end).unwrap_or(rest.len())
    }

    fn ends_code(&self, byte: u8) -> bool {
        match self.language {
            Language::Code => b";|&(){}\"'`".contains(&byte),
            Language::Data => self.quotes.contains(&byte),
        }
    }

    /// The value of a header goes on to the end of the line.
    fn line(&self, rest: &str) -> usize {
        match self.language {
            Language::Code => self.until(rest, |byte| byte == b'\n' || self.ends_code(byte)),
            Language::Data => self.until(rest, |byte| b"\r\n".contains(&byte)),
        }
    }

    /// `X-Api-Key:abc`, and `Token:Bearer abc`.
    fn one_or_two_words(&self, rest: &str) -> usize {
        let is_end = |byte: u8| byte.is_ascii_whitespace() || self.ends_code(byte);
        let word = self.until(rest, is_end);
        if !rest.get(..word).is_some_and(name::is_scheme) {
            return word;
        }
        let after = rest.get(word..).unwrap_or_default();
        let spaces = self.until(after, |byte| byte != b' ');
        let second = after.get(spaces..).unwrap_or_default();
        word + spaces + self.until(second, is_end)
    }

    /// `name=value` in a form, a query, a list or a script.
    fn bare(&self, rest: &str) -> usize {
        if self.language == Language::Code {
            return self.until(rest, |byte| {
                byte.is_ascii_whitespace() || b",[]<>".contains(&byte) || self.ends_code(byte)
            });
        }
        let ends = |(at, byte): (usize, u8)| match byte {
            b'&' => true,
            // It may be a letter of the value, if nothing like a name follows.
            b',' | b';' => is_next_name(rest.get(at + 1..).unwrap_or_default()),
            _ => byte.is_ascii_whitespace() || self.quotes.contains(&byte),
        };
        rest.bytes().enumerate().position(ends).unwrap_or(rest.len())
    }
}

fn is_next_name(rest: &str) -> bool {
    let rest = rest.trim_start();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_. \"'".contains(byte);
    let name = rest.bytes().take(LONGEST_NAME).take_while(is_name).count();
    rest.is_empty() || (name > 0 && rest.as_bytes().get(name).is_some_and(|it| b"=:".contains(it)))
}

/// `$NAME`, `${NAME}` and `$(command)` tell where a value comes from, and are not the value.
pub(super) fn is_reference(text: &str) -> bool {
    let text = text.strip_prefix('"').unwrap_or(text);
    if text.starts_with('`') || text.starts_with("$(") {
        return true;
    }
    let Some(rest) = text.strip_prefix('$') else { return false };
    let in_braces = rest.strip_prefix('{');
    let name = in_braces.unwrap_or(rest);
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let after = name.trim_start_matches(is_name);
    let after = if in_braces.is_some() { after.strip_prefix('}') } else { Some(after) };
    let is_end = |letter: char| letter.is_whitespace() || ";|&)\"".contains(letter);
    after.is_some_and(|after| after.is_empty() || after.starts_with(is_end))
}

/// What stands between quotes that begin at `start`, which may be escaped. If nobody closes them, the line does.
pub(super) fn quoted(text: &str, start: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let byte = |at: usize| bytes.get(at).copied();
    let is_quote = |at: usize| byte(at).is_some_and(|it| QUOTES.contains(&it));
    // `$'…'`, and strings of Python.
    let has_prefix = byte(start).is_some_and(|it| b"$@bfru".contains(&it)) && is_quote(start + 1);
    let start = start + usize::from(has_prefix);
    let escapes = bytes.get(start..)?.iter().take_while(|byte| **byte == b'\\').count();
    let quote = byte(start + escapes).filter(|_| is_quote(start + escapes))?;
    let inner = start + escapes + 1;
    let mut run = 0;
    for (at, byte) in bytes.iter().enumerate().skip(inner) {
        let closes = if escapes == 0 { run % 2 == 0 } else { run <= escapes };
        if *byte == quote && closes {
            return Some(inner..at - run.min(escapes));
        }
        run = if *byte == b'\\' { run + 1 } else { 0 };
    }
    let line = text.get(inner..)?.find('\n');
    Some(inner..line.map_or(text.len(), |line| inner + line))
}
