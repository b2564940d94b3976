//! Splits a text into commands and words as a shell would. What is no script is split all the same: then it has one command.

use std::ops::Range;

use super::{Language, QUOTES};

/// One command of a script.
#[derive(Debug, Default)]
pub(super) struct Command {
    pub(super) words: Vec<Word>,
    /// Its output is the input of the next one.
    pub(super) is_piped: bool,
    /// What is given to it, or to one that it is piped to, by `<<`.
    pub(super) documents: Vec<Range<usize>>,
}

/// Where a word stands.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) range: Range<usize>,
    /// Parts of it between quotes, without these.
    pub(super) quoted: Vec<Range<usize>>,
}

/// The commands of a text, those within others first.
pub(super) fn commands(text: &str, language: Language) -> Vec<Command> {
    let mut reader = Reader {
        text,
        is_script: language == Language::Code,
        at: 0,
        word: None,
        command: Command::default(),
        outer: Vec::new(),
        done: Vec::new(),
        has_no: [false; 2],
        in_backticks: false,
        tags: Vec::new(),
    };
    while let Some(byte) = text.as_bytes().get(reader.at).copied() {
        reader.step(byte);
    }
    reader.end_word();
    reader.end_command(false);
    while let Some(outer) = reader.outer.pop() {
        reader.command = outer;
        reader.end_command(false);
    }
    reader.done
}

struct Reader<'a> {
    text: &'a str,
    is_script: bool,
    at: usize,
    word: Option<Word>,
    command: Command,
    /// Commands that go on after one within them.
    outer: Vec<Command>,
    done: Vec<Command>,
    /// Of which quotes there are no more, in the order of `QUOTES`.
    has_no: [bool; 2],
    in_backticks: bool,
    /// The ends of documents that begin on the next line.
    tags: Vec<String>,
}

impl Reader<'_> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn step(&mut self, byte: u8) {
        let next = self.byte(self.at + 1);
        let mut length = 1;
        match byte {
            b'\\' if next == Some(b'\n') => {
                self.end_word();
                length = 2;
            }
            b'\\' => {
                self.extend(2);
                return;
            }
            b'\n' => {
                self.end_word();
                self.end_command(false);
                self.at += 1;
                self.read_documents();
                return;
            }
            _ if byte.is_ascii_whitespace() => self.end_word(),
            b'&' if self.is_redirection(next) => {
                self.extend(1);
                return;
            }
            b';' | b'&' => {
                self.end_word();
                self.end_command(false);
            }
            b'|' => {
                self.end_word();
                self.end_command(next != Some(b'|'));
                length = if next == Some(b'|') { 2 } else { 1 };
            }
            b'(' => self.go_in(),
            b')' => self.go_out(),
            b'`' if self.in_backticks => {
                self.in_backticks = false;
                self.go_out();
            }
            b'`' => {
                self.in_backticks = true;
                self.go_in();
            }
            b'#' if self.is_script && self.word.is_none() => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                length = rest.find('\n').unwrap_or(rest.len());
            }
            _ if QUOTES.contains(&byte) => {
                self.quote(byte);
                return;
            }
            _ => {
                self.extend(1);
                return;
            }
        }
        self.at += length;
    }

    fn extend(&mut self, count: usize) {
        let start = self.at;
        self.at = (self.at + count).min(self.text.len());
        let word = self.word.get_or_insert(Word { range: start..start, quoted: Vec::new() });
        word.range.end = self.at;
    }

    /// `2>&1` and `&>file`.
    fn is_redirection(&self, next: Option<u8>) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.byte(at));
        before == Some(b'>') || next == Some(b'>')
    }

    /// A quote that nobody closes is a letter, such as the one of `don't`.
    fn quote(&mut self, quote: u8) {
        let is_escaped =
            quote == b'"' || self.at.checked_sub(1).and_then(|at| self.byte(at)) == Some(b'$');
        let kind = usize::from(quote == b'\'');
        let has_no = self.has_no.get(kind).copied().unwrap_or_default();
        let close = if has_no { None } else { self.find_close(quote, is_escaped) };
        let Some(close) = close else {
            if let Some(has_no) = self.has_no.get_mut(kind) {
                *has_no = true;
            }
            self.extend(1);
            return;
        };
        let inner = self.at + 1..close;
        self.extend(close + 1 - self.at);
        if let Some(word) = &mut self.word {
            word.quoted.push(inner);
        }
    }

    fn find_close(&self, quote: u8, is_escaped: bool) -> Option<usize> {
        let mut at = self.at + 1;
        loop {
            match self.byte(at)? {
                b'\\' if is_escaped => at += 2,
                byte if byte == quote => return Some(at),
                _ => at += 1,
            }
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        let text = self.text.get(word.range.clone()).unwrap_or_default();
        let before = self.command.words.last();
        let before = before.and_then(|word| self.text.get(word.range.clone()));
        let tag = match (before, text.strip_prefix("<<")) {
            (Some("<<" | "<<-"), _) => Some(text),
            (_, Some(tag)) if !tag.starts_with('<') => Some(tag.trim_start_matches('-')),
            _ => None,
        };
        let tag = tag.map(|tag| tag.trim_matches(['"', '\'', '\\']));
        self.tags.extend(tag.filter(|tag| !tag.is_empty()).map(str::to_owned));
        self.command.words.push(word);
    }

    fn end_command(&mut self, is_piped: bool) {
        let command = std::mem::take(&mut self.command);
        if !command.words.is_empty() {
            self.done.push(Command { is_piped, ..command });
        }
    }

    fn go_in(&mut self) {
        self.end_word();
        self.outer.push(std::mem::take(&mut self.command));
    }

    fn go_out(&mut self) {
        self.end_word();
        self.end_command(false);
        self.command = self.outer.pop().unwrap_or_default();
    }

    /// What follows on the lines after `<<TAG`, up to a line that is the tag.
    fn read_documents(&mut self) {
        for tag in std::mem::take(&mut self.tags) {
            let start = self.at;
            let mut end = start;
            for line in self.text.get(start..).unwrap_or_default().split_inclusive('\n') {
                self.at += line.len();
                if line.trim() == tag {
                    break;
                }
                end = self.at;
            }
            if let Some(command) = self.done.last_mut() {
                command.documents.push(start..end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&[&str]]) {
        let found = commands(text, Language::Code);
        let of = |command: &Command| -> Vec<String> {
            command.words.iter().map(|word| text[word.range.clone()].to_owned()).collect()
        };
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn commands_are_split_as_a_shell_does() {
        check("a b;c d&&e|f", &[&["a", "b"], &["c", "d"], &["e"], &["f"]]);
        check("x=$(a b) c", &[&["a", "b"], &["x=$", "c"]]);
        check("(a b)", &[&["a", "b"]]);
        check("a `b c` d", &[&["b", "c"], &["a", "d"]]);
        check(r#"a "b c"d 'e;f' g\ h"#, &[&["a", "\"b c\"d", "'e;f'", r"g\ h"]]);
        check("a 2>&1 &>f\\\n b", &[&["a", "2>&1", "&>f", "b"]]);
        check("don't --go", &[&["don't", "--go"]]);
        check("a # b 'c\nd", &[&["a"], &["d"]]);
        check("a <<E; b\nc d\nE\nf", &[&["a", "<<E"], &["b"], &["f"]]);
        check("((", &[]);
        check("a)b", &[&["a"], &["b"]]);
        check("é ü", &[&["é", "ü"]]);
    }
}
