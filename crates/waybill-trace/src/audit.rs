//! Requests for sessions and debug containers, as the audit log of the API server tells of them.

mod event;

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waybill_api::exec::{ExecVar, PodExecOptions};

use self::event::{Event, ObjectReference};

/// Who asked, as the API server authenticated them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The user; the impersonated one, where somebody acted for another.
    pub user: String,
    /// What tells users of one name apart; empty if the server does not know.
    pub uid: String,
    /// Who acted for that user.
    pub impersonator: Option<String>,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Where from. Only the last address was seen by the server itself.
    pub source: Vec<String>,
}

/// One request for a session, by what was recorded of it so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its audit ID, which is ours and not the client's.
    pub audit_id: String,
    /// What was asked for.
    pub asked: Asked,
    /// By which verb; sessions over WebSocket are opened by `get`, those over SPDY by `create`.
    pub verb: String,
    /// Who asked.
    pub caller: Caller,
    /// With which program, as it calls itself.
    pub user_agent: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The life of the pod; empty if the server does not say.
    pub pod_uid: String,
    /// The container; empty if the request named none.
    pub container: String,
    /// The command.
    pub command: Vec<String>,
    /// The names of the variables that the caller set.
    pub variables: Vec<String>,
    /// When the request came.
    pub received: Timestamp,
    /// Whether the session began, or the containers were added.
    pub began: bool,
    /// When it was over.
    pub ended: Option<Timestamp>,
    /// Why nothing came of it, if the server refused.
    pub refusal: Option<Refusal>,
    /// What gate calls the session of a stock cluster, or those of several debug containers.
    pub sessions: Vec<String>,
}

/// How a server refused, as far as its log tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the answer.
    pub code: u16,
    /// In one word, as `Forbidden`.
    pub reason: String,
    /// In a sentence; empty if the log does not say.
    pub message: String,
}

/// What a request asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// A process in a container.
    Exec,
    /// The streams of a container's own process.
    Attach {
        /// Whether to write to it.
        stdin: bool,
    },
    /// Further containers in a pod, as `kubectl debug` asks for.
    Debug {
        /// Their names.
        containers: Vec<String>,
    },
}

/// Where our API server records what those do who did not say who they are. Other servers have no such
/// file.
const STRANGERS: &str = "anonymous.log";

/// The audit log of an API server on this machine, read piece by piece.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    /// The file that was read last, by its number, and how far.
    seen: Option<(u64, u64)>,
    /// The log of strangers beside it.
    strangers: Option<Box<Self>>,
    requests: BTreeMap<String, Request>,
    /// How many requests are remembered, and in which order they came, if not all are.
    limit: Option<(usize, VecDeque<String>)>,
}

/// Why the audit log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the audit log {}", path.display())]
pub struct AuditLogError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl AuditLog {
    /// The log at `path`. Full files that were set aside beside it are read too, the first time.
    pub fn at(path: &Path) -> Self {
        let strangers = Self::alone(&path.with_file_name(STRANGERS));
        Self { strangers: Some(Box::new(strangers)), ..Self::alone(path) }
    }

    /// The same, for somebody who goes on reading: only the last requests, at most `limit`, are remembered.
    pub fn recent(path: &Path, limit: usize) -> Self {
        Self { limit: Some((limit, VecDeque::new())), ..Self::at(path) }
    }

