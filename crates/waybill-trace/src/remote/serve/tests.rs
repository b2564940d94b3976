//! A record of ours, asked through its socket.

use std::io::Lines;

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::{
    ProcessQuery, ReceivedRecord, TraceSource,
    journal::{Entry, JournalWriter, Limits, LogName},
    remote::Heard,
};

const LIMITS: Limits =
    Limits { file: 2_000, total: 1 << 20, age: SignedDuration::from_hours(24), waiting: 1 << 20 };

struct Record {
    directory: tempfile::TempDir,
    server: RecordServer,
    sessions: JournalWriter,
    programs: JournalWriter,
}

impl Record {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let open = |log| JournalWriter::open(directory.path(), log, LIMITS).unwrap().writer;
        let (sessions, programs) = (open(LogName::Sessions), open(LogName::Programs));
        let server = RecordServer::start(RecordServerConfig {
            socket: directory.path().join("collector.sock"),
            directory: directory.path().to_owned(),
            runtime: directory.path().join("no-runtime.sock"),
            audit_log: None,
        })
        .unwrap();
        let mut record = Self { directory, server, sessions, programs };
        record.note(&json!({
            "entry": "start", "at": "2026-01-02T03:00:00Z", "source": "ebpf", "clean": true, "boot": "b",
        }));
        record
    }

    fn note(&mut self, entry: &serde_json::Value) {
        let entry: Entry = serde_json::from_value(entry.clone()).unwrap();
        let writer = match entry {
            Entry::Program(_) | Entry::Exit(_) => &mut self.programs,
            _ => &mut self.sessions,
        };
        assert!(writer.append(&entry, Timestamp::UNIX_EPOCH));
        writer.flush().unwrap();
    }

    fn session(&mut self, id: &str, user: &str, minute: u32) {
        self.note(&json!({
            "entry": "session", "id": id, "kind": "exec", "auditID": format!("audit-{id}"), "session": id,
            "user": user, "uid": "", "impersonator": null, "groups": [], "source": [],
            "namespace": "shop", "pod": "web", "container": "app", "containerID": "c1", "command": ["sh"],
            "variables": ["LEVEL"], "started": format!("2026-01-02T03:{minute:02}:00Z"),
            "end": {"state": "running"}, "eventSource": "ebpf", "programs": 0,
        }));
    }

    fn program(&mut self, session: &str, pid: u32, words: &str) {
        let words: Vec<_> = words.split(' ').collect();
        self.note(&json!({
            "entry": "program", "session": session, "pid": pid, "parent": 1, "uid": 0, "program": "/bin/x",
            "arguments": words, "started": "2026-01-02T03:10:00.000001Z", "source": "ebpf",
        }));
    }

    fn ask(&self, query: &str) -> Lines<BufReader<StdStream>> {
        let mut stream = StdStream::connect(self.directory.path().join("collector.sock")).unwrap();
        writeln!(stream, "{query}").unwrap();
        BufReader::new(stream).lines()
    }

    /// The sessions of an answer, with how many programs came of each.
    fn answer(&self, query: &str) -> Vec<(String, usize)> {
        let mut lines = self.ask(query);
        assert_eq!(lines.next().unwrap().unwrap(), TRACE_GRANTED);
        let received = ReceivedRecord::new(1);
        let mut ended = false;
        for line in lines {
            assert!(!ended);
            ended = received.hear(0, line.unwrap().as_bytes()).unwrap() == Heard::End;
        }
        assert!(ended, "the answer is whole");
        told(&received)
    }
}

fn told(received: &ReceivedRecord) -> Vec<(String, usize)> {
    let now = |future| futures_util::FutureExt::now_or_never(future).unwrap();
    let list = now(received.sessions(&SessionQuery { probes: true, ..SessionQuery::default() }));
    let sessions = list.unwrap().sessions.into_iter().map(|it| it.id);
    let with_programs = sessions.map(|id| {
        let query = ProcessQuery { session: Some(id.clone()), ..ProcessQuery::default() };
        let found = futures_util::FutureExt::now_or_never(received.processes(&query)).unwrap();
        (id, found.unwrap().len())
    });
    with_programs.collect()
}

