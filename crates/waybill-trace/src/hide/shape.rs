//! Secrets within a word: in URLs, in JSON, in queries, and what has the shape of a token.

use super::{HIDDEN, word::is_secret_name};

/// `scheme://user:password@host`.
pub(super) fn hide_password_of_url(word: &str) -> Option<String> {
    let authority = word.find("://")? + 3;
    let rest = word.get(authority..)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password may hold what ends an authority, if nobody escaped it; then the last @ of the word tells.
    let at = rest.get(..end)?.rfind('@').or_else(|| rest.rfind('@'))?;
    let password = rest.get(..at)?.find(':')? + 1;
    let (start, end) = (authority + password, authority + at);
    (start < end).then(|| format!("{}{HIDDEN}{}", &word[..start], &word[end..]))
}

/// `"name":"value"` in JSON, also if the quotes are escaped.
pub(super) fn hide_fields(word: &str) -> Option<String> {
    let mut safe = String::new();
    let (mut rest, mut is_changed) = (word, false);
    while let Some(colon) = rest.find(':') {
        let (before, after) = rest.split_at_checked(colon + 1)?;
        safe.push_str(before);
        rest = after;
        let quoted = before.trim_end_matches(':').trim_end_matches(['"', '\'', '\\', ' ']);
        let name = quoted.rsplit(['"', '\'', '{', ',', '\\', ' ']).next().unwrap_or_default();
        let has_quotes = before.ends_with("\":") || before.ends_with("':");
        if !(has_quotes && is_secret_name(name)) {
            continue;
        }
        let value = rest.trim_start_matches([' ', '\\', '"', '\'']);
        let opened = rest.len() - value.len();
        let end = value.find(['"', '\'', ',', '}', '\\']).unwrap_or(value.len());
        safe.push_str(rest.get(..opened)?);
        safe.push_str(HIDDEN);
        rest = value.get(end..)?;
        is_changed = true;
    }
    safe.push_str(rest);
    is_changed.then_some(safe)
}

/// `name=value` between `?`, `&` and `;` of a URL or a form.
pub(super) fn hide_parameters(word: &str) -> Option<String> {
    let mut is_changed = false;
    let parameters = word.split_inclusive(['?', '&', ';', ',']).map(|part| {
        let body = part.trim_end_matches(['?', '&', ';', ',']);
        let hidden = body.split_once('=').filter(|(name, value)| {
            let name = name.trim_start_matches(['"', '\'', '-']);
            !value.is_empty() && *value != HIDDEN && is_secret_name(name)
        });
        match hidden {
            Some((name, _)) => {
                is_changed = true;
                format!("{name}={HIDDEN}{}", part.get(body.len()..).unwrap_or_default())
            }
            None => part.to_owned(),
        }
    });
    let safe: String = parameters.collect();
    is_changed.then_some(safe)
}

/// How tokens of well-known services begin.
const TOKENS: [&str; 18] = [
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
    "AGE-SECRET-KEY-",
];

/// So long is a token at least.
const SHORTEST: usize = 20;

/// Runs of letters that look random, or begin as tokens do.
pub(super) fn hide_tokens(word: &str) -> Option<String> {
    let mut safe = String::new();
    let mut is_changed = false;
    let of_token = |letter: char| letter.is_ascii_alphanumeric() || "_-+/.=~".contains(letter);
    let mut rest = word;
    while !rest.is_empty() {
        let run = rest.find(|letter| !of_token(letter)).unwrap_or(rest.len());
        let (token, after) = rest.split_at_checked(run)?;
        // `name=token` is as much a token as the token alone.
        let value = token.rfind('=').filter(|at| at + 1 < token.len()).map_or(0, |at| at + 1);
        let (name, value) = token.split_at_checked(value)?;
        safe.push_str(name);
        if is_token(value) {
            is_changed = true;
            safe.push_str(HIDDEN);
        } else {
            safe.push_str(value);
        }
        let skipped = after.chars().next().map_or(0, char::len_utf8);
        safe.push_str(after.get(..skipped)?);
        rest = after.get(skipped..)?;
    }
    is_changed.then_some(safe)
}

fn is_token(text: &str) -> bool {
    let is_known = TOKENS.iter().any(|begin| text.starts_with(begin));
    if text.len() < SHORTEST || text.starts_with(['/', '.', '-']) {
        return false;
    }
    is_known || is_random(text)
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
