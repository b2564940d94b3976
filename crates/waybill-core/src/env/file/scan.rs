//! The grammar itself: one step per assignment, no allocation, one pass over the bytes.

use memchr::{memchr, memchr2};

use super::{
    Assignment,
    fault::{EnvFileFault, Fault},
};
use crate::env::{
    limits::{FILE_BYTES, FILE_NAME_BYTES, FILE_VALUE_BYTES},
    name::NameRules,
};

pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    rules: NameRules,
    classes: &'static [Class; 256],
}

/// What a byte means inside a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Part of a name.
    Name,
    /// Part of a name, but `NAME+` and `NAME[` mean something else to a shell.
    Suspect,
    /// Not part of a name.
    End,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8], rules: NameRules) -> Self {
        let classes = match rules {
            NameRules::Strict => &STRICT,
            NameRules::Kernel | NameRules::Relaxed => &RELAXED,
        };
        Self { text, at: 0, rules, classes }
    }

    /// The next assignment; `None` at the end of the file.
    pub(super) fn step(&mut self) -> Result<Option<Assignment<'a>>, Fault> {
        if self.at == 0 {
            self.check_start()?;
        }
        loop {
            match self.peek() {
                None => return Ok(None),
                Some(b' ' | b'\t' | b'\n') => self.at += 1,
                Some(b'#') => self.comment()?,
                Some(_) => return self.assignment().map(Some),
            }
        }
    }

    /// Moves behind the line of `fault`, so that the next step reads something new.
    pub(super) fn recover(&mut self, fault: Fault) {
        let from = match fault.kind {
            EnvFileFault::FileTooLong | EnvFileFault::Unterminated => self.text.len(),
            EnvFileFault::ByteOrderMark => {
                self.at = BYTE_ORDER_MARK.len();
                return;
            }
            EnvFileFault::DoubleQuotes => self.after_double_quotes(fault.at),
            EnvFileFault::Append
            | EnvFileFault::ArrayElement
            | EnvFileFault::EmptyName
            | EnvFileFault::Export
            | EnvFileFault::NameCharacter
            | EnvFileFault::NameForm
            | EnvFileFault::NameTooLong { .. }
            | EnvFileFault::ShellCharacter
            | EnvFileFault::SpaceAfterEquals
            | EnvFileFault::SpaceBeforeEquals => self.after_single_quotes(fault.at),
            // A length is wrong, the form is not: only what follows the value is unread.
            EnvFileFault::ValueTooLong { length } => fault.at + length + 2,
            _ => fault.at,
        };
        self.at = match memchr(b'\n', self.rest(from)) {
            Some(end) => from + end + 1,
            None => self.text.len(),
        };
    }

    fn check_start(&self) -> Result<(), Fault> {
        if self.text.len() > FILE_BYTES {
            return fault(EnvFileFault::FileTooLong, FILE_BYTES);
        }
        if self.text.starts_with(BYTE_ORDER_MARK) {
            return fault(EnvFileFault::ByteOrderMark, 0);
        }
        Ok(())
    }

    fn assignment(&mut self) -> Result<Assignment<'a>, Fault> {
        let offset = self.at;
        let name = self.name()?;
        let value = self.value()?;
        Ok(Assignment { name, value, offset })
    }

    /// Reads `NAME=`.
    fn name(&mut self) -> Result<&'a [u8], Fault> {
        let start = self.at;
        let rest = self.rest(start);
        let mut suspect = false;
        let length = rest
            .iter()
            .position(|&byte| match self.class(byte) {
                Class::Name => false,
                Class::Suspect => {
                    suspect = true;
                    false
                }
                Class::End => true,
            })
            .unwrap_or(rest.len());
        let name = rest.get(..length).unwrap_or_default();
        if rest.get(length) != Some(&b'=') {
            return self.name_fault(start, length);
        }
        if name.is_empty() {
            return fault(EnvFileFault::EmptyName, start);
        }
        if length > FILE_NAME_BYTES {
            return fault(EnvFileFault::NameTooLong { length }, start);
        }
        if suspect {
            check_suspect(name, start)?;
        }
        if self.rules == NameRules::Strict && self.rules.fault(name).is_some() {
            return fault(EnvFileFault::NameForm, start);
        }
        self.at = start + length + 1;
        Ok(name)
    }

    /// Reads `'value'` and the rest of its line.
    fn value(&mut self) -> Result<&'a [u8], Fault> {
        let quote = self.at;
        if self.peek() != Some(b'\'') {
            return self.value_fault();
        }
        let rest = self.rest(quote + 1);
        // NUL cannot be skipped over: bash would drop it and keep the rest.
        let length = match memchr2(b'\'', 0, rest) {
            None => return fault(EnvFileFault::Unterminated, quote),
            Some(at) if rest.get(at) == Some(&0) => {
                let at = quote + 1 + at;
                return Err(Fault { kind: EnvFileFault::Nul, at, opened: Some(quote) });
            }
            Some(length) => length,
        };
        if length > FILE_VALUE_BYTES {
            return fault(EnvFileFault::ValueTooLong { length }, quote);
        }
        self.at = quote + 1 + length + 1;
        self.end_of_line(quote)?;
        Ok(rest.get(..length).unwrap_or_default())
    }

    /// Reads what may follow a value: nothing, or white space and a comment.
    fn end_of_line(&mut self, opened: usize) -> Result<(), Fault> {
        let after_quote = self.at;
        while let Some(b' ' | b'\t') = self.peek() {
            self.at += 1;
        }
        let kind = match self.peek() {
            None => return Ok(()),
            Some(b'\n') => {
                self.at += 1;
                return Ok(());
            }
            Some(b'#') if self.at > after_quote => return self.comment(),
            Some(b'#') => EnvFileFault::CommentNeedsSpace,
            Some(b'\r') => EnvFileFault::CarriageReturn,
            Some(0) => EnvFileFault::Nul,
            Some(b'\'' | b'"') if self.at == after_quote => EnvFileFault::AdjacentQuotes,
            Some(_) => EnvFileFault::TextAfterValue,
        };
        Err(Fault { kind, at: self.at, opened: Some(opened) })
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let rest = self.rest(self.at);
        match memchr2(b'\n', 0, rest) {
            None => self.at = self.text.len(),
            Some(at) if rest.get(at) == Some(&0) => {
                return fault(EnvFileFault::Nul, self.at + at);
            }
            Some(end) => self.at += end + 1,
        }
        Ok(())
    }

    /// Says why no `=` follows the `length` good bytes at `start`.
    #[cold]
    fn name_fault<T>(&self, start: usize, length: usize) -> Result<T, Fault> {
        let rest = self.rest(start);
        let line = rest.get(..memchr(b'\n', rest).unwrap_or(rest.len())).unwrap_or_default();
        let after = line.get(length..).unwrap_or_default();
        let at = start + length;
        let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
        match after.first() {
            Some(0) => fault(EnvFileFault::Nul, at),
            Some(b'\r') => fault(EnvFileFault::CarriageReturn, at),
            _ if memchr(b'=', line).is_none() => fault(EnvFileFault::MissingEquals, start),
            Some(b' ' | b'\t') if line.starts_with(b"export") && length == b"export".len() => {
                fault(EnvFileFault::Export, start)
            }
            Some(b' ' | b'\t') if after.iter().find(|byte| !is_blank(byte)) == Some(&b'=') => {
                fault(EnvFileFault::SpaceBeforeEquals, at)
            }
            Some(&byte) if self.rules.allows(byte) => fault(EnvFileFault::ShellCharacter, at),
            _ => fault(EnvFileFault::NameCharacter, at),
        }
    }

    /// Says why what follows the `=` is no quoted value.
    #[cold]
    fn value_fault<T>(&self) -> Result<T, Fault> {
        let kind = match self.peek() {
            None | Some(b'\n') => EnvFileFault::EmptyValue,
            Some(b'"') => EnvFileFault::DoubleQuotes,
            Some(b' ' | b'\t') => EnvFileFault::SpaceAfterEquals,
            Some(b'\r') => EnvFileFault::CarriageReturn,
            Some(0) => EnvFileFault::Nul,
            Some(_) => EnvFileFault::Unquoted,
        };
        fault(kind, self.at)
    }

    /// The offset behind the first single-quoted string after `from`, if one opens on that line; it
    /// may end on a later one.
    fn after_single_quotes(&self, from: usize) -> usize {
        let rest = self.rest(from);
        match memchr2(b'\'', b'\n', rest) {
            Some(open) if rest.get(open) == Some(&b'\'') => {
                let inside = from + open + 1;
                memchr(b'\'', self.rest(inside)).map_or(from, |length| inside + length + 1)
            }
            _ => from,
        }
    }

    /// The offset behind the double-quoted string at `quote`, or just behind the quote if it does
    /// not end.
    fn after_double_quotes(&self, quote: usize) -> usize {
        let mut at = quote + 1;
        while let Some(found) = memchr2(b'"', b'\\', self.rest(at)) {
            at += found + 1;
            if self.text.get(at - 1) == Some(&b'"') {
                return at;
            }
            at += 1;
        }
        quote + 1
    }

    fn class(&self, byte: u8) -> Class {
        self.classes.get(usize::from(byte)).copied().unwrap_or(Class::End)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self, from: usize) -> &'a [u8] {
        self.text.get(from..).unwrap_or_default()
    }
}

