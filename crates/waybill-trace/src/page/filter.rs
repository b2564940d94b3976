//! What somebody looks for, as it stands in the address of the page.
//!
//! Texts find what contains them, whatever the case: nobody is to overlook `web-2` because they wrote `web`. In double quotes they find
//! exactly that.

use jiff::{SignedDuration, Timestamp};

use crate::{RecordedSession, SessionQuery};

/// More words than anybody types.
const WORDS: usize = 8;

/// Everything that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageFilter {
    words: Vec<String>,
    user: Option<Wanted>,
    pod: Option<Wanted>,
    namespace: Option<Wanted>,
    variable: Option<Wanted>,
    command: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    warnings: bool,
    probes: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// In lower case.
    Contains(String),
    Exactly(String),
}

/// A part of an address that means nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is no time: write a time of RFC 3339, or 90s, 15m, 2h or 7d for a time ago")]
pub(super) struct FilterError {
    name: &'static str,
}

impl PageFilter {
    /// Reads the query of an address; what it does not know it passes over.
    pub(super) fn parse(query: &str, now: Timestamp) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            match &*name {
                "q" => filter.words = words(value),
                "user" => filter.user = Some(Wanted::parse(value)),
                "pod" => filter.pod = Some(Wanted::parse(value)),
                "namespace" => filter.namespace = Some(Wanted::parse(value)),
                "variable" => filter.variable = Some(Wanted::parse(value)),
                "command" => filter.command = Some(value.trim_matches('"').to_owned()),
                "since" => filter.since = Some(point("since", value, now)?),
                "until" => filter.until = Some(point("until", value, now)?),
                "warnings" => filter.warnings = true,
                "probes" => filter.probes = true,
                _ => {}
            }
        }
        Ok(filter)
    }

    /// What a record is asked, once for each text that may be in a program: a session must be in every answer.
    pub(super) fn queries(&self) -> Vec<SessionQuery> {
        let query = SessionQuery {
            since: self.since,
            until: self.until,
            command: self.command.clone(),
            probes: self.probes,
            ..SessionQuery::default()
        };
        let with = |word: &String| SessionQuery { text: Some(word.clone()), ..query.clone() };
        if self.words.is_empty() { vec![query] } else { self.words.iter().map(with).collect() }
    }

    /// Whether only a record can tell if a session matches, because programs count too.
    pub(super) fn asks_for_programs(&self) -> bool {
        !self.words.is_empty() || self.command.is_some()
    }

    /// Whether a session that the record gave out is wanted.
    pub(super) fn takes(&self, session: &RecordedSession) -> bool {
        let trace = &session.trace;
        let pod = |wanted: &Wanted| {
            wanted.is(&trace.pod) || wanted.is(&format!("{}/{}", trace.namespace, trace.pod))
        };
        fits(&self.user, |wanted| trace.user().is_some_and(|user| wanted.is(user)))
            && fits(&self.pod, pod)
            && fits(&self.namespace, |wanted| wanted.is(&trace.namespace))
            && fits(&self.variable, |wanted| trace.variables.iter().any(|name| wanted.is(name)))
            && (!self.warnings || !trace.moved.is_empty() || session.lost > 0)
    }

    /// The same of one that was not asked for: times and probes count, too.
    pub(super) fn takes_new(&self, session: &RecordedSession) -> bool {
        let (started, ended) = (session.trace.started, end(session));
        self.takes(session)
            && self.since.is_none_or(|since| ended.is_none_or(|ended| ended >= since))
            && self.until.is_none_or(|until| started <= until)
            && (self.probes || crate::Filter::default().takes(&session.trace))
    }
}

/// When a session ended, or is known to have been there; `None` while it goes on.
pub(super) fn end(session: &RecordedSession) -> Option<Timestamp> {
    match session.trace.end {
        crate::End::Running => None,
        crate::End::Exited { at, .. } | crate::End::Over { at } => Some(at),
        crate::End::Unknown => Some(session.trace.started),
    }
}

fn fits(wanted: &Option<Wanted>, test: impl FnOnce(&Wanted) -> bool) -> bool {
    wanted.as_ref().is_none_or(test)
}

impl Wanted {
    fn parse(text: &str) -> Self {
        match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(exactly) => Self::Exactly(exactly.to_owned()),
            None => Self::Contains(text.to_lowercase()),
        }
    }

    fn is(&self, text: &str) -> bool {
        match self {
            Self::Contains(part) => text.to_lowercase().contains(part),
            Self::Exactly(whole) => text == whole,
        }
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split_whitespace().map(|word| word.trim_matches('"'));
    words.filter(|word| !word.is_empty()).take(WORDS).map(str::to_owned).collect()
}

/// RFC 3339, or a span before now.
fn point(name: &'static str, text: &str, now: Timestamp) -> Result<Timestamp, FilterError> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    ago(text).and_then(|ago| now.checked_sub(ago).ok()).ok_or(FilterError { name })
}

fn ago(text: &str) -> Option<SignedDuration> {
    let (unit, seconds) = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
        .into_iter()
        .find(|(unit, _)| text.ends_with(unit))?;
    let count: u32 = text.strip_suffix(unit)?.parse().ok()?;
    Some(SignedDuration::from_secs(i64::from(count) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::saved::tests::session;

    fn now() -> Timestamp {
        "2026-11-17T03:00:00Z".parse().unwrap()
    }

    fn filter(query: &str) -> PageFilter {
        PageFilter::parse(query, now()).unwrap()
    }

    #[track_caller]
    fn check(query: &str, takes: bool) {
        let session = session("s1", "anna", "web-2", "02:10:00", Some("02:20:00"));
        assert_eq!(filter(query).takes_new(&session), takes, "{query}");
    }

    #[test]
    fn a_text_finds_what_contains_it_and_quotes_find_that_alone() {
        check("user=ANN", true);
        check("user=%22ann%22", false);
        check("user=%22anna%22", true);
        check("pod=web", true);
        check("pod=shop/web", true);
        check("pod=%22shop/web-2%22", true);
        check("pod=%22web%22", false);
        check("namespace=shop", true);
        check("namespace=shops", false);
        check("variable=audit", true);
        check("variable=%22AUDIT%22", false);
        check("user=anna&pod=db", false);
        check("user=&pod=+&unknown=1", true);
        check("warnings=1", false);
    }

    #[test]
    fn a_time_takes_what_was_there_in_it() {
        check("since=2026-11-17T02:15:00Z&until=2026-11-17T02:16:00Z", true);
        check("since=2026-11-17T02:21:00Z", false);
        check("until=2026-11-17T02:09:00Z", false);
        check("since=1h", true);
        check("since=30m", false);
    }

    #[test]
    fn a_time_that_is_none_is_refused_by_name() {
        for wrong in ["yesterday", "5", "-1h", "1.5h", "99999999999d", "4294967295d"] {
            assert_eq!(
                PageFilter::parse(&format!("until={wrong}"), now()),
                Err(FilterError { name: "until" }),
                "{wrong}"
            );
        }
    }

    #[test]
    fn each_word_is_asked_for_by_itself() {
        let filter = filter("q=curl+evil&command=sh&since=1h&probes=1");
        let queries = filter.queries();
        let texts: Vec<_> = queries.iter().map(|query| query.text.as_deref().unwrap()).collect();
        assert_eq!(texts, ["curl", "evil"]);
        assert!(queries.iter().all(|query| query.probes
            && query.command.as_deref() == Some("sh")
            && query.since.is_some()));
        assert!(filter.asks_for_programs());
        assert_eq!(PageFilter::default().queries().len(), 1);
    }
}
