//! What to tell somebody whose plugin is not installed: not too often, and nothing that moves their cursor.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Upstream's words.
const HELP: &str = "\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.\
    \n\nTo learn more about this feature, consult the documentation available at:\
    \n      https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins";

/// So often in [`INTERVAL`] at most, as upstream.
const TIMES: u32 = 10;

const INTERVAL: Duration = Duration::from_hours(1);

/// Counts how often it was said.
#[derive(Debug, Default)]
pub(crate) struct Hint(Mutex<Option<Said>>);

#[derive(Debug)]
struct Said {
    since: Instant,
    times: u32,
}

impl Hint {
    /// The help with the kubeconfig's own hint, or nothing if it was said often enough.
    pub(crate) fn text(&self, own: &str, now: Instant) -> String {
        if !self.may_be_said(now) {
            return String::new();
        }
        match sanitize(own) {
            own if own.is_empty() => HELP.to_owned(),
            own => format!("{HELP}\n\n{own}"),
        }
    }

    fn may_be_said(&self, now: Instant) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = said.take().filter(|said| now.duration_since(said.since) < INTERVAL);
        let mut fresh = fresh.unwrap_or(Said { since: now, times: 0 });
        fresh.times = fresh.times.saturating_add(1);
        let may = fresh.times <= TIMES;
        *said = Some(fresh);
        may
    }
}

/// Leaves out control sequences of terminals and every other control character.
fn sanitize(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut chars),
            // CSI as one character.
            '\u{9b}' => skip_parameters(&mut chars),
            '\n' | '\t' => clean.push(c),
            c if c.is_control() => {}
            c => clean.push(c),
        }
    }
    clean
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// What follows an escape character.
fn skip_sequence(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => skip_parameters(chars),
        // Strings, such as the title of a window, end with BEL or ESC \.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        Some(_) | None => {}
    }
}

fn skip_parameters(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRED-36
    #[test]
    fn the_hint_cannot_write_to_the_terminal_cred_36() {
        for (raw, clean) in [
            ("brew install it", "brew install it"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;x\u{1b}\\link", "link"),
            ("\u{9b}2Jgone\u{8}\r\u{0}", "gone"),
            ("two\nlines\tand a tab", "two\nlines\tand a tab"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
        ] {
            assert_eq!(sanitize(raw), clean, "{raw:?}");
        }
    }

    /// CRED-36
    #[test]
    fn the_hint_is_given_ten_times_an_hour_cred_36() {
        let hint = Hint::default();
        let start = Instant::now();
        let said = |after| !hint.text("get it", start + after).is_empty();
        assert_eq!((0..50).filter(|&second| said(Duration::from_secs(second))).count(), 10);
        assert!(said(INTERVAL));
    }

    /// CRED-36
    #[test]
    fn the_help_is_upstreams_followed_by_the_hint_cred_36() {
        let text = Hint::default().text("get it", Instant::now());
        assert!(text.starts_with("\n\nIt looks like you are trying to use a client-go credential"));
        assert!(text.ends_with("#client-go-credential-plugins\n\nget it"), "{text}");
    }
}