fn crowd() -> Record {
    let mut record = Record::new();
    record.session("a", "anna", 1);
    record.session("b", "ben", 2);
    record.session("c", "anna", 3);
    record.program("a", 7, "curl example");
    record.program("b", 8, "ls");
    record.program("b", 9, "true");
    record
}

#[track_caller]
fn check(query: &str, expected: &[(&str, usize)]) {
    let expected: Vec<_> = expected.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect();
    assert_eq!(crowd().answer(query), expected, "{query}");
}

#[test]
fn an_answer_has_what_is_asked_for_and_no_more() {
    check("", &[("a", 0), ("b", 0), ("c", 0)]);
    check("programs=true", &[("a", 1), ("b", 2), ("c", 0)]);
    check("user=anna&programs=true", &[("a", 1), ("c", 0)]);
    check("command=curl&programs=true", &[("a", 1)]);
    check("pid=9", &[("b", 0)]);
    check("since=2026-01-02T04:00:00Z&user=ben", &[("b", 0)]);
    check("until=2026-01-02T03:02:30Z", &[("a", 0), ("b", 0)]);
    check("session=audit-c&beside=true", &[("c", 0)]);
    check("variable=NONE", &[]);
}

#[test]
fn who_was_beside_comes_with_the_answer_and_is_no_part_of_it() {
    let record = crowd();
    let received = ReceivedRecord::new(1);
    for line in record.ask("session=a&beside=true").skip(1) {
        received.hear(0, line.unwrap().as_bytes()).unwrap();
    }
    let all: Vec<_> = received.with_beside().into_iter().map(|it| it.id).collect();
    assert_eq!(all, ["a", "b", "c"]);
    assert_eq!(told(&received), [("a".to_owned(), 0)]);
}

#[test]
fn who_follows_gets_what_is_new_until_the_collector_ends() {
    let mut record = crowd();
    let mut lines = record.ask("user=anna&programs=true&follow=true");
    assert_eq!(lines.next().unwrap().unwrap(), TRACE_GRANTED);
    let received = ReceivedRecord::new(1);
    let until = |lines: &mut Lines<_>, enough: &dyn Fn(Heard) -> bool| {
        while !enough(received.hear(0, lines.next().unwrap().unwrap().as_bytes()).unwrap()) {}
    };
    until(&mut lines, &|heard| heard == Heard::End);
    record.session("d", "anna", 4);
    record.session("e", "ben", 5);
    record.program("d", 11, "id");
    until(&mut lines, &|_| told(&received).contains(&("d".to_owned(), 1)));
    drop(record.server);
    assert!(lines.map_while(Result::ok).all(|line| !line.contains("\"e\"")));
}

#[test]
fn what_is_not_understood_is_refused_with_a_reason() {
    let record = crowd();
    for (query, reason) in [
        ("colour=red", "no such parameter"),
        ("since=yesterday", "since is not a time"),
        ("pid=x", "pid is not the number"),
    ] {
        let answer = record.ask(query).next().unwrap().unwrap();
        let told = answer.strip_prefix(TRACE_REFUSED).unwrap_or_default();
        assert!(told.contains(reason), "{answer}");
    }
}

#[test]
fn only_so_many_read_at_once() {
    let record = crowd();
    let mut readers: Vec<_> = (0..READERS).map(|_| record.ask("follow=true")).collect();
    for reader in &mut readers {
        assert_eq!(reader.next().unwrap().unwrap(), TRACE_GRANTED);
    }
    let answer = record.ask("").next().unwrap().unwrap();
    assert!(answer.contains("others read the record now"), "{answer}");
}

#[test]
fn the_socket_is_for_its_owner_and_goes_with_its_server() {
    let record = crowd();
    let path = record.directory.path().join("collector.sock");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(bind(&path).is_err(), "somebody serves there");
    drop(record.server);
    assert!(!path.exists());
}
