//! Hides what looks like a secret in the arguments of programs, before anybody sees or keeps them. Pure.
//!
//! People type passwords and tokens into command lines. A rule cannot know them all: what a flag, a variable, a header or a URL
//! calls a secret is hidden, and what has the shape of one. It would rather hide a word too many. What is hidden is told by
//! position, because a process can write any mark itself.

mod shape;
mod word;

use self::word::{Scanner, is_assignment};

/// Stands where something is hidden.
pub const HIDDEN: &str = "[hidden]";

/// How deep quoted commands within commands are looked into; what is deeper is looked at as plain words.
const DEPTH: u32 = 4;

/// Programs that take a script after `-c`.
const SHELLS: [&str; 7] = ["ash", "bash", "busybox", "dash", "ksh", "sh", "zsh"];

/// The arguments of a program, the first of which is its name, and which of them are hidden, whole or in part.
pub fn hide_secrets(program: &str, arguments: &[String]) -> (Vec<String>, Vec<u32>) {
    let mut scanner = Scanner::new(program);
    let mut hidden_at = Vec::new();
    let mut shown = Vec::with_capacity(arguments.len());
    let is_shell = SHELLS.contains(&program.rsplit('/').next().unwrap_or_default());
    let mut is_script = false;
    for (at, argument) in arguments.iter().enumerate() {
        let safe = if is_script {
            hide_text(argument, &mut Scanner::new(""), DEPTH)
        } else if at == 0 {
            hide_in_name(argument)
        } else {
            hide_argument(&mut scanner, argument)
        };
        is_script = is_shell && argument.starts_with('-') && argument.ends_with('c');
        if let Some(safe) = safe {
            hidden_at.extend(u32::try_from(at));
            shown.push(safe);
        } else {
            shown.push(argument.clone());
        }
    }
    (shown, hidden_at)
}

/// The first argument is a name; a process may make it anything, such as the title of a server with its password.
fn hide_in_name(name: &str) -> Option<String> {
    hide_text(name, &mut Scanner::new(""), DEPTH)
}

fn hide_argument(scanner: &mut Scanner, argument: &str) -> Option<String> {
    // A value is the whole argument, whatever is in it.
    if scanner.takes_value(argument) || argument.contains("PRIVATE KEY-----") {
        return Some(HIDDEN.to_owned());
    }
    if let Some(value) = is_assignment(argument) {
        return Some(format!("{}{HIDDEN}", argument.get(..value).unwrap_or_default()));
    }
    if argument.contains(char::is_whitespace) {
        // A script has commands of its own, and a header has a name.
        let mut inner = Scanner::new("");
        return hide_text(argument, &mut inner, DEPTH);
    }
    scanner.hide_word(argument)
}

/// Hides word by word; nothing if nothing had to be hidden.
fn hide_text(text: &str, scanner: &mut Scanner, depth: u32) -> Option<String> {
    let mut safe = String::with_capacity(text.len());
    let mut is_changed = false;
    for piece in pieces(text) {
        if piece.starts_with(char::is_whitespace) {
            // The value of a header goes on to the end.
            safe.push_str(piece);
            continue;
        }
        match hide_piece(piece, scanner, depth) {
            Some(hidden) => {
                is_changed = true;
                safe.push_str(&hidden);
            }
            None => safe.push_str(piece),
        }
        if scanner.hides_the_rest() {
            safe.push(' ');
            safe.push_str(HIDDEN);
            return Some(safe);
        }
    }
    is_changed.then_some(safe)
}

fn hide_piece(piece: &str, scanner: &mut Scanner, depth: u32) -> Option<String> {
    if scanner.takes_value(piece) {
        return Some(HIDDEN.to_owned());
    }
    if let Some(value) = is_assignment(piece) {
        return Some(format!("{}{HIDDEN}", piece.get(..value).unwrap_or_default()));
    }
    let quote = piece.chars().next().filter(|first| QUOTES.contains(first));
    if let Some(quote) = quote.filter(|_| depth > 0 && piece.contains(char::is_whitespace)) {
        let end = piece.strip_suffix(quote).map_or(piece.len(), str::len).max(1);
        let (inner, last) = piece.split_at_checked(end)?;
        let inner = inner.get(1..)?;
        let hidden = hide_text(inner, &mut Scanner::new(""), depth - 1)?;
        return Some(format!("{quote}{hidden}{last}"));
    }
    scanner.hide_word(piece)
}

const QUOTES: [char; 3] = ['"', '\'', '`'];

/// Words and what is between them; quotes hold words together.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut quote, mut was_space) = (0, None, None);
    for (at, letter) in text.char_indices() {
        let is_space = quote.is_none() && letter.is_whitespace();
        if was_space.is_some_and(|was| was != is_space) {
            pieces.extend(text.get(start..at));
            start = at;
        }
        was_space = Some(is_space);
        quote = match quote {
            None => QUOTES.contains(&letter).then_some(letter),
            Some(open) => Some(open).filter(|open| *open != letter),
        };
    }
    pieces.extend(text.get(start..).filter(|rest| !rest.is_empty()));
    pieces
}

#[cfg(test)]
mod tests;
