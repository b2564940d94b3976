//! Secrets in URLs: passwords before the host, tokens in place of a user, and addresses that are secrets themselves.

use std::ops::Range;

use super::Language;

/// Where what follows in an address is all that somebody needs, and up to which letter it goes.
const HOOKS: [(&str, &str); 7] = [
    ("hooks.slack.com/services/", "?#"),
    ("hooks.slack.com/workflows/", "?#"),
    ("api.telegram.org/bot", "/?#"),
    ("discord.com/api/webhooks/", "?#"),
    ("discordapp.com/api/webhooks/", "?#"),
    ("webhook.office.com/", "?#"),
    ("outlook.office.com/webhook/", "?#"),
];

/// Finds secrets in all URLs of a text.
pub(super) fn find(text: &str, language: Language, add: &mut impl FnMut(Range<usize>)) {
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find("://")) {
        let slashes = from + found;
        from = slashes + 3;
        let scheme = scheme(text, slashes);
        if !scheme.is_empty() {
            let end = end(text, from, language);
            userinfo(text, scheme, from..end).into_iter().for_each(&mut *add);
            hook(text, from..end).into_iter().for_each(&mut *add);
        }
    }
}

fn scheme(text: &str, end: usize) -> &str {
    let before = text.as_bytes().get(..end).unwrap_or_default().iter().rev();
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let length = before.take(32).take_while(is_letter).count();
    text.get(end - length..end).unwrap_or_default()
}

/// A URL ends where a word does, and where the next one begins.
fn end(text: &str, start: usize, language: Language) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    let is_end = |letter: char| {
        letter.is_whitespace()
            || "\"'`<>".contains(letter)
            || (language == Language::Code && ";|&(){}".contains(letter))
    };
    // The next one is looked for first, so that many URLs take no longer than one.
    let own = rest.find("://").map_or(rest, |next| {
        let before = rest.get(..next).unwrap_or_default();
        before.trim_end_matches(|letter: char| letter.is_ascii_alphanumeric())
    });
    start + own.find(is_end).unwrap_or(own.len())
}

/// `user:password@`, and `token@`.
fn userinfo(text: &str, scheme: &str, range: Range<usize>) -> Option<Range<usize>> {
    let url = text.get(range.clone())?;
    let authority = url.find(['/', '?', '#']).unwrap_or(url.len());
    let within = url.get(..authority)?.rfind('@');
    // A password may hold what ends an authority, if nobody escaped it; then the last @ of the URL tells.
    let at = within.or_else(|| {
        url.rfind('@').filter(|_| !has_port(url.get(..authority).unwrap_or_default()))
    })?;
    let user = url.get(..at)?;
    if let Some(colon) = user.find(':') {
        // This password says that the user is a token.
        let start = if user.ends_with(":x-oauth-basic") { 0 } else { colon + 1 };
        return Some(range.start + start..range.start + at);
    }
    let is_web = scheme.ends_with("http") || scheme.ends_with("https");
    // Who gives a name alone to a web server is asked for the password; what is no name is a token.
    let is_name = |letter: char| letter.is_ascii_lowercase() || ".-_".contains(letter);
    let is_token = is_web && within.is_some() && (user.len() > 20 || !user.chars().all(is_name));
    is_token.then_some(range.start..range.start + at)
}

fn has_port(authority: &str) -> bool {
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    is_port || !authority.contains(':')
}

fn hook(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let url = text.get(range.clone())?;
    let (found, ends) = HOOKS
        .iter()
        .find_map(|(begin, ends)| url.find(begin).map(|at| (at + begin.len(), ends)))?;
    let rest = url.get(found..)?;
    let length = rest.find(|letter| ends.contains(letter)).unwrap_or(rest.len());
    Some(range.start + found..range.start + found + length)
}
