//! A trace that was saved as a file by the page's export, to be looked at elsewhere: on another machine, or after the node is gone.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use serde::{Deserialize, Serialize};

use super::filter;
use crate::{
    Change, Coverage, ProcessQuery, RecordedProcess, RecordedSession, SessionList, SessionQuery,
    TraceSource, TraceSourceError,
};

/// Which form such files have.
pub(super) const VERSION: u32 = 1;

/// Sessions and programs that do not change any more.
#[derive(Debug, Default)]
pub struct SavedTrace {
    coverage: Coverage,
    /// By their start.
    sessions: Vec<SavedSession>,
    /// Where each is among them.
    places: HashMap<String, usize>,
}

#[derive(Debug)]
struct SavedSession {
    session: RecordedSession,
    /// By their start.
    processes: Vec<RecordedProcess>,
    /// Everything that can be searched for, in lower case.
    text: String,
    /// Where the command and the programs begin in it.
    commands: usize,
}

/// The file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SavedFile {
    waybill_trace: u32,
    coverage: Coverage,
    sessions: Vec<RecordedSession>,
    processes: Vec<RecordedProcess>,
}

/// Why a saved trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedTraceError {
    /// There is no such file, or we may not read it.
    #[error("cannot read the saved trace {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no trace that the page saved as JSON", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A newer program saved it.
    #[error("{} has form {version} of saved traces, and this program knows {VERSION}; read it with a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its form.
        version: u32,
    },
}

impl SavedTrace {
    /// Reads what the page's export wrote as JSON.
    pub fn read(path: &Path) -> Result<Self, SavedTraceError> {
        let at = || path.to_owned();
        let file =
            File::open(path).map_err(|source| SavedTraceError::Read { path: at(), source })?;
        let saved: SavedFile = serde_json::from_reader(BufReader::new(file)).map_err(|source| {
            if source.is_io() {
                SavedTraceError::Read { path: at(), source: source.into() }
            } else {
                SavedTraceError::Form { path: at(), source }
            }
        })?;
        match saved.waybill_trace {
            VERSION => Ok(Self::new(saved.coverage, saved.sessions, saved.processes)),
            version => Err(SavedTraceError::Newer { path: at(), version }),
        }
    }

    /// From its parts, in any order.
    pub fn new(
        coverage: Coverage,
        mut sessions: Vec<RecordedSession>,
        processes: Vec<RecordedProcess>,
    ) -> Self {
        sessions.sort_by(|one, other| {
            (one.trace.started, &one.id).cmp(&(other.trace.started, &other.id))
        });
        let mut programs: HashMap<String, Vec<RecordedProcess>> = HashMap::new();
        for process in processes {
            programs.entry(process.session.clone()).or_default().push(process);
        }
        let sessions: Vec<_> = sessions
            .into_iter()
            .map(|session| {
                let mut processes = programs.remove(&session.id).unwrap_or_default();
                processes.sort_by_key(|process| process.started);
                SavedSession::new(session, processes)
            })
            .collect();
        let places = sessions
            .iter()
            .enumerate()
            .map(|(place, saved)| (saved.session.id.clone(), place))
            .collect();
        Self { coverage, sessions, places }
    }

    fn list(&self, query: &SessionQuery) -> SessionList {
        let wanted = Wanted::of(query);
        let mut sessions: Vec<_> =
            self.sessions.iter().filter(|saved| wanted.takes(saved)).collect();
        let most = query.limit.unwrap_or(usize::MAX);
        let more = sessions.len() > most;
        let newest = sessions.split_off(sessions.len().saturating_sub(most));
        let sessions = newest.into_iter().map(|saved| saved.session.clone()).collect();
        SessionList { sessions, more, coverage: self.coverage.clone() }
    }

    fn programs(&self, query: &ProcessQuery) -> Vec<RecordedProcess> {
        let text = query.text.as_ref().map(|text| text.to_lowercase());
        let sessions = match &query.session {
            Some(id) => self
                .places
                .get(id)
                .and_then(|place| self.sessions.get(*place))
                .into_iter()
                .collect(),
            None => self.sessions.iter().collect::<Vec<_>>(),
        };
        let wanted = |process: &&RecordedProcess| {
            query.since.is_none_or(|since| process.ended.is_none_or(|ended| ended >= since))
                && query.until.is_none_or(|until| process.started <= until)
                && text.as_ref().is_none_or(|text| line_of(process).contains(text.as_str()))
        };
        let all = sessions.into_iter().flat_map(|saved| &saved.processes).filter(wanted);
        all.skip(query.offset).take(query.limit.unwrap_or(usize::MAX)).cloned().collect()
    }
}

