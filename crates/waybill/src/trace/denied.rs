//! Attempts that were refused, as lines for people.

use waybill_trace::Denied;

use super::table::{aligned, command, kind, second, user};
use crate::terminal::plain;

const HEADER: [&str; 8] =
    ["TIME", "KIND", "USER", "FROM", "POD", "CONTAINER", "COMMAND", "WHY REFUSED"];

/// Who could not be authenticated.
const NOBODY: &str = "(not authenticated)";

/// A whole table, each column as wide as it must be.
pub(super) fn all(attempts: &[Denied]) -> String {
    aligned(HEADER, attempts.iter().map(cells))
}

fn cells(attempt: &Denied) -> [String; HEADER.len()] {
    let caller = match attempt.caller.user.as_str() {
        "" => NOBODY.to_owned(),
        _ => user(&attempt.caller),
    };
    let why = match attempt.message.as_str() {
        "" => format!("{} {}", attempt.code, attempt.reason),
        message => format!("{} {}: {message}", attempt.code, attempt.reason),
    };
    [
        second(attempt.at),
        kind(attempt.kind).to_owned(),
        plain(&caller),
        plain(attempt.caller.source.last().map_or("", String::as_str)),
        plain(&format!("{}/{}", attempt.namespace, attempt.pod)),
        plain(&attempt.container),
        command(&attempt.command),
        plain(&why),
    ]
}

#[cfg(test)]
mod tests {
    use waybill_trace::{Caller, TraceKind};

    use super::*;

    #[test]
    fn a_line_tells_who_tried_what_and_why_not() {
        let mut attempt = Denied {
            at: jiff::Timestamp::from_second(1_767_323_045).unwrap(),
            kind: TraceKind::Exec,
            audit_id: "a".to_owned(),
            asked_again_as: None,
            caller: Caller {
                user: "anna".to_owned(),
                uid: String::new(),
                impersonator: Some("root".to_owned()),
                groups: Vec::new(),
                source: vec!["10.0.0.9".to_owned()],
            },
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: "app".to_owned(),
            command: vec!["sh".to_owned(), "-c".to_owned(), "\u{1b}[2J".to_owned()],
            variables: Vec::new(),
            code: 403,
            reason: "Forbidden".to_owned(),
            message: "pods \"web\" is forbidden".to_owned(),
        };
        let table = all(&[attempt.clone()]);
        let line = table.lines().nth(1).unwrap();
        let words: Vec<_> = line.split("   ").map(str::trim).filter(|it| !it.is_empty()).collect();
        let why = "403 Forbidden: pods \"web\" is forbidden";
        assert_eq!(
            words,
            [
                "2026-01-02 03:04:05",
                "exec",
                "anna (by root)",
                "10.0.0.9",
                "shop/web",
                "app",
                "sh -c \u{fffd}[2J",
                why
            ]
        );
        attempt.caller.user.clear();
        assert!(all(&[attempt]).contains(NOBODY));
    }
}
