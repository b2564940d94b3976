//! How long the line of a session gets: whatever a user chose in it is cut, and a cut is marked with `…`. Pure.
//!
//! Lines of sessions are for all users, and none of them may be so long that few push out many. The audit log has the rest.

use crate::{join::Trace, journal::json_length};

/// So much is kept of what was asked for, in bytes of its line.
pub(super) const COMMAND: usize = 4 << 10;

/// And of the names of variables, of which one may be as long as a URL.
const VARIABLES: usize = 2 << 10;

/// Of the groups, which come with the credential.
const GROUPS: usize = 1 << 10;

/// Of the addresses, of which all but the last are what a client says.
const ADDRESSES: usize = 512;

/// Of each name.
const NAME: usize = 512;

/// A session as its line has it.
pub(super) fn bounded(mut trace: Trace) -> Trace {
    cut_words(&mut trace.command, COMMAND);
    cut_words(&mut trace.variables, VARIABLES);
    for name in [&mut trace.namespace, &mut trace.pod, &mut trace.container] {
        cut_word(name, NAME);
    }
    for name in [&mut trace.audit_id, &mut trace.session, &mut trace.container_id] {
        name.iter_mut().for_each(|name| cut_word(name, NAME));
    }
    if let Some(caller) = &mut trace.caller {
        cut_words(&mut caller.groups, GROUPS);
        cut_words(&mut caller.source, ADDRESSES);
        let names = [&mut caller.user, &mut caller.uid].into_iter().chain(&mut caller.impersonator);
        names.for_each(|name| cut_word(name, NAME));
    }
    trace
}

fn cut_words(words: &mut Vec<String>, room: usize) {
    let mut left = room;
    for (at, word) in words.iter_mut().enumerate() {
        let length = json_length(word);
        if length > left {
            cut_word(word, left);
            words.truncate(at + 1);
            return;
        }
        left -= length;
    }
}

fn cut_word(word: &mut String, room: usize) {
    if json_length(word) <= room {
        return;
    }
    // Quotes and a comma.
    let mut left = room.saturating_sub(3);
    let end = word.char_indices().find(|(_, letter)| {
        let length = json_length(letter.encode_utf8(&mut [0; 4])) - 3;
        let fits = length <= left;
        left = left.saturating_sub(length);
        !fits
    });
    word.truncate(end.map_or(word.len(), |(at, _)| at));
    word.push('…');
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        audit::Caller,
        join::{TraceKind, empty},
    };

    /// Hole: of a command of control characters a line of 32 KB was written, of which 4,000 are the whole log.
    #[test]
    fn a_long_command_is_cut() {
        for (mut words, expected) in [
            (vec!["sh".to_owned(), "\u{1}".repeat(5_000), "more".to_owned()], 2),
            (vec!["é".repeat(3_000)], 1),
            (vec!["x".repeat(COMMAND - 3), "more".to_owned()], 2),
        ] {
            cut_words(&mut words, COMMAND);
            assert_eq!(words.len(), expected);
            assert!(words.last().is_some_and(|word| word.ends_with('…')));
            let length = serde_json::to_string(&words).unwrap().len();
            assert!((COMMAND - 16..COMMAND + 16).contains(&length), "{length}");
        }
        let short = vec!["sh".to_owned(), "-c".to_owned(), "x".repeat(4_000)];
        let mut words = short.clone();
        cut_words(&mut words, COMMAND);
        assert_eq!(words, short);
    }

    /// Hole: the name of one variable made a line of 64 KB, and 2,000 of those are the whole log.
    #[test]
    fn whatever_a_user_says_the_line_of_a_session_is_short() {
        let many = |text: &str| vec![text.repeat(300); 300];
        for text in ["\"", "\u{1}", "x", "é", "\u{10ffff}"] {
            let long = text.repeat(40_000);
            let trace = Trace {
                caller: Some(Caller {
                    user: long.clone(),
                    uid: long.clone(),
                    impersonator: Some(long.clone()),
                    groups: many(text),
                    source: many(text),
                }),
                namespace: long.clone(),
                pod: long.clone(),
                container: long.clone(),
                audit_id: Some(long.clone()),
                session: Some(long.clone()),
                container_id: Some(long.clone()),
                command: many(text),
                variables: vec![long],
                ..empty(TraceKind::Exec, Timestamp::UNIX_EPOCH, crate::Container::default())
            };
            let length = serde_json::to_string(&bounded(trace)).unwrap().len();
            assert!(length < 14 << 10, "{length}");
        }
    }
}