impl TraceSource for SavedTrace {
    fn sessions<'a>(
        &'a self,
        query: &'a SessionQuery,
    ) -> BoxFuture<'a, Result<SessionList, TraceSourceError>> {
        ready(Ok(self.list(query))).boxed()
    }

    fn processes<'a>(
        &'a self,
        query: &'a ProcessQuery,
    ) -> BoxFuture<'a, Result<Vec<RecordedProcess>, TraceSourceError>> {
        ready(Ok(self.programs(query))).boxed()
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        stream::pending().boxed()
    }
}

impl SavedSession {
    fn new(session: RecordedSession, processes: Vec<RecordedProcess>) -> Self {
        let mut text = about(&session);
        let commands = text.len();
        for word in &session.trace.command {
            text.push_str(&word.to_lowercase());
            text.push(' ');
        }
        for process in &processes {
            text.push('\n');
            text.push_str(&line_of(process));
        }
        Self { session, processes, text, commands }
    }
}

/// What is known of a session apart from commands, in lower case.
fn about(session: &RecordedSession) -> String {
    let trace = &session.trace;
    let mut all = vec![&session.id, &trace.namespace, &trace.pod, &trace.container];
    all.extend(&trace.audit_id);
    all.extend(&trace.session);
    all.extend(&trace.container_id);
    all.extend(&trace.variables);
    if let Some(caller) = &trace.caller {
        all.extend([&caller.user, &caller.uid]);
        all.extend(&caller.impersonator);
        all.extend(caller.groups.iter().chain(&caller.source));
    }
    let mut text = format!("{}/{}\n", trace.namespace, trace.pod);
    for one in all {
        text.push_str(one);
        text.push('\n');
    }
    text.to_lowercase()
}

fn line_of(process: &RecordedProcess) -> String {
    let words = [&process.program].into_iter().chain(&process.arguments);
    words.map(|word| word.to_lowercase()).collect::<Vec<_>>().join(" ")
}

/// A query, prepared for many sessions.
struct Wanted<'a> {
    query: &'a SessionQuery,
    text: Option<String>,
    command: Option<String>,
}

impl<'a> Wanted<'a> {
    fn of(query: &'a SessionQuery) -> Self {
        let low = |text: &Option<String>| text.as_ref().map(|text| text.to_lowercase());
        Self { query, text: low(&query.text), command: low(&query.command) }
    }

    fn takes(&self, saved: &SavedSession) -> bool {
        let SessionQuery {
            user, pod, namespace, since, until, variable, pid, session, probes, ..
        } = self.query;
        let SavedSession { session: found, processes, text, commands } = saved;
        let trace = &found.trace;
        let place = crate::Filter { pod: pod.clone(), probes: *probes, ..crate::Filter::default() };
        place.takes(trace)
            && user.as_deref().is_none_or(|user| trace.user() == Some(user))
            && namespace.as_ref().is_none_or(|namespace| trace.namespace == *namespace)
            && since.is_none_or(|since| filter::end(found).is_none_or(|end| end >= since))
            && until.is_none_or(|until| trace.started <= until)
            && variable.as_ref().is_none_or(|variable| trace.variables.contains(variable))
            && pid.is_none_or(|pid| processes.iter().any(|process| process.pid == pid))
            && session.as_ref().is_none_or(|name| is_named(found, name))
            && self.command.as_ref().is_none_or(|part| {
                text.get(*commands..).unwrap_or_default().contains(part.as_str())
            })
            && self.text.as_ref().is_none_or(|part| text.contains(part.as_str()))
    }
}

