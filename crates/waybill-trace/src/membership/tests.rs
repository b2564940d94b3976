//! One container `c` with sessions `a` and `b`, another container `d`, and processes in all kinds of places.

use jiff::Timestamp;

use super::*;

const MACHINE: u64 = 1;
const OF_C: u64 = 30;
const OF_D: u64 = 40;

/// Cgroup IDs: a container's, its own leaf, and those of sessions.
const C: u64 = 300;
const C_PROCESSES: u64 = 301;
const A: u64 = 310;
const B: u64 = 311;
const D: u64 = 400;
const D_PROCESSES: u64 = 401;

/// Sessions were made one second after boot.
const MADE: u64 = 100;

const MONITOR: u32 = 9;
const FIRST_OF_C: u32 = 30;
const FIRST_OF_D: u32 = 40;

fn session(id: &str, cgroup_id: u64, pid: i32) -> Session {
    Session {
        id: id.to_owned(),
        attached: None,
        container: "c".to_owned(),
        pid,
        started: Timestamp::UNIX_EPOCH,
        ended: None,
        variables: Vec::new(),
        audit_id: None,
        cgroup_id,
        made_at: MADE * 10_000_000 + 9_999_999,
        privileged: false,
    }
}

fn container(id: &str, pid: u32, cgroup_id: u64, processes_id: u64) -> ContainerCgroups {
    let pid = i32::try_from(pid).unwrap();
    ContainerCgroups { container: id.to_owned(), pid, cgroup_id, processes_id }
}

fn process(pid: u32, parent: u32, cgroups: &[u64]) -> ProcessFacts {
    let is_first = [1, FIRST_OF_C, FIRST_OF_D].contains(&pid);
    let pid_namespace = OF_C;
    ProcessFacts { pid, parent, began: MADE, cgroups: cgroups.to_vec(), pid_namespace, is_first }
}

fn on_machine(pid: u32, parent: u32) -> ProcessFacts {
    ProcessFacts { pid_namespace: MACHINE, ..process(pid, parent, &[7]) }
}

fn in_d(pid: u32, parent: u32, cgroups: &[u64]) -> ProcessFacts {
    ProcessFacts { pid_namespace: OF_D, ..process(pid, parent, cgroups) }
}

/// What is said of process 77, with `more` beside what is always there.
fn judged_with(more: &[ProcessFacts], sessions: &[Session]) -> Option<Membership> {
    let mut processes = vec![
        on_machine(1, 0),
        on_machine(MONITOR, 1),
        process(FIRST_OF_C, MONITOR, &[C_PROCESSES, C]),
        in_d(FIRST_OF_D, MONITOR, &[D_PROCESSES, D]),
        process(50, MONITOR, &[A, 302, C]),
        process(51, MONITOR, &[B, 302, C]),
    ];
    processes.extend_from_slice(more);
    let containers =
        [container("c", FIRST_OF_C, C, C_PROCESSES), container("d", FIRST_OF_D, D, D_PROCESSES)];
    judge(&processes, sessions, &containers).remove(&77)
}

fn judged(more: &[ProcessFacts]) -> Option<Membership> {
    judged_with(more, &[session("a", A, 50), session("b", B, 51)])
}

#[track_caller]
fn is_of(session: &str, more: &[ProcessFacts]) {
    assert_eq!(judged(more), Some(Membership::Session(session.to_owned())));
}

