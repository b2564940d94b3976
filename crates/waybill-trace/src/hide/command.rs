//! One command: which of its words are secrets because of the program and of what stands before them.

use std::ops::Range;

use super::{
    HIDDEN, Language,
    field::is_reference,
    known,
    known::{Joined, Short, Words},
    name, script,
};

/// The secrets among the words after the name of a program, each by its word and its place in that. If the name is empty, it is the first word.
/// Words of a text have quotes, and it has a language.
pub(super) fn secrets(
    program: &str,
    words: &[&str],
    language: Option<Language>,
) -> Vec<(usize, Range<usize>)> {
    let mut reader = Reader {
        program: base(program),
        is_code: language == Some(Language::Code),
        ..Reader::default()
    };
    let mut before = "";
    for (at, word) in words.iter().enumerate() {
        // What begins with a quote is read behind it.
        let quotes = if language.is_some() { word.len() - unquoted(word).len() } else { 0 };
        let bare = word.get(quotes..).unwrap_or_default();
        let is_script = language.is_none() && takes_code(program, before);
        let hidden = if is_script { None } else { reader.read(bare) };
        before = bare;
        if let Some(start) = hidden.filter(|start| !is_shown(bare, *start, reader.is_code)) {
            let start = if start == 0 { 0 } else { start + quotes };
            reader.found.push((at, start..word.len()));
        }
    }
    reader.found
}

/// What was hidden before, and what only tells where a value comes from.
fn is_shown(word: &str, start: usize, is_code: bool) -> bool {
    let value = word.get(start..).unwrap_or_default();
    value.is_empty() || value == HIDDEN || (is_code && (value == "$" || is_reference(value)))
}

fn unquoted(word: &str) -> &str {
    word.trim_start_matches(['"', '\''])
}

/// Without the folder, and without quotes.
fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default().trim_matches(['"', '\''])
}

/// What comes with the next word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Nothing,
    Value,
    /// The value of `key=value`.
    Pair,
}

#[derive(Debug, Default)]
struct Reader<'a> {
    program: &'a str,
    is_code: bool,
    next: Next,
    /// Words that are no flags, since the program.
    words: usize,
    subcommands: Vec<&'a str>,
    /// Letters of all flags.
    letters: String,
    /// A word after which every one is a secret.
    is_after: bool,
    found: Vec<(usize, Range<usize>)>,
}

impl<'a> Reader<'a> {
    /// Where in this word a secret begins, which goes on to its end.
    fn read(&mut self, word: &'a str) -> Option<usize> {
        let next = std::mem::take(&mut self.next);
        // Two flags in a row: the first had no value.
        if next != Next::Nothing && !word.starts_with("--") && !word.is_empty() {
            let pair = word.find('=').filter(|_| next == Next::Pair);
            return Some(pair.map_or(0, |at| at + 1));
        }
        if let Some(value) = assignment(word) {
            return Some(value);
        }
        match word.strip_prefix('-') {
            Some(flag) if !flag.is_empty() => self.flag(word, flag),
            _ => self.word(word),
        }
    }

    fn flag(&mut self, word: &str, flag: &str) -> Option<usize> {
        let long = flag.trim_start_matches('-');
        let (name, value) =
            long.split_once('=').map_or((long, None), |(it, value)| (it, Some(value)));
        let value = value.map(|value| word.len() - value.len());
        if known::PAIRS.contains(&name) {
            self.next = if value.is_none() { Next::Pair } else { Next::Nothing };
            return value
                .map(|at| at + word.get(at..).and_then(|it| it.find('=')).map_or(0, |it| it + 1));
        }
        let is_known = known::LONG
            .iter()
            .any(|(program, names)| *program == self.program && names.contains(&name));
        if is_known {
            self.next = if value.is_none() { Next::Value } else { Next::Nothing };
            return value;
        }
        if !flag.starts_with('-') {
            self.letters.push_str(flag);
            let after =
                |short: &&Short| short.after.is_none_or(|it| self.subcommands.contains(&it));
            let of_program = |short: &&Short| short.programs.contains(&self.program);
            for short in known::SHORT.iter().filter(of_program).filter(after) {
                let Some(end) = cluster(short, flag) else { continue };
                if end < flag.len() && short.joined != Joined::Never {
                    return Some(1 + end);
                }
                if end == flag.len() {
                    self.next =
                        if short.joined == Joined::Always { Next::Nothing } else { Next::Value };
                    return None;
                }
            }
        }
        // An interpreter has no such flags; the script that follows may have.
        let is_of_script = self.words > 0 || !takes_scripts(self.program);
        if value.is_none() && is_of_script && name::is_secret(name) {
            self.next = Next::Value;
        }
        None
    }

