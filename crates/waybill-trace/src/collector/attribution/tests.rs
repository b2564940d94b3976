//! Programs of sessions, in the orders in which they can come.

use jiff::Timestamp;

use super::*;
use crate::{
    collector::places::{ContainerPlace, SessionPlace},
    kernel::ParentProcess,
};

/// Long after everything here, in nanoseconds after boot.
const LATER: u64 = 100_000_000_000;

fn clock() -> BootClock {
    BootClock::from(Timestamp::from_second(1_000).unwrap())
}

fn attribution() -> Attribution {
    Attribution::new(1, EventSource::Ebpf)
}

fn know_session(attribution: &mut Attribution, cgroup: u64, id: &str) {
    let place = SessionPlace { id: id.to_owned(), container: "c".to_owned(), made_at: 0 };
    attribution.places.insert(cgroup, Place::Session(place));
}

fn know_container(attribution: &mut Attribution, cgroup: u64, kind: ContainerKind) {
    let place = ContainerPlace { container: "c".to_owned(), kind };
    attribution.places.insert(cgroup, Place::Container(place));
}

fn exec(pid: u32, parent: u32, cgroup: u64, arguments: &str) -> KernelEvent {
    let parent = ParentProcess { pid: parent, cgroup: 0, inner_pid: 9, ..ParentProcess::default() };
    KernelEvent::Exec(Box::new(ExecEvent {
        time: u64::from(pid) * 1_000,
        pid,
        began: u64::from(pid),
        cgroups: vec![cgroup],
        inner_pid: pid,
        parent,
        program: b"/bin/x".to_vec(),
        arguments: arguments.replace(' ', "\0").into_bytes(),
        ..ExecEvent::default()
    }))
}

fn exit(pid: u32, began: u64) -> KernelEvent {
    KernelEvent::Exit(ExitEvent { time: 9_000_000, pid, began, status: 0x0300 })
}

/// Session and process of what happened.
fn told(happened: impl IntoIterator<Item = Happened>) -> Vec<String> {
    let happened = happened.into_iter().map(|it| match it {
        Happened::Program(it) => format!("{} {} {}", it.session, it.pid, it.arguments.join(" ")),
        Happened::Exit(it) => format!("{} {} ended {:?}", it.session, it.pid, it.exit_code),
    });
    happened.collect()
}

#[test]
fn a_program_of_a_known_session_is_told_at_once_with_its_end() {
    let mut attribution = attribution();
    know_session(&mut attribution, 5, "anna");
    assert_eq!(told(attribution.hear(exec(7, 1, 5, "ls -l"), clock())), ["anna 7 ls -l"]);
    assert_eq!(told(attribution.hear(exit(7, 7), clock())), ["anna 7 ended Some(3)"]);
    assert_eq!(told(attribution.hear(exit(7, 7), clock())), Vec::<String>::new(), "only once");
}

#[test]
fn what_begins_and_ends_before_its_session_is_known_waits_in_order() {
    let mut attribution = attribution();
    for event in [exec(7, 1, 5, "sh"), exec(8, 7, 5, "ls"), exit(8, 8), exec(7, 1, 5, "cat")] {
        assert_eq!(attribution.hear(event, clock()), None);
    }
    assert_eq!(attribution.hear_waiting(clock(), LATER), [], "the runtime does not know it yet");
    assert_eq!(attribution.hear(exit(7, 7), clock()), None);
    know_session(&mut attribution, 5, "anna");
    assert_eq!(
        told(attribution.hear_waiting(clock(), LATER)),
        ["anna 7 sh", "anna 8 ls", "anna 8 ended Some(3)", "anna 7 cat", "anna 7 ended Some(3)"]
    );
    assert!(!attribution.has_waiting());
}

#[test]
fn a_cgroup_that_the_runtime_never_knows_is_nobodys() {
    let mut attribution = attribution();
    attribution.hear(exec(7, 1, 5, "sh"), clock());
    for _ in 0..=ASKED {
        assert_eq!(attribution.hear_waiting(clock(), LATER), []);
    }
    assert!(!attribution.has_waiting());
    assert_eq!(attribution.take_lost(), 0);
}

#[test]
fn more_than_can_wait_is_counted_as_lost() {
    let mut attribution = attribution();
    for pid in 0..MOST_WAITING + 3 {
        attribution.hear(exec(u32::try_from(pid).unwrap(), 1, pid as u64, "sh"), clock());
    }
    assert_eq!((attribution.take_lost(), attribution.take_lost()), (3, 0));
}

/// Hole: what another cluster on the machine ran took the room of our own sessions.
#[test]
fn one_cgroup_does_not_take_the_room_of_others() {
    let mut attribution = attribution();
    for pid in 0..MOST_WAITING {
        attribution.hear(exec(u32::try_from(pid).unwrap(), 1, 5, "sh"), clock());
    }
    attribution.hear(exec(100_000, 1, 6, "ls"), clock());
    know_session(&mut attribution, 6, "anna");
    assert_eq!(told(attribution.hear_waiting(clock(), LATER)), ["anna 100000 ls"]);
    // Whose the others were is not known yet; nobody lost them if they are nobody's.
    assert_eq!(attribution.take_lost(), 0);
    for _ in 0..=ASKED {
        attribution.hear_waiting(clock(), LATER);
    }
    assert!(!attribution.has_waiting());
    assert_eq!(attribution.take_lost(), 0);
    assert_eq!(attribution.hear(exec(7, 1, 5, "sh"), clock()), None);
    assert!(!attribution.has_waiting(), "it is known to be nobody's");
}

