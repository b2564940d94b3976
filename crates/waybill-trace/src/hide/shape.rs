//! Secrets by their shape: tokens, private keys, and passwords in statements of SQL.

use std::ops::Range;

use super::field::quoted;

/// Finds them all.
pub(super) fn find(text: &str, add: &mut impl FnMut(Range<usize>)) {
    tokens(text, add);
    private_keys(text, add);
    statements(text, add);
}

/// How tokens of well-known services begin.
const TOKENS: [&str; 19] = [
    "eyJ",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "sk_live_",
    "sk-",
    "rk_live_",
    "npm_",
    "AIza",
    "hvs.",
    "dop_v1_",
    "AGE-SECRET-KEY-",
];

/// So long is a token at least.
const SHORTEST: usize = 20;

/// Runs of letters that look random, or begin as tokens do.
fn tokens(text: &str, add: &mut impl FnMut(Range<usize>)) {
    let of_token = |letter: char| letter.is_ascii_alphanumeric() || "_-+/.=~".contains(letter);
    let mut start = 0;
    for run in text.split(|letter| !of_token(letter)) {
        // `name=token` is as much a token as the token alone.
        let name = run.trim_end_matches('=').rfind('=').map_or(0, |at| at + 1);
        if run.get(name..).is_some_and(is_token) {
            add(start + name..start + run.len());
        }
        start += run.len();
        let border = text.get(start..).and_then(|rest| rest.chars().next());
        start += border.map_or(0, char::len_utf8);
    }
}

fn is_token(text: &str) -> bool {
    if text.len() < SHORTEST || text.starts_with(['/', '.', '-']) {
        return false;
    }
    TOKENS.iter().any(|begin| text.starts_with(begin)) || is_random(text)
}

/// Digests, names and paths are not: they lack capitals, or digits, or change between them seldom.
fn is_random(text: &str) -> bool {
    if text.contains('.') {
        return false;
    }
    let count = |kind: fn(&u8) -> bool| text.bytes().filter(kind).count();
    let digits = count(u8::is_ascii_digit);
    let has_all = count(u8::is_ascii_uppercase) >= 2 && count(u8::is_ascii_lowercase) >= 2;
    let kinds = text.bytes().map(|byte| (byte.is_ascii_digit(), byte.is_ascii_uppercase()));
    let kinds: Vec<_> = kinds.collect();
    let changes = kinds.windows(2).filter(|pair| pair.first() != pair.last()).count();
    has_all && digits >= 2 && changes * 4 >= text.len() && entropy(text) >= 3.8
}

/// Bits for each letter.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text.bytes() {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
    }
    let length = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX));
    let shares = counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / length);
    shares.map(|share| -share * share.log2()).sum()
}

/// What stands before a private key.
const KEY: &str = "PRIVATE KEY-----";

/// A line of a key is so long, but for the last.
const LINE: usize = 16;

/// Keys with all their lines, and nothing that stands behind them.
fn private_keys(text: &str, add: &mut impl FnMut(Range<usize>)) {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(KEY)) {
        let (mark, start) = (from + found, from + found + KEY.len());
        from = start;
        let before = text.get(..mark).unwrap_or_default().trim_end_matches(is_capital);
        if !before.ends_with("-----END") {
            from += key_length(text.get(start..).unwrap_or_default());
            add(start..from);
        }
    }
}

/// Of `RSA` and the like. The space before it is one of these.
fn is_capital(letter: char) -> bool {
    letter.is_ascii_uppercase() && !"END".contains(letter) || letter == ' '
}

fn key_length(rest: &str) -> usize {
    let of_key = |letter: char| letter.is_ascii_alphanumeric() || "+/=".contains(letter);
    let of_header = |letter: char| letter.is_whitespace() || ":,-_.\\".contains(letter);
    let whole = rest.find("-----END").and_then(|end| rest.get(..end));
    if let Some(whole) = whole.filter(|it| it.chars().all(|it| of_key(it) || of_header(it))) {
        return whole.trim_end().len();
    }
    // Its end was cut off: then lines of a key are long.
    let (mut end, mut was_long) = (0, true);
    loop {
        let after = rest.get(end..).unwrap_or_default();
        let line = after.trim_start_matches(|letter: char| letter.is_whitespace());
        let line = line.strip_prefix("\\r").unwrap_or(line);
        let line = line.strip_prefix("\\n").unwrap_or(line);
        let length = line.find(|letter| !of_key(letter)).unwrap_or(line.len());
        let gap = after.len() - line.len();
        let is_line = length >= LINE || (was_long && length > 0 && (end > 0 || gap == 0));
        if !is_line {
            return end;
        }
        end += gap + length;
        was_long = length >= LINE;
    }
}

/// `PASSWORD 'x'` and `IDENTIFIED BY 'x'`.
fn statements(text: &str, add: &mut impl FnMut(Range<usize>)) {
    if !text.contains(char::is_whitespace) {
        return;
    }
    let lower = text.to_ascii_lowercase();
    if !["alter", "create", "grant", "set"].iter().any(|word| lower.contains(word)) {
        return;
    }
    for (at, word) in lower.match_indices("password") {
        let start = at + word.len();
        let rest = lower.get(start..).unwrap_or_default();
        let gap = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '(']).len();
        if gap > 0 {
            quoted(text, start + gap).into_iter().for_each(&mut *add);
        }
    }
    for (at, _) in lower.match_indices("identified") {
        identified(text, &lower, at).into_iter().for_each(&mut *add);
    }
}

fn identified(text: &str, lower: &str, at: usize) -> Option<Range<usize>> {
    // `identified with PLUGIN by` has some words between.
    let end = (at..=lower.len().min(at + 80)).rev().find(|end| lower.is_char_boundary(*end))?;
    let near = lower.get(at..end)?;
    let by = [" by ", " as "].iter().filter_map(|word| near.find(word)).min()?;
    let start = at + by + 4;
    let rest = lower.get(start..)?;
    let words = rest.trim_start().strip_prefix("password").unwrap_or(rest).trim_start();
    let start = start + rest.len() - words.len();
    quoted(text, start).or_else(|| {
        let is_end = |letter: char| letter.is_whitespace() || ";\"'".contains(letter);
        let length = words.find(is_end).unwrap_or(words.len());
        Some(start..start + length)
    })
}