    fn word(&mut self, word: &'a str) -> Option<usize> {
        let name = base(word);
        if self.program.is_empty() {
            if !known::PREFIXES.contains(&name) && !word.contains('=') {
                self.program = name;
            }
            return None;
        }
        if name::is_scheme(word.trim_end_matches(['"', '\''])) {
            self.next = Next::Value;
            return None;
        }
        let rules = known::WORDS.iter().filter(|(programs, _)| programs.contains(&self.program));
        for (_, rule) in rules {
            let hidden = match rule {
                Words::After(after) => {
                    let is_after = self.is_after;
                    self.is_after |= after.contains(&word);
                    // The first word after `put` is where it is put.
                    let pair = word.find('=').map(|at| at + 1);
                    is_after.then(|| pair.unwrap_or(0)).filter(|at| *at > 0 || !word.contains('/'))
                }
                Words::Next(before) => {
                    if before.contains(&word) {
                        self.next = Next::Value;
                    }
                    None
                }
                Words::ButFirst => (self.words > 0).then_some(0),
                Words::ButFirstWith(letter) => {
                    (self.words > 0 && self.letters.contains(*letter)).then_some(0)
                }
                Words::Prefix(prefix) => word.starts_with(prefix).then_some(prefix.len()),
                Words::Slash => word.find('/').filter(|at| *at > 0).map(|at| at + 1),
            };
            if hidden.is_some() {
                self.words += 1;
                return hidden;
            }
        }
        if known::is_known(name) && !self.subcommands.contains(&"login") {
            // As in `sudo mysql`.
            (self.program, self.words) = (name, 0);
            self.subcommands.clear();
            self.letters.clear();
            return None;
        }
        let is_set = self
            .subcommands
            .iter()
            .any(|it| known::SETTERS.iter().any(|setter| it.eq_ignore_ascii_case(setter)));
        if is_set && name::is_secret(word) {
            self.next = Next::Value;
        }
        self.words += 1;
        if self.subcommands.len() < 8 {
            self.subcommands.push(word);
        }
        None
    }
}

/// Where the value of a flag of one letter begins, which may stand behind others.
fn cluster(short: &Short, flag: &str) -> Option<usize> {
    let at = flag.find(|letter| short.letters.contains(letter))?;
    let before = flag.get(..at)?;
    before.chars().all(|letter| short.switches.contains(letter)).then_some(at + 1)
}

/// Where the value begins, if the word is `NAME=VALUE` or `--NAME=VALUE` and the name is called a secret.
fn assignment(word: &str) -> Option<usize> {
    let (name, value) = word.split_once('=')?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_name = !name.is_empty() && name.chars().all(plain);
    (is_name && !value.is_empty() && name::is_secret(name)).then_some(name.len() + 1)
}

/// Whether a program runs scripts, as shells and interpreters do.
fn takes_scripts(program: &str) -> bool {
    let program = program.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    known::SHELLS.contains(&program) || known::INTERPRETERS.contains(&program)
}

/// Whether what follows this flag is a script. Of a program that nobody knows it is after some: else everything in it could be hidden by a
/// name that stands before it.
pub(super) fn takes_code(program: &str, flag: &str) -> bool {
    let program = base(program);
    if let Some(long) = flag.strip_prefix("--") {
        return ["command", "eval", "exec", "execute", "print"].contains(&long);
    }
    let Some(letters) = flag.strip_prefix('-') else {
        return ["awk", "gawk", "mawk", "sed"].contains(&program);
    };
    let is_cluster = takes_scripts(program) && letters.len() <= 8;
    let is_one = ["c", "e", "r", "E", "Command"].contains(&letters);
    (is_one || is_cluster && letters.ends_with(['c', 'e', 'E', 'r', 'n']))
        && !known::TAKE_VARIABLES.contains(&program)
}

/// What is between the quotes of a word of a command within a text.
pub(super) fn language_of(words: &[&str], at: usize) -> Language {
    let before = at.checked_sub(1).and_then(|at| words.get(at)).copied().unwrap_or_default();
    let is_code = before == "eval" || {
        let mut programs = words.get(..at).unwrap_or_default().iter().rev();
        let program = programs.find(|word| !word.starts_with('-')).copied().unwrap_or_default();
        before.starts_with('-') && takes_code(program, before)
    };
    if is_code { Language::Code } else { Language::Data }
}

/// What `echo`, `<<<` and `<<` give to a command that reads a secret.
pub(super) fn given_by_input(text: &str, commands: &[script::Command]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut is_read = false;
    for command in commands.iter().rev() {
        let words: Vec<&str> =
            command.words.iter().map(|word| text.get(word.range.clone()).unwrap_or("")).collect();
        is_read = reads_secret(&words) || (command.is_piped && is_read);
        if !is_read {
            continue;
        }
        found.extend(command.documents.iter().cloned());
        let says = words.first().is_some_and(|word| ["echo", "printf"].contains(&base(word)));
        let mut is_string = false;
        for (at, (word, place)) in words.iter().zip(&command.words).enumerate() {
            let string = word.strip_prefix("<<<");
            if is_string || string.is_some_and(|it| !it.is_empty()) {
                found.push(place.range.end - string.unwrap_or(word).len()..place.range.end);
            } else if says && at > 0 && !word.starts_with('-') && !is_reference(word) {
                found.push(place.range.clone());
            }
            is_string = string == Some("");
        }
    }
    found
}

fn reads_secret(words: &[&str]) -> bool {
    let has_program = |names: &[&str]| words.iter().any(|word| names.contains(&base(word)));
    let is_input = |word: &&str| {
        let name = word.trim_start_matches('-');
        let about = name.strip_suffix("-stdin").or_else(|| name.strip_suffix("-fd"));
        word.starts_with("--") && (about.is_some_and(name::is_secret) || name == "with-token")
    };
    has_program(&known::READERS)
        || words.iter().any(is_input)
        || (has_program(&["sudo"]) && words.contains(&"-S"))
        || (has_program(&["htpasswd"])
            && words.iter().any(|it| it.starts_with('-') && it.ends_with('i')))
}
