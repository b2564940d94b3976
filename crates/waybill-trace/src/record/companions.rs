//! Who else was in a container at the same moment. Pure.

use super::RecordedSession;
use crate::join::End;

/// The other sessions in the same container whose time overlaps with that of `session`, in the order of `all`.
pub fn companions<'a>(
    session: &RecordedSession,
    all: &'a [RecordedSession],
) -> Vec<&'a RecordedSession> {
    let others = all.iter().filter(|other| other.id != session.id);
    others.filter(|other| same_container(session, other) && overlap(session, other)).collect()
}

fn same_container(one: &RecordedSession, other: &RecordedSession) -> bool {
    let (one, other) = (&one.trace, &other.trace);
    match (&one.container_id, &other.container_id) {
        (Some(one), Some(other)) => one == other,
        // The runtime has forgotten it; the request may not have named the container.
        _ => {
            let unnamed = one.container.is_empty() || other.container.is_empty();
            (&one.namespace, &one.pod) == (&other.namespace, &other.pod)
                && (unnamed || one.container == other.container)
        }
    }
}

fn overlap(one: &RecordedSession, other: &RecordedSession) -> bool {
    begins_before_the_end_of(one, other) && begins_before_the_end_of(other, one)
}

fn begins_before_the_end_of(one: &RecordedSession, other: &RecordedSession) -> bool {
    match other.trace.end {
        End::Exited { at, .. } | End::Over { at } => one.trace.started <= at,
        End::Running | End::Unknown => true,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        Container, TraceKind,
        join::{Trace, empty},
    };

    fn session(id: &str, container: &str, from: i64, to: Option<i64>) -> RecordedSession {
        let time = |second| Timestamp::from_second(second).unwrap();
        let end = to.map_or(End::Running, |to| End::Over { at: time(to) });
        let container_id = Some(container.to_owned());
        let trace =
            Trace { container_id, end, ..empty(TraceKind::Exec, time(from), Container::default()) };
        let id = id.to_owned();
        RecordedSession { id, trace, event_source: None, programs: 0, lost: 0, complete: false }
    }

    #[test]
    fn those_who_overlap_in_one_container_are_companions() {
        let all = [
            session("before", "c", 1, Some(9)),
            session("touches", "c", 1, Some(10)),
            session("inside", "c", 12, Some(13)),
            session("open", "c", 19, None),
            session("after", "c", 21, None),
            session("elsewhere", "d", 12, Some(13)),
        ];
        let one = session("one", "c", 10, Some(20));
        let found: Vec<_> = companions(&one, &all).into_iter().map(|it| it.id.as_str()).collect();
        assert_eq!(found, ["touches", "inside", "open"]);
    }
}
