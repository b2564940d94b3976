//! Hides what looks like a secret in the arguments of programs, before anybody sees or keeps them. Pure.
//!
//! People type passwords and tokens into command lines. A rule cannot know them all: what a flag, a variable, a header, a URL or a
//! statement calls a secret is hidden, and what has the shape of one. It would rather hide a word too many, but no more than the
//! value: whoever calls a part of their script a secret must not hide the rest of it. What is hidden is told by position, because a
//! process can write any mark itself. What it knows and what it does not is in `docs/guide/investigating.md`.

mod command;
mod field;
mod known;
mod name;
mod script;
mod shape;
mod spans;
mod url;

use self::spans::Spans;

/// Stands where something is hidden.
pub const HIDDEN: &str = "[hidden]";

/// How deep quoted commands within commands are looked into; what is deeper is looked at as plain text.
const DEPTH: u32 = 4;

const QUOTES: [u8; 2] = [b'"', b'\''];

/// What a text is, which decides where a value in it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    /// A script or a program: a value ends where that goes on.
    Code,
    /// Anything else: a value may have all letters.
    Data,
}

/// The arguments of a program, the first of which is its name, and which of them are hidden, whole or in part.
pub fn hide_secrets(program: &str, arguments: &[String]) -> (Vec<String>, Vec<u32>) {
    let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    let mut spans = vec![Spans::default(); arguments.len()];
    for (at, range) in command::secrets(program, &words, None) {
        if let Some(spans) = spans.get_mut(at + 1) {
            spans.add(range);
        }
    }
    let mut hidden_at = Vec::new();
    let mut shown = Vec::with_capacity(arguments.len());
    let mut before = None;
    for (at, (argument, mut spans)) in arguments.iter().zip(spans).enumerate() {
        // The first one is a name; a process may make it anything, such as the title of a server with its password.
        let is_code = at == 0 || before.is_some_and(|flag| command::takes_code(program, flag));
        let language = if is_code { Language::Code } else { Language::Data };
        look(argument, 0, language, DEPTH, &mut spans);
        before = Some(argument.as_str()).filter(|_| at > 0);
        match spans.hide(argument) {
            Some(safe) => {
                hidden_at.extend(u32::try_from(at));
                shown.push(safe);
            }
            None => shown.push(argument.clone()),
        }
    }
    (shown, hidden_at)
}

/// Looks at a text that begins at `base`: at what has the shape of a secret, and at the commands that are in it.
fn look(text: &str, base: usize, language: Language, depth: u32, spans: &mut Spans) {
    let mut add = |range: std::ops::Range<usize>| spans.add(base + range.start..base + range.end);
    field::find(text, language, &mut add);
    url::find(text, language, &mut add);
    shape::find(text, &mut add);
    let has_structure = |letter: char| letter.is_whitespace() || ";|&()`'\"".contains(letter);
    if depth == 0 || !text.contains(has_structure) {
        return;
    }
    let commands = script::commands(text, language);
    for range in command::given_by_input(text, &commands) {
        spans.add(base + range.start..base + range.end);
    }
    for command in &commands {
        let words: Vec<&str> =
            command.words.iter().map(|word| text.get(word.range.clone()).unwrap_or("")).collect();
        for (at, range) in command::secrets("", &words, Some(language)) {
            if let Some(word) = command.words.get(at) {
                let start = base + word.range.start;
                spans.add(start + range.start..start + range.end);
            }
        }
        for (at, word) in command.words.iter().enumerate() {
            let language = command::language_of(&words, at);
            for quoted in &word.quoted {
                let inner = text.get(quoted.clone()).unwrap_or_default();
                look(inner, base + quoted.start, language, depth - 1, spans);
            }
        }
        for document in &command.documents {
            let inner = text.get(document.clone()).unwrap_or_default();
            look(inner, base + document.start, Language::Data, depth - 1, spans);
        }
    }
}

#[cfg(test)]
mod tests;