/// Hole: whoever may make cgroups elsewhere on the machine, as users of systemd may, made some with our names and ran programs with
/// long arguments there; for ten seconds no session had any.
#[test]
fn a_tree_of_cgroups_does_not_take_the_room_of_others() {
    let mut attribution = attribution();
    let long = "x".repeat(4_000);
    for pid in 0..3_000_u32 {
        let KernelEvent::Exec(mut event) = exec(pid, 1, 0, &long) else { unreachable!() };
        // Each in a cgroup of its own, below one of theirs.
        event.cgroups = vec![1_000 + u64::from(pid), 70];
        attribution.hear(KernelEvent::Exec(event), clock());
    }
    for pid in 100_000..100_100_u32 {
        let KernelEvent::Exec(mut event) = exec(pid, 1, 0, &long) else { unreachable!() };
        event.cgroups = vec![6, 71];
        attribution.hear(KernelEvent::Exec(event), clock());
    }
    know_session(&mut attribution, 6, "anna");
    assert_eq!(attribution.hear_waiting(clock(), LATER).len(), 100);
    assert_eq!(attribution.take_lost(), 0, "nobody's are not lost");
    for _ in 0..=ASKED {
        attribution.hear_waiting(clock(), LATER);
    }
    assert!(!attribution.has_waiting() && attribution.beyond.is_empty());
}

#[test]
fn what_found_no_room_is_lost_if_it_was_a_sessions() {
    let mut attribution = attribution();
    for pid in 0..OF_ONE.events + 3 {
        attribution.hear(exec(u32::try_from(pid).unwrap(), 1, 5, "sh"), clock());
    }
    know_session(&mut attribution, 5, "anna");
    assert_eq!(attribution.hear_waiting(clock(), LATER).len(), OF_ONE.events);
    assert_eq!((attribution.take_lost(), attribution.take_lost()), (3, 0));
}

#[test]
fn a_containers_own_programs_are_nobodys_unless_somebody_added_it() {
    let mut attribution = attribution();
    know_container(&mut attribution, 5, ContainerKind::New);
    attribution.hear(exec(7, 1, 5, "sh"), clock());
    assert!(attribution.has_waiting());
    know_container(&mut attribution, 5, ContainerKind::Debug);
    assert_eq!(told(attribution.hear_waiting(clock(), LATER)), ["c 7 sh"]);
    know_container(&mut attribution, 5, ContainerKind::Ordinary);
    assert_eq!(attribution.hear(exec(8, 1, 5, "sh"), clock()), None);
    assert!(!attribution.has_waiting());
}

#[test]
fn a_program_stands_below_the_nearest_one_of_its_session() {
    let mut attribution = attribution();
    know_session(&mut attribution, 5, "anna");
    know_session(&mut attribution, 6, "ben");
    let parent = |happened: Option<Happened>| match happened {
        Some(Happened::Program(program)) => program.parent_program,
        other => panic!("{other:?}"),
    };
    assert_eq!(parent(attribution.hear(exec(7, 1, 5, "sh"), clock())), None);
    assert_eq!(parent(attribution.hear(exec(8, 7, 5, "ls"), clock())), Some(7));
    // A subshell is between them.
    let KernelEvent::Exec(mut event) = exec(10, 9, 5, "ls") else { unreachable!() };
    event.above = vec![8, 7];
    assert_eq!(parent(attribution.hear(KernelEvent::Exec(event), clock())), Some(8));
    assert_eq!(parent(attribution.hear(exec(11, 7, 6, "ls"), clock())), None, "of another");
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let mut attribution = attribution();
    know_session(&mut attribution, 5, "anna");
    attribution.hear(exec(7, 1, 5, "sh"), clock());
    assert_eq!(attribution.hear(exit(7, 3), clock()), None, "of one that was made earlier");
    assert_eq!(told(attribution.hear(exit(7, 7), clock())).len(), 1);
}

#[test]
fn what_comes_of_a_moved_process_is_nobodys_either() {
    let mut attribution = attribution();
    let place = SessionPlace { id: "anna".to_owned(), container: "c".to_owned(), made_at: 50 };
    attribution.places.insert(5, Place::Session(place));
    let moved = |happened: Option<Happened>| match happened {
        Some(Happened::Program(program)) => program.moved,
        other => panic!("{other:?}"),
    };
    let first = moved(attribution.hear(exec(7, 1, 5, "sh"), clock()));
    assert_eq!(first, Some(MoveReason::OlderThanSession));
    let child = moved(attribution.hear(exec(70, 7, 5, "ls"), clock()));
    assert_eq!(child, Some(MoveReason::ApartFromParentOrChild));
    assert_eq!(moved(attribution.hear(exec(71, 1, 5, "ls"), clock())), None);
}

#[test]
fn secrets_are_hidden_before_anything_is_told() {
    let mut attribution = attribution();
    know_session(&mut attribution, 5, "anna");
    let told = told(attribution.hear(exec(7, 1, 5, "login --password hunter2"), clock()));
    assert_eq!(told, ["anna 7 login --password [hidden]"]);
}

#[test]
fn arguments_may_be_empty_and_cut_ones_have_no_end() {
    assert_eq!(words(b"a\0\0b\0"), ["a", "", "b"]);
    assert_eq!(words(b"a\0b"), ["a", "b"]);
    assert_eq!(words(b""), Vec::<String>::new());
}