fn is_named(session: &RecordedSession, name: &str) -> bool {
    let trace = &session.trace;
    session.id == name
        || trace.session.as_deref() == Some(name)
        || trace.audit_id.as_deref() == Some(name)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A session of the seventeenth of November, in the namespace `shop`.
    pub(in crate::page) fn session(
        id: &str,
        user: &str,
        pod: &str,
        from: &str,
        to: Option<&str>,
    ) -> RecordedSession {
        let end = match to {
            Some(to) => json!({"state": "exited", "at": format!("2026-11-17T{to}Z"), "code": 0}),
            None => json!({"state": "running"}),
        };
        serde_json::from_value(json!({
            "id": id, "kind": "exec", "auditID": format!("audit-{id}"), "session": id, "user": user, "uid": "", "impersonator": null,
            "groups": ["dev"], "source": ["10.0.0.9"], "namespace": "shop", "pod": pod, "container": "app", "containerID": "c1",
            "command": ["sh", "-c", "make"], "variables": ["KUBERNETES_EXEC_AUDIT_ID"], "started": format!("2026-11-17T{from}Z"),
            "end": end, "eventSource": "ebpf", "programs": 1, "lost": 0, "complete": true,
        }))
        .unwrap()
    }

    pub(in crate::page) fn process(
        session: &str,
        pid: u32,
        arguments: &[&str],
        from: &str,
    ) -> RecordedProcess {
        serde_json::from_value(json!({
            "session": session, "pid": pid, "parent": 1, "parentProgram": null, "uid": 0, "program": format!("/bin/{}", arguments[0]),
            "arguments": arguments, "cut": false, "hiddenAt": [], "started": format!("2026-11-17T{from}Z"), "state": "running",
            "ended": null, "exitCode": null, "signal": null, "moved": null, "source": "ebpf",
        }))
        .unwrap()
    }

    fn saved() -> SavedTrace {
        let sessions = vec![
            session("s2", "ben", "db", "02:30:00", None),
            session("s1", "anna", "web", "02:10:00", Some("02:20:00")),
        ];
        let processes = vec![
            process("s1", 8, &["curl", "Evil.example"], "02:11:00"),
            process("s1", 7, &["sh"], "02:10:00"),
        ];
        SavedTrace::new(Coverage::default(), sessions, processes)
    }

    #[track_caller]
    fn check(query: &SessionQuery, expected: &[&str]) {
        let list = saved().list(query);
        let ids: Vec<_> = list.sessions.iter().map(|session| session.id.as_str()).collect();
        assert_eq!(ids, expected, "{query:?}");
    }

    #[test]
    fn a_query_finds_what_matches_all_of_it() {
        let text = |text: &str| Some(text.to_owned());
        check(&SessionQuery::default(), &["s1", "s2"]);
        check(&SessionQuery { limit: Some(1), ..SessionQuery::default() }, &["s2"]);
        check(&SessionQuery { text: text("EVIL"), ..SessionQuery::default() }, &["s1"]);
        check(
            &SessionQuery { command: text("evil"), user: text("ben"), ..SessionQuery::default() },
            &[],
        );
        // A command is no user.
        check(&SessionQuery { command: text("anna"), ..SessionQuery::default() }, &[]);
        check(&SessionQuery { text: text("shop/db"), ..SessionQuery::default() }, &["s2"]);
        check(&SessionQuery { session: text("audit-s1"), ..SessionQuery::default() }, &["s1"]);
        check(&SessionQuery { pid: Some(8), ..SessionQuery::default() }, &["s1"]);
    }

    #[test]
    fn programs_come_in_the_order_of_their_start() {
        let query = ProcessQuery { session: Some("s1".into()), ..ProcessQuery::default() };
        let pids: Vec<_> = saved().programs(&query).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [7, 8]);
        let rest = ProcessQuery { offset: 1, ..query };
        assert_eq!(saved().programs(&rest).len(), 1);
    }

    #[test]
    fn a_file_that_is_something_else_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        assert!(matches!(SavedTrace::read(&path), Err(SavedTraceError::Read { .. })));
        std::fs::write(&path, "[]").unwrap();
        assert!(matches!(SavedTrace::read(&path), Err(SavedTraceError::Form { .. })));
        let newer = json!({"waybillTrace": 2, "coverage": Coverage::default(), "sessions": [], "processes": []});
        std::fs::write(&path, newer.to_string()).unwrap();
        assert!(matches!(SavedTrace::read(&path), Err(SavedTraceError::Newer { version: 2, .. })));
    }
}