#[track_caller]
fn is_moved(reason: MoveReason, more: &[ProcessFacts]) {
    match judged(more) {
        Some(Membership::Moved(moved)) => assert_eq!(moved.reason, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_is_of_the_session_in_whose_cgroup_it_began() {
    is_of("a", &[process(77, 50, &[A, 302, C])]);
    is_of("b", &[process(77, 51, &[B, 302, C])]);
}

/// Processes may make cgroups below that of their session.
#[test]
fn what_is_below_a_sessions_cgroup_is_of_that_session() {
    is_of("a", &[process(77, 50, &[991, 990, A, 302, C])]);
}

#[test]
fn an_orphan_stays_with_its_session_when_the_first_process_takes_it_over() {
    is_of("a", &[process(77, FIRST_OF_C, &[A, 302, C])]);
}

#[test]
fn a_process_in_a_namespace_of_its_own_is_of_its_session() {
    let nested = |pid, parent, is_first| ProcessFacts {
        pid_namespace: 99,
        is_first,
        ..process(pid, parent, &[A, 302, C])
    };
    is_of("a", &[nested(76, 50, true), nested(77, 76, false)]);
    // Its parent is gone.
    is_of("a", &[nested(77, FIRST_OF_C, true)]);
}

#[test]
fn the_containers_own_processes_are_of_no_session() {
    let own = judged(&[process(77, FIRST_OF_C, &[C_PROCESSES, C])]);
    assert_eq!(own, Some(Membership::Container("c".to_owned())));
}

/// A pod with the machine's cgroups could make one that is called like a session's.
#[test]
fn a_cgroup_that_the_runtime_did_not_make_names_nobody() {
    assert_eq!(judged(&[on_machine(77, 1)]), None);
    is_moved(MoveReason::OutsideItsContainer, &[in_d(77, FIRST_OF_D, &[12345, D])]);
}

#[test]
fn a_process_older_than_the_session_was_moved_there() {
    let old = ProcessFacts { began: MADE - 1, ..process(77, FIRST_OF_C, &[A, 302, C]) };
    is_moved(MoveReason::OlderThanSession, &[old]);
}

#[test]
fn a_process_whose_parent_is_in_another_session_was_moved() {
    is_moved(MoveReason::ApartFromParentOrChild, &[process(77, 51, &[A, 302, C])]);
    is_moved(MoveReason::ApartFromParentOrChild, &[process(77, 51, &[C_PROCESSES, C])]);
}

/// It may be the parent that was moved, so neither is believed.
#[test]
fn a_process_whose_child_is_in_another_session_is_not_believed() {
    let parent = process(77, FIRST_OF_C, &[A, 302, C]);
    is_moved(MoveReason::ApartFromParentOrChild, &[parent, process(78, 77, &[B, 302, C])]);
}

#[test]
fn a_process_of_another_container_is_of_no_session_here() {
    is_moved(MoveReason::OtherContainer, &[in_d(77, FIRST_OF_D, &[A, 302, C])]);
    let nested = |pid, parent| ProcessFacts {
        pid_namespace: 99,
        is_first: pid == 76,
        ..process(pid, parent, &[A, 302, C])
    };
    is_moved(MoveReason::OtherContainer, &[nested(76, FIRST_OF_D), nested(77, 76)]);
    is_moved(MoveReason::OtherContainer, &[ProcessFacts { cgroups: vec![A], ..on_machine(77, 1) }]);
}

#[test]
fn a_process_that_left_all_cgroups_of_its_container_was_moved() {
    is_moved(MoveReason::OutsideItsContainer, &[process(77, FIRST_OF_C, &[7])]);
    is_moved(MoveReason::OutsideItsContainer, &[process(77, 50, &[])]);
    is_moved(MoveReason::OutsideItsContainer, &[process(77, FIRST_OF_C, &[C])]);
    // The first process of a session is a child of the monitor, which is on the machine.
    let leader = judged_with(&[process(77, MONITOR, &[7])], &[session("a", A, 77)]);
    assert!(matches!(leader, Some(Membership::Moved(_))), "{leader:?}");
}

/// `nsenter`, by whoever is root on the machine.
#[test]
fn who_enters_a_container_from_the_machine_was_not_moved() {
    assert_eq!(judged(&[process(77, 1, &[7])]), None);
}

/// The holder of a PID namespace that the containers of a pod share is in the sandbox's cgroup.
#[test]
fn the_holder_of_a_shared_namespace_was_not_moved() {
    let holder = ProcessFacts { is_first: true, ..process(77, 1, &[7]) };
    assert_eq!(judged(std::slice::from_ref(&holder)), None);
    assert_eq!(judged(&[ProcessFacts { parent: 50, ..holder }]), None);
}

#[test]
fn a_session_that_is_just_being_started_accuses_nobody() {
    let sessions = [session("a", A, 50), session("new", 0, 0)];
    assert_eq!(judged_with(&[process(77, MONITOR, &[999, 302, C])], &sessions), None);
}

/// D15: containers of older runtimes have no leaves, and sessions no IDs.
#[test]
fn nothing_is_said_of_processes_of_older_runtimes() {
    let processes = [on_machine(1, 0), process(FIRST_OF_C, 1, &[C]), process(77, 1, &[A, C])];
    let told = judge(&processes, &[session("a", 0, 77)], &[container("c", FIRST_OF_C, 0, 0)]);
    assert_eq!(told, BTreeMap::new());
}
