//! Who is named for what, and who is not.

use serde_json::json;

use super::*;
use crate::audit::Asked;

fn id(number: u8) -> SessionId {
    SessionId::from_random([number; 16])
}

fn gate(number: u8, user: &str, change: impl FnOnce(&mut GateRecord)) -> GateRecord {
    let mut record: GateRecord = serde_json::from_value(json!({
        "version": 1, "record": GateRecord::RECORD, "time": 10, "session": id(number), "kind": "exec",
        "verdict": "signed", "namespace": "shop", "pod": "web", "uid": "u", "container": "app", "node": "n1",
        "tty": true, "user": {"username": user, "uid": "7", "groups": ["dev"], "credentialId": "JTI=x"},
        "variables": ["LEVEL"]}))
    .unwrap();
    change(&mut record);
    record
}

fn node(number: u8, change: impl FnOnce(&mut NodeSession)) -> NodeSession {
    let mut session: NodeSession = serde_json::from_value(json!({
        "node": "n1", "version": 1, "session": id(number), "kind": "exec", "namespace": "shop", "pod": "web",
        "uid": "u", "container": "app", "containerId": "c", "argv": ["sh", "-c", "x"], "cgroup": "/sys/fs/cgroup/x",
        "cgroupId": 5, "startedNs": 11_000_000_000_u64, "tty": true, "verdict": "attributed", "privileged": false,
        "processes": [{"pid": 70, "argv": ["sh"]}]}))
    .unwrap();
    change(&mut session);
    session
}

fn request(audit_id: &str, user: &str, session: u8) -> Request {
    Request {
        audit_id: audit_id.to_owned(),
        asked: Asked::Exec,
        verb: "get".to_owned(),
        user_agent: String::new(),
        caller: Caller {
            user: user.to_owned(),
            uid: "7".to_owned(),
            impersonator: Some("root".to_owned()),
            groups: vec!["dev".to_owned()],
            source: vec!["10.0.0.9".to_owned()],
        },
        namespace: "shop".to_owned(),
        pod: "web".to_owned(),
        pod_uid: String::new(),
        container: "app".to_owned(),
        command: vec!["sh".to_owned()],
        variables: Vec::new(),
        received: Timestamp::from_second(9).unwrap(),
        began: true,
        ended: Timestamp::from_second(20).ok(),
        refusal: None,
        sessions: vec![id(session).to_string()],
    }
}

fn joined_with(
    items: Vec<GateRecord>,
    nodes: Vec<NodeSession>,
    requests: Vec<Request>,
) -> Vec<StockTrace> {
    let list = SessionList { items, node_records: nodes, missing: Vec::new() };
    let requests = requests.into_iter().map(|it| (it.audit_id.clone(), it)).collect();
    join_stock(&list, &requests)
}

fn user(trace: &StockTrace) -> Option<&str> {
    trace.caller.as_ref().map(|caller| caller.user.as_str())
}

#[test]
fn gate_says_who_the_node_what_and_the_audit_log_from_where() {
    let traces = joined_with(
        vec![gate(1, "anna", |_| ())],
        vec![node(1, |_| ())],
        vec![request("a", "anna", 1)],
    );
    let [trace] = traces.as_slice() else { panic!("{traces:?}") };
    assert_eq!((trace.standing, user(trace)), (Standing::Attributed, Some("anna")));
    let caller = trace.caller.as_ref().unwrap();
    assert_eq!(
        (&*caller.groups, &*caller.source),
        (&["dev".to_owned()][..], &["10.0.0.9".to_owned()][..])
    );
    assert_eq!(caller.impersonator.as_deref(), Some("root"));
    assert_eq!(
        (trace.audit_id.as_deref(), trace.credential_id.as_deref()),
        (Some("a"), Some("JTI=x"))
    );
    assert_eq!(
        (trace.command.join(" "), trace.variables.join(" ")),
        ("sh -c x".to_owned(), "LEVEL".to_owned())
    );
    assert_eq!((trace.end, trace.cgroup_id, trace.processes[0].pid), (End::Running, Some(5), 70));
}

/// After the only gate was started anew.
#[test]
fn without_gates_record_the_audit_log_names_the_user_and_without_both_nobody_does() {
    let traces = joined_with(
        Vec::new(),
        vec![node(1, |_| ()), node(2, |_| ())],
        vec![request("a", "anna", 1)],
    );
    let told: Vec<_> = traces.iter().map(|trace| (trace.standing, user(trace))).collect();
    assert_eq!(told, [(Standing::Attributed, Some("anna")), (Standing::Unknown, None)]);
}

#[test]
fn overlapping_sessions_in_one_container_are_told_apart() {
    let gates = (0..20).map(|at| gate(at, &format!("u{at}"), |_| ())).rev().collect();
    let nodes =
        (0..20).map(|at| node(at, |it| it.record.argv = vec![format!("by-u{at}")])).collect();
    for trace in joined_with(gates, nodes, Vec::new()) {
        assert_eq!(trace.command[0], format!("by-{}", user(&trace).unwrap()));
    }
}