    fn alone(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            seen: None,
            strangers: None,
            requests: BTreeMap::new(),
            limit: None,
        }
    }

    /// Reads what is new. A line that is not whole yet is left for the next time; one that is no event of
    /// an exec session is passed over.
    pub fn refresh(&mut self) -> Result<(), AuditLogError> {
        self.read_new()?;
        if let Some(strangers) = self.strangers.as_mut().filter(|log| log.path.exists()) {
            let before = strangers.seen;
            strangers.read_new()?;
            if strangers.seen != before {
                for (id, request) in &strangers.requests {
                    self.requests.insert(id.clone(), request.clone());
                }
            }
        }
        Ok(())
    }

    fn read_new(&mut self) -> Result<(), AuditLogError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| AuditLogError { path, source }
        };
        if self.seen.is_none() {
            for older in self.set_aside().map_err(fail(&self.path))? {
                let file = File::open(&older).map_err(fail(&older))?;
                self.read(file, 0).map_err(fail(&older))?;
            }
        }
        let mut file = File::open(&self.path).map_err(fail(&self.path))?;
        let number = file.metadata().map_err(fail(&self.path))?.ino();
        let from = match self.seen {
            Some((seen, offset)) if seen == number => offset,
            Some((seen, offset)) => {
                self.finish(seen, offset).map_err(fail(&self.path))?;
                0
            }
            None => 0,
        };
        file.seek(SeekFrom::Start(from)).map_err(fail(&self.path))?;
        let end = self.read(file, from).map_err(fail(&self.path))?;
        self.seen = Some((number, end));
        Ok(())
    }

    /// Every request so far, by its audit ID.
    pub fn requests(&self) -> &BTreeMap<String, Request> {
        &self.requests
    }

    /// Reads the rest of a file that was set aside since.
    fn finish(&mut self, number: u64, offset: u64) -> io::Result<()> {
        for path in self.set_aside()? {
            let mut file = File::open(path)?;
            if file.metadata()?.ino() == number {
                file.seek(SeekFrom::Start(offset))?;
                self.read(file, offset)?;
            }
        }
        Ok(())
    }

    /// `audit-<time>.log` beside `audit.log`, oldest first.
    fn set_aside(&self) -> io::Result<Vec<PathBuf>> {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let mut found = Vec::new();
        for entry in directory.read_dir()? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension() == self.path.extension() && name.starts_with(&format!("{stem}-")) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    /// Reads whole lines from where the file stands; returns how far.
    fn read(&mut self, file: File, mut offset: u64) -> io::Result<u64> {
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                return Ok(offset);
            }
            offset += count as u64;
            self.hear(&line);
        }
    }

    /// Forgets the oldest request if there are as many as may be remembered.
    fn make_room(&mut self, new: &str) {
        if let Some((limit, order)) = &mut self.limit {
            order.push_back(new.to_owned());
            if order.len() > *limit
                && let Some(oldest) = order.pop_front()
            {
                self.requests.remove(&oldest);
            }
        }
    }

    fn hear(&mut self, line: &[u8]) {
        // Most lines tell of something else, and parsing is the price of a line.
        if !SUBRESOURCES.iter().any(|name| line.windows(name.len()).any(|at| at == *name)) {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Event>(line) else { return };
        let Some((target, asked)) = event.object_ref.as_ref().zip(event.asked()) else { return };
        let is_debug = matches!(asked, Asked::Debug { .. });
        if !self.requests.contains_key(&event.audit_id) {
            self.make_room(&event.audit_id);
        }
        let request = self
            .requests
            .entry(event.audit_id.clone())
            .or_insert_with(|| request(&event, target, asked));
        // A stock server writes the first stage before it knows for whom somebody acts.
        if event.impersonated_user.is_some() {
            request.caller = caller(&event);
        }
        // Gate's annotation is in later stages alone.
        if request.sessions.is_empty() {
            request.sessions = event.sessions();
        }
        let began = if is_debug { event.is_done() } else { event.is_upgraded() };
        match event.stage.as_str() {
            // Some policies leave out one of the two, so either tells that the session began.
            "ResponseStarted" => request.began |= began,
            "ResponseComplete" | "Panic" => {
                request.began |= began;
                request.ended = Some(event.stage_timestamp);
                request.refusal = event.refusal();
            }
            _ => {}
        }
    }
}

/// What a line of interest has in it.
const SUBRESOURCES: [&[u8]; 3] = [b"\"exec\"", b"\"attach\"", b"\"ephemeralcontainers\""];

fn caller(event: &Event) -> Caller {
    let (user, impersonator) = match &event.impersonated_user {
        Some(user) => (user, Some(event.user.username.clone())),
        None => (&event.user, None),
    };
    Caller {
        user: user.username.clone(),
        uid: user.uid.clone(),
        impersonator,
        groups: user.groups.clone(),
        source: event.source_ips.clone(),
    }
}

/// What an API server puts behind a URI that is too long for its log.
const CUT: &str = "...TRUNCATED";