fn fault<T>(kind: EnvFileFault, at: usize) -> Result<T, Fault> {
    Err(Fault { kind, at, opened: None })
}

/// `NAME+=` appends. `NAME[` makes bash look for a `]` and read over line breaks until it finds one.
fn check_suspect(name: &[u8], start: usize) -> Result<(), Fault> {
    if let Some(at) = memchr(b'[', name)
        && name.get(..at).is_some_and(is_shell_identifier)
    {
        return fault(EnvFileFault::ArrayElement, start + at);
    }
    if name.last() == Some(&b'+') {
        return fault(EnvFileFault::Append, start + name.len() - 1);
    }
    Ok(())
}

fn is_shell_identifier(name: &[u8]) -> bool {
    name.first().is_some_and(|first| !first.is_ascii_digit())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

static RELAXED: [Class; 256] = classes(NameRules::Relaxed);
static STRICT: [Class; 256] = classes(NameRules::Strict);

const fn classes(rules: NameRules) -> [Class; 256] {
    let mut classes = [Class::End; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        let class = match byte {
            // OP-22: a shell would act on these instead of taking them as part of a word.
            b' ' | b'\'' | b'"' | b'`' | b'\\' | b'$' | b';' | b'&' | b'|' | b'<' | b'>' | b'('
            | b')' => Class::End,
            b'+' | b'[' if rules.allows(byte) => Class::Suspect,
            _ if rules.allows(byte) => Class::Name,
            _ => Class::End,
        };
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, byte is below 128")]
        {
            classes[byte as usize] = class;
        }
        byte += 1;
    }
    classes
}