/// Whoever has a node may say anything about it, and nothing about others.
#[test]
fn nobody_is_named_where_records_contradict_one_another() {
    type Change = fn(&mut NodeSession);
    let cases: [(Change, &str); 6] = [
        (|it| it.node = "n2".to_owned(), "another node"),
        (|it| it.record.pod = "other".to_owned(), "another container"),
        (|it| it.record.namespace = "other".to_owned(), "another container"),
        (|it| it.record.uid = "v".to_owned(), "another container"),
        (|it| it.record.container = "side".to_owned(), "another container"),
        (|it| it.record.kind = StockKind::Debug, "another container"),
    ];
    for (change, part) in cases {
        let traces = joined_with(vec![gate(1, "anna", |_| ())], vec![node(1, change)], Vec::new());
        assert_eq!(
            (traces[0].standing, user(&traces[0])),
            (Standing::Contradicted, None),
            "{part}"
        );
        assert!(traces[0].reason.as_ref().unwrap().contains(part), "{:?}", traces[0].reason);
    }
    let both = vec![node(1, |_| ()), node(1, |it| it.node = "n2".to_owned())];
    let traces = joined_with(vec![gate(1, "anna", |_| ())], both, Vec::new());
    assert!(traces.iter().all(|trace| trace.standing == Standing::Contradicted), "{traces:?}");
    let other = joined_with(
        vec![gate(1, "anna", |_| ())],
        vec![node(1, |_| ())],
        vec![request("a", "ben", 1)],
    );
    assert_eq!((other[0].standing, user(&other[0])), (Standing::Contradicted, None));
    let moved = Request { pod: "other".to_owned(), ..request("a", "anna", 1) };
    let traces = joined_with(Vec::new(), vec![node(1, |_| ())], vec![moved]);
    assert_eq!((traces[0].standing, user(&traces[0])), (Standing::Contradicted, None));
}

#[test]
fn what_gate_alone_knows_is_told_as_such() {
    let waiting = gate(1, "anna", |_| ());
    let attach =
        gate(2, "ben", |it| (it.kind, it.verdict) = (StockKind::Attach, GateVerdict::Recorded));
    let refused = gate(3, "cleo", |it| {
        (it.session, it.verdict, it.reason) = (None, GateVerdict::Refused, Some("no".to_owned()));
    });
    let traces =
        joined_with(vec![waiting, attach, refused], Vec::new(), vec![request("a", "ben", 2)]);
    let of = |name: &str| traces.iter().find(|trace| user(trace) == Some(name)).unwrap();
    assert_eq!((of("anna").standing, of("anna").end), (Standing::Waiting, End::Unknown));
    assert_eq!((of("ben").standing, of("ben").kind), (Standing::Recorded, TraceKind::Attach));
    assert_eq!(of("ben").end, End::Over { at: Timestamp::from_second(20).unwrap() });
    assert_eq!(
        (of("cleo").standing, of("cleo").reason.as_deref()),
        (Standing::Refused, Some("no"))
    );
}

#[test]
fn what_no_gate_saw_is_nobodys_or_refused() {
    let stranger =
        node(1, |it| (it.record.session, it.record.verdict) = (None, Verdict::Unattributed));
    let refused = node(2, |it| {
        (it.record.session, it.record.verdict, it.record.cgroup_id) = (None, Verdict::Refused, 0);
    });
    let traces = joined_with(Vec::new(), vec![stranger, refused], Vec::new());
    let told: Vec<_> =
        traces.iter().map(|trace| (trace.standing, user(trace), trace.cgroup_id)).collect();
    assert_eq!(told, [(Standing::Nobody, None, Some(5)), (Standing::Refused, None, None)]);
}

#[test]
fn filters_take_what_matches_all_of_them_and_refusals_are_a_list_of_their_own() {
    let over = node(1, |it| it.record.ended_ns = Some(15_000_000_000));
    let traces = joined_with(vec![gate(1, "anna", |_| ())], vec![over], Vec::new());
    let takes = |filter: Filter| traces[0].is_wanted(&filter, false);
    assert!(takes(Filter {
        pod: Some("shop/web".into()),
        user: Some("anna".into()),
        ..Filter::default()
    }));
    assert!(!takes(Filter { pod: Some("other/web".into()), ..Filter::default() }));
    assert!(!takes(Filter { user: Some("ben".into()), ..Filter::default() }));
    let since = |second| Filter { since: Timestamp::from_second(second).ok(), ..Filter::default() };
    assert!(takes(since(15)) && !takes(since(16)));
    assert!(!traces[0].is_wanted(&Filter::default(), true));
}

/// Numbers of others may be any.
#[test]
fn a_time_that_cannot_be_is_no_panic() {
    let odd = node(1, |it| (it.record.started_ns, it.record.ended_ns) = (u64::MAX, Some(u64::MAX)));
    let gate = gate(1, "anna", |it| it.time = i64::MAX);
    assert_eq!(joined_with(vec![gate], vec![odd], Vec::new()).len(), 1);
}