/// What was asked for. A long URI is cut, maybe within an escape or a character; what is left of it still tells.
fn options(uri: &str) -> PodExecOptions {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let Some(mut left) = query.strip_suffix(CUT) else {
        return PodExecOptions::from_query(query).unwrap_or_default();
    };
    // Half an escape, and up to three whole ones of a character; at last the whole of what was cut.
    let mut options = PodExecOptions::from_query(left);
    for _ in 0..4 {
        let escape = left.rsplit_once('%').filter(|(_, rest)| rest.len() < 3);
        let Some((before, _)) = escape.filter(|_| options.is_err()) else { break };
        left = before;
        options = PodExecOptions::from_query(left);
    }
    let whole =
        || PodExecOptions::from_query(left.rsplit_once('&').map_or("", |(before, _)| before));
    let mut options = options.or_else(|_| whole()).unwrap_or_default();
    if let Some(word) = options.command.last_mut() {
        word.push('…');
    }
    options
}

fn request(event: &Event, target: &ObjectReference, asked: Asked) -> Request {
    let options = options(&event.request_uri);
    Request {
        audit_id: event.audit_id.clone(),
        asked,
        verb: event.verb.clone(),
        caller: caller(event),
        user_agent: event.user_agent.clone(),
        namespace: target.namespace.clone(),
        pod: target.name.clone(),
        pod_uid: target.uid.clone(),
        container: options.container,
        command: options.command,
        variables: options.env.iter().map(ExecVar::name).map(str::to_owned).collect(),
        received: event.request_received_timestamp,
        began: false,
        ended: None,
        refusal: None,
        sessions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use serde_json::{Value, json};

    use super::*;

    fn event(id: &str, stage: &str) -> Value {
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
            "auditID": id, "stage": stage,
            "requestURI": "/api/v1/namespaces/shop/pods/web/exec?command=sh&command=-c&command=a+b\
                &container=app&env=LEVEL%3D%2A%2A%2A&stdout=true",
            "verb": "create",
            "user": {"username": "anna", "groups": ["dev", "system:authenticated"]},
            "sourceIPs": ["10.0.0.9"],
            "objectRef": {"resource": "pods", "namespace": "shop", "name": "web",
                "apiVersion": "v1", "subresource": "exec"},
            "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z",
            "stageTimestamp": "2026-01-02T03:04:06.000000Z",
        })
    }

    fn write(path: &Path, events: &[Value]) {
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        for event in events {
            writeln!(file, "{event}").unwrap();
        }
    }

    fn answered(id: &str, code: u16) -> Value {
        let mut event = event(id, "ResponseStarted");
        event["responseStatus"] = json!({"metadata": {}, "code": code});
        event
    }

    /// Hole: of a command that was cut within an escape nothing was shown at all.
    #[test]
    fn what_is_left_of_a_long_command_is_told() {
        let begin = "/api/v1/namespaces/shop/pods/web/exec?container=app&command=true&command=";
        for (end, last) in [
            ("ab%01", "ab\u{1}…"),
            ("ab%0", "ab…"),
            ("ab%", "ab…"),
            ("ab%C3", "ab…"),
            ("ab", "ab…"),
        ] {
            let found = options(&format!("{begin}{end}{CUT}"));
            assert_eq!(
                (found.command, found.container.as_str()),
                (vec!["true".to_owned(), last.to_owned()], "app"),
                "{end}"
            );
        }
        let found = options(&format!("{begin}x&stdout=tr{CUT}"));
        assert_eq!(found.command, ["true", "x…"]);
    }

    #[test]
    fn who_was_refused_is_told_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let refused = |id: &str, code: u16| {
            let mut event = event(id, "ResponseComplete");
            event["responseStatus"] = json!({"metadata": {}, "code": code});
            event
        };
        let mut forbidden = refused("a", 403);
        forbidden["responseStatus"]["reason"] = json!("Forbidden");
        forbidden["responseStatus"]["message"] = json!("pods \"web\" is forbidden");
        // Other servers, and other levels, say less.
        let mut terse = refused("b", 403);
        terse["annotations"] = json!({"authorization.k8s.io/reason": "no rule"});
        let mut debug = refused("c", 403);
        debug["objectRef"]["subresource"] = json!("ephemeralcontainers");
        debug["verb"] = json!("patch");
        let mut read = debug.clone();
        (read["auditID"], read["verb"]) = (json!("d"), json!("get"));
        let left = refused("e", 499);
        write(&path, &[forbidden, terse, debug, read, left, answered("f", 101), refused("f", 101)]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        let told = |filter: &crate::Filter| {
            let found = crate::denied(log.requests(), filter).into_iter();
            found
                .map(|it| format!("{} {} {}", it.audit_id, it.reason, it.message))
                .collect::<Vec<_>>()
        };
        let all = crate::Filter { pod: None, user: None, since: None, probes: false };
        let expected =
            ["a Forbidden pods \"web\" is forbidden", "b Forbidden no rule", "c Forbidden "];
        assert_eq!(told(&all), expected);
        let somebody = |user: &str| crate::Filter { user: Some(user.to_owned()), ..all.clone() };
        assert_eq!((told(&somebody("anna")).len(), told(&somebody("bert")).len()), (3, 0));
        let pod = |pod: &str| crate::Filter { pod: Some(pod.to_owned()), ..all.clone() };
        assert_eq!((told(&pod("shop/web")).len(), told(&pod("other/web")).len()), (3, 0));
    }

    /// kubectl asks over WebSocket and then over SPDY.
    #[test]
    fn an_attempt_that_a_client_repeats_by_itself_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let asked = |id: &str, verb: &str, second: u32, code: u16| {
            let mut event = event(id, "ResponseComplete");
            event["verb"] = json!(verb);
            event["userAgent"] = json!("kubectl/v1.37.0");
            event["requestReceivedTimestamp"] =
                json!(format!("2026-01-02T03:{:02}:{:02}.000000Z", second / 60, second % 60));
            event["responseStatus"] = json!({"metadata": {}, "code": code});
            event
        };
        let mut other = asked("h", "create", 301, 403);
        other["user"]["username"] = json!("bert");
        write(
            &path,
            &[
                asked("a", "get", 1, 403),
                asked("b", "create", 1, 403),
                // The same again, and once more over SPDY alone.
                asked("c", "get", 2, 403),
                asked("d", "create", 3, 403),
                asked("e", "create", 4, 403),
                // Too late to be the same attempt.
                asked("f", "get", 100, 403),
                asked("g", "create", 200, 403),
                // Somebody else's.
                asked("i", "get", 300, 403),
                other,
                // A server without WebSockets: the second came through.
                asked("j", "get", 400, 400),
                asked("k", "create", 400, 101),
            ],
        );
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        let all = crate::Filter { pod: None, user: None, since: None, probes: false };
        let told: Vec<_> = crate::denied(log.requests(), &all)
            .into_iter()
            .map(|it| (it.audit_id, it.asked_again_as.unwrap_or_default()))
            .collect();
        let pair = |first: &str, second: &str| (first.to_owned(), second.to_owned());
        let expected =
            [("a", "b"), ("c", "d"), ("e", ""), ("f", ""), ("g", ""), ("i", ""), ("h", "")];
        assert_eq!(told, expected.map(|(first, second)| pair(first, second)));
    }

    #[test]
    fn a_request_that_was_refused_began_no_session() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        write(&path, &[answered("1", 404)]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        assert!(!log.requests()["1"].began);
    }

    /// EXEC-48
    #[test]
    fn a_request_is_what_all_its_stages_tell() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        write(&path, &[event("1", "RequestReceived")]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        let request = &log.requests()["1"];
        assert_eq!((request.caller.user.as_str(), request.pod.as_str()), ("anna", "web"));
        assert_eq!(request.command, ["sh", "-c", "a b"]);
        assert_eq!(request.variables, ["LEVEL"]);
        assert_eq!(request.container, "app");
        assert!(!request.began);
        write(&path, &[answered("1", 101), event("1", "ResponseComplete")]);
        log.refresh().unwrap();
        assert!(log.requests()["1"].began);
        assert!(log.requests()["1"].ended.is_some());
    }

    fn one(event: &Value) -> Option<Request> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        write(&path, std::slice::from_ref(event));
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        log.requests().get("1").cloned()
    }

    #[test]
    fn who_attached_and_whether_to_write_is_read() {
        let mut event = answered("1", 101);
        event["objectRef"]["subresource"] = "attach".into();
        for (query, stdin) in
            [("?container=app&stdin=true&stdout=true", true), ("?stdout=1", false)]
        {
            event["requestURI"] = format!("/api/v1/namespaces/shop/pods/web/attach{query}").into();
            let request = one(&event).unwrap();
            assert_eq!(request.asked, Asked::Attach { stdin });
            assert!(request.began);
        }
        // A server may cut what is long, and stdin with it.
        let padding = format!("/api/v1/namespaces/shop/pods/web/attach?x={}", "x".repeat(600));
        event["requestURI"] = padding.into();
        assert_eq!(one(&event).unwrap().asked, Asked::Attach { stdin: true });
    }

    #[test]
    fn who_added_which_debug_container_is_read_from_the_annotation() {
        let mut event = event("1", "ResponseComplete");
        event["requestURI"] = "/api/v1/namespaces/shop/pods/web/ephemeralcontainers".into();
        event["objectRef"]["subresource"] = "ephemeralcontainers".into();
        event["objectRef"]["uid"] = "u-1".into();
        event["responseStatus"] = json!({"code": 200});
        assert_eq!(one(&event), None, "nothing was added");
        event["annotations"] = json!({"pods.waybill.dev/added-ephemeral-containers": "a,b"});
        let request = one(&event).unwrap();
        let containers = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(request.asked, Asked::Debug { containers });
        assert!(request.began && request.pod_uid == "u-1");
        event["responseStatus"] = json!({"code": 409});
        assert!(!one(&event).unwrap().began);
    }

    /// On a stock cluster the annotation of gate is what joins.
    #[test]
    fn gates_sessions_are_read_from_its_annotation_of_any_stage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut done = event("1", "ResponseComplete");
        done["annotations"] = json!({"exec.enforce.gate.waybill.dev/session": "s-1"});
        let mut debug = event("2", "ResponseComplete");
        debug["objectRef"]["subresource"] = "ephemeralcontainers".into();
        debug["verb"] = "patch".into();
        debug["responseStatus"] = json!({"code": 200});
        debug["annotations"] = json!({"debug.record.gate.waybill.dev/session": "s-2,s-3"});
        let mut other = event("3", "ResponseComplete");
        other["annotations"] = json!({"gate.waybill.dev.example.com/session": "s-4"});
        write(&path, &[event("1", "RequestReceived"), done, debug, other]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        let told: Vec<_> = log.requests().values().map(|it| it.sessions.join(",")).collect();
        assert_eq!(told, ["s-1", "s-2,s-3", ""]);
    }

    #[test]
    fn other_requests_and_other_lines_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut logs = event("1", "RequestReceived");
        logs["objectRef"]["subresource"] = "log".into();
        write(&path, &[logs, json!("exec"), json!({"a": "exec", "b": 1})]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        assert!(log.requests().is_empty());
    }

    /// As kube-apiserver writes it; before, the wrong one of the two was named.
    #[test]
    fn who_acted_for_another_is_told_though_the_first_stage_does_not_know() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut later = answered("1", 101);
        later["impersonatedUser"] = json!({"username": "ben", "groups": ["ops"]});
        write(&path, &[event("1", "RequestReceived"), later]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        let caller = &log.requests()["1"].caller;
        assert_eq!((&*caller.user, caller.impersonator.as_deref()), ("ben", Some("anna")));
    }

    #[test]
    fn who_acted_for_another_is_told_beside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut event = event("1", "RequestReceived");
        event["impersonatedUser"] = json!({"username": "ben"});
        write(&path, &[event]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        assert_eq!(log.requests()["1"].caller.user, "ben");
        assert_eq!(log.requests()["1"].caller.impersonator.as_deref(), Some("anna"));
    }

    #[test]
    fn files_that_were_set_aside_are_read_to_their_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        write(
            &directory.path().join("audit-2026-01-01T00-00-00.000.log"),
            &[event("0", "RequestReceived")],
        );
        write(&path, &[event("1", "RequestReceived")]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        write(&path, &[event("2", "RequestReceived")]);
        fs::rename(&path, directory.path().join("audit-2026-01-02T00-00-00.000.log")).unwrap();
        write(&path, &[event("3", "RequestReceived")]);
        log.refresh().unwrap();
        assert_eq!(log.requests().keys().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }

    /// A session that nobody is known for is shown all the same.
    #[test]
    fn sessions_of_strangers_are_in_a_file_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        write(&path, &[answered("a", 101)]);
        write(&directory.path().join("anonymous.log"), &[answered("b", 101)]);
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        assert_eq!(log.requests().keys().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn half_a_line_waits_for_the_other_half() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let line = event("1", "RequestReceived").to_string();
        let (first, second) = line.split_at(line.len() / 2);
        fs::write(&path, first).unwrap();
        let mut log = AuditLog::at(&path);
        log.refresh().unwrap();
        assert!(log.requests().is_empty());
        let mut file = File::options().append(true).open(&path).unwrap();
        writeln!(file, "{second}").unwrap();
        log.refresh().unwrap();
        assert_eq!(log.requests().len(), 1);
    }
}
