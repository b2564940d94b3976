//! What our programs in the kernel tell.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use waybill_trace::{Ebpf, ExecEvent, ExitEvent, KernelEvent};

use crate::cgroup::Tree;

/// Events come at once; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that is told of a cgroup until `enough` says so.
fn gather(
    ebpf: &mut Ebpf,
    cgroup: u64,
    enough: impl Fn(&[ExecEvent], &[ExitEvent]) -> bool,
) -> (Vec<ExecEvent>, Vec<ExitEvent>) {
    let (mut execs, mut exits) = (Vec::new(), Vec::new());
    let mut pids = HashSet::new();
    let begin = Instant::now();
    while !enough(&execs, &exits) {
        assert!(begin.elapsed() < PATIENCE, "only {execs:?} and {exits:?}");
        ebpf.drain(|event| match event {
            KernelEvent::Exec(event) if event.cgroups.contains(&cgroup) => {
                pids.insert(event.pid);
                execs.push(*event);
            }
            KernelEvent::Exit(event) if pids.contains(&event.pid) => exits.push(event),
            _ => {}
        });
        std::thread::yield_now();
    }
    (execs, exits)
}

fn words(event: &ExecEvent) -> Vec<String> {
    let words = event.arguments.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn a_program_is_told_with_arguments_parent_and_end() {
    let Some(tree) = Tree::new() else { return };
    let mut ebpf = Ebpf::load().unwrap();
    let shell =
        Tree::run(&tree.session(), "(/bin/sh -c 'exit 3'; :); /bin/sh -c 'kill -9 $$'; true");
    let session = Tree::id(&tree.session());
    let (execs, exits) = gather(&mut ebpf, session, |_, exits| exits.len() == 2);
    assert_eq!(words(&execs[0]), ["/bin/sh", "-c", "exit 3"]);
    assert_eq!(execs[0].program, b"/bin/sh");
    assert!(!execs[0].is_cut && execs[0].uid == 0);
    assert_eq!(execs[0].cgroups[0], session);
    assert!(execs[0].above.contains(&shell), "a subshell is between them: {:?}", execs[0]);
    assert_eq!(execs[1].parent.pid, shell);
    assert_eq!(execs[1].parent.cgroup, session);
    assert!(execs[1].parent.began > 0 && execs[1].parent.began <= execs[1].began);
    assert_eq!(execs[1].pid_namespace, execs[1].parent.pid_namespace);
    let told: Vec<_> = exits.iter().map(|exit| (exit.pid, exit.code(), exit.signal())).collect();
    assert_eq!(told, [(execs[0].pid, Some(3), None), (execs[1].pid, None, Some(9))]);
    assert_eq!(exits[0].began, execs[0].began);
    assert_eq!(ebpf.lost().unwrap(), 0);
}

#[test]
fn long_arguments_are_cut_and_that_is_told() {
    let Some(tree) = Tree::new() else { return };
    let mut ebpf = Ebpf::load().unwrap();
    let script = format!("/bin/true short {} end; true", "x".repeat(100_000));
    Tree::run(&tree.session(), &script);
    let session = Tree::id(&tree.session());
    let (execs, _) = gather(&mut ebpf, session, |execs, _| execs.len() == 1);
    assert!(execs[0].is_cut);
    assert_eq!(execs[0].arguments.len(), 4096);
    assert_eq!(execs[0].program, b"/bin/true");
}

#[test]
fn what_is_in_no_container_is_not_told_nor_what_is_ignored() {
    let Some(tree) = Tree::new() else { return };
    let mut ebpf = Ebpf::load().unwrap();
    ebpf.ignore(Tree::id(&tree.processes())).unwrap();
    std::process::Command::new("/bin/true").arg("elsewhere").status().unwrap();
    Tree::run(&tree.processes(), "/bin/true ignored; true");
    ebpf.forget_ignored(Tree::id(&tree.processes())).unwrap();
    Tree::run(&tree.processes(), "/bin/true wanted; true");
    let mut told = Vec::new();
    let begin = Instant::now();
    while !told.iter().any(|words: &Vec<String>| words.contains(&"wanted".to_owned())) {
        assert!(begin.elapsed() < PATIENCE);
        ebpf.drain(|event| {
            if let KernelEvent::Exec(event) = event {
                told.push(words(&event));
            }
        });
    }
    let all = told.concat();
    assert!(
        !all.contains(&"elsewhere".to_owned()) && !all.contains(&"ignored".to_owned()),
        "{all:?}"
    );
}
