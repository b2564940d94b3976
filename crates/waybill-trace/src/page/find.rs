//! Sessions that match a filter, and those that were there at the same time.

use std::collections::HashSet;

use super::filter::{self, PageFilter};
use crate::{Coverage, RecordedSession, SessionList, SessionQuery, TraceSource, TraceSourceError};

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Oldest first.
    pub(super) sessions: Vec<RecordedSession>,
    /// Whether older ones were left out.
    pub(super) more: bool,
    pub(super) coverage: Coverage,
}

/// The newest sessions that match, at most `most`.
pub(super) async fn find(
    source: &dyn TraceSource,
    filter: &PageFilter,
    most: usize,
) -> Result<Found, TraceSourceError> {
    let mut queries = filter.queries().into_iter();
    let first = queries.next().unwrap_or_default();
    let SessionList { mut sessions, mut more, coverage } = source.sessions(&first).await?;
    sessions.retain(|session| filter.takes(session));
    for query in queries {
        let answer = source.sessions(&query).await?;
        let ids: HashSet<String> = answer.sessions.into_iter().map(|session| session.id).collect();
        sessions.retain(|session| ids.contains(&session.id));
    }
    if sessions.len() > most {
        more = true;
        sessions.drain(..sessions.len() - most);
    }
    Ok(Found { sessions, more, coverage })
}

/// Whether a session that changed matches, programs included.
pub(super) async fn matches(
    source: &dyn TraceSource,
    filter: &PageFilter,
    session: &RecordedSession,
) -> Result<bool, TraceSourceError> {
    if !filter.takes_new(session) {
        return Ok(false);
    }
    if !filter.asks_for_programs() {
        return Ok(true);
    }
    for query in filter.queries() {
        let query = SessionQuery { session: Some(session.id.clone()), ..query };
        if source.sessions(&query).await?.sessions.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One session by any of its names.
pub(super) async fn named(
    source: &dyn TraceSource,
    name: &str,
) -> Result<Option<RecordedSession>, TraceSourceError> {
    let query =
        SessionQuery { session: Some(name.to_owned()), probes: true, ..SessionQuery::default() };
    let mut found = source.sessions(&query).await?.sessions;
    let exact = found.iter().position(|session| session.id == name);
    Ok(exact.map(|place| found.swap_remove(place)).or_else(|| found.pop()))
}

/// Those that were in the container of a session while it was.
pub(super) async fn beside(
    source: &dyn TraceSource,
    session: &RecordedSession,
) -> Result<Vec<RecordedSession>, TraceSourceError> {
    let query = SessionQuery {
        since: Some(session.trace.started),
        until: filter::end(session),
        namespace: Some(session.trace.namespace.clone()),
        pod: Some(session.trace.pod.clone()),
        ..SessionQuery::default()
    };
    let mut all = source.sessions(&query).await?.sessions;
    all.retain(|other| other.id != session.id && is_same_container(session, other));
    Ok(all)
}

/// By the runtime's name where both have one: a container of the same name may be another life of it.
fn is_same_container(one: &RecordedSession, other: &RecordedSession) -> bool {
    match (&one.trace.container_id, &other.trace.container_id) {
        (Some(one), Some(other)) => one == other,
        _ => one.trace.container == other.trace.container,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::saved::{
        SavedTrace,
        tests::{process, session},
    };

    fn saved() -> SavedTrace {
        let mut elsewhere = session("s4", "carl", "web", "02:15:00", Some("02:16:00"));
        elsewhere.trace.container_id = Some("c2".to_owned());
        let sessions = vec![
            session("s1", "anna", "web", "02:10:00", Some("02:20:00")),
            session("s2", "ben", "web", "02:15:00", None),
            session("s3", "anna", "web", "02:20:01", Some("02:21:00")),
            elsewhere,
        ];
        let processes = vec![process("s1", 7, &["curl", "evil.example"], "02:11:00")];
        SavedTrace::new(Coverage::default(), sessions, processes)
    }

    fn ids(sessions: &[RecordedSession]) -> Vec<&str> {
        sessions.iter().map(|session| session.id.as_str()).collect()
    }

    #[tokio::test]
    async fn who_was_in_the_container_at_the_same_time_is_found() {
        let saved = saved();
        let first = named(&saved, "s1").await.unwrap().unwrap();
        assert_eq!(ids(&beside(&saved, &first).await.unwrap()), ["s2"]);
        let second = named(&saved, "audit-s2").await.unwrap().unwrap();
        assert_eq!(ids(&beside(&saved, &second).await.unwrap()), ["s1", "s3"]);
        assert!(named(&saved, "s9").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn every_word_must_be_found_somewhere_in_the_session() {
        let saved = saved();
        let now = "2026-11-17T03:00:00Z".parse().unwrap();
        let search = async |query: &str| {
            let filter = PageFilter::parse(query, now).unwrap();
            let found = find(&saved, &filter, 2).await.unwrap();
            (ids(&found.sessions).join(" "), found.more)
        };
        assert_eq!(search("q=anna+evil").await, ("s1".to_owned(), false));
        assert_eq!(search("q=ben+evil").await, (String::new(), false));
        assert_eq!(search("pod=web").await, ("s4 s3".to_owned(), true));
        let filter = PageFilter::parse("q=evil", now).unwrap();
        let first = named(&saved, "s1").await.unwrap().unwrap();
        let second = named(&saved, "s2").await.unwrap().unwrap();
        assert!(matches(&saved, &filter, &first).await.unwrap());
        assert!(!matches(&saved, &filter, &second).await.unwrap());
    }
}
