//! What the programs decide, by an interpreter of our own, and once by the kernel.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use oci_spec::runtime::LinuxDeviceCgroupBuilder;
use proptest::prelude::*;

use super::*;
use crate::engine::{
    cgroup::{Cgroup, Hierarchies},
    sys,
};

/// What the kernel asks a program.
#[derive(Clone, Copy, Debug)]
struct Question {
    kind: u8,
    access: u8,
    major: u32,
    minor: u32,
}

/// Runs a program as the kernel would; fails on whatever its verifier would refuse.
fn answer(program: &[Instruction], question: Question) -> bool {
    let context = [
        u32::from(question.access) << 16 | u32::from(question.kind),
        question.major,
        question.minor,
    ];
    let mut registers = [None; 7];
    let mut at = 0;
    loop {
        let [operation, names, distance, zero, a, b, c, d] = program[at];
        assert_eq!(zero, 0);
        let (to, from) = (usize::from(names & 15), usize::from(names >> 4));
        let number = u64::from(u32::from_le_bytes([a, b, c, d]));
        at += 1;
        match operation {
            LOAD_WORD => {
                assert_eq!(from, usize::from(CONTEXT));
                registers[to] = Some(u64::from(context[usize::from(distance / 4)]));
            }
            AND => registers[to] = Some(registers[to].unwrap() & number),
            SHIFT_RIGHT => registers[to] = Some(registers[to].unwrap() >> number),
            SET => registers[to] = Some(number),
            SET_FROM_REGISTER => registers[to] = registers[from],
            IF if registers[to].unwrap() == number => at += usize::from(distance),
            IF_NOT if registers[to].unwrap() != number => at += usize::from(distance),
            IF | IF_NOT => {}
            0x95 => return registers[0].unwrap() == 1,
            unknown => panic!("operation {unknown:x}"),
        }
    }
}

fn rule(
    allow: bool,
    kind: LinuxDeviceType,
    major: Option<i64>,
    minor: Option<i64>,
    access: &str,
) -> LinuxDeviceCgroup {
    let mut rule =
        LinuxDeviceCgroupBuilder::default().allow(allow).typ(kind).access(access).build().unwrap();
    rule.set_major(major).set_minor(minor);
    rule
}

fn deny_all() -> LinuxDeviceCgroup {
    rule(false, LinuxDeviceType::A, None, None, "rwm")
}

#[track_caller]
fn check(
    rules: &[LinuxDeviceCgroup],
    (kind, major, minor): (u8, u32, u32),
    access: u8,
    expected: bool,
) {
    let question = Question { kind, access, major, minor };
    assert_eq!(answer(&program(rules), question), expected, "{question:?}");
}

#[test]
fn common_devices_work_and_others_do_not() {
    for rules in [&[][..], &[deny_all()]] {
        check(rules, (CHARACTER, 1, 3), READ | WRITE, true);
        check(rules, (CHARACTER, 136, 77), READ | WRITE, true);
        check(rules, (CHARACTER, 1, 1), READ, false);
        check(rules, (BLOCK, 1, 3), READ, false);
        check(rules, (BLOCK, 8, 0), WRITE, false);
        check(rules, (BLOCK, 8, 0), MAKE, true);
        check(rules, (BLOCK, 8, 0), MAKE | READ, false);
    }
}

#[test]
fn a_device_is_open_for_what_is_allowed() {
    let rules = [deny_all(), rule(true, LinuxDeviceType::B, Some(8), Some(1), "r")];
    check(&rules, (BLOCK, 8, 1), READ, true);
    check(&rules, (BLOCK, 8, 1), READ | WRITE, false);
    check(&rules, (CHARACTER, 8, 1), READ, false);
    check(&rules, (BLOCK, 8, 2), READ, false);
    let rules = [deny_all(), rule(true, LinuxDeviceType::C, Some(10), Some(-1), "rw")];
    check(&rules, (CHARACTER, 10, 229), READ | WRITE, true);
}

#[test]
fn rights_may_come_from_several_rules_and_the_last_one_wins() {
    let read = rule(true, LinuxDeviceType::C, Some(10), Some(1), "r");
    let write = rule(true, LinuxDeviceType::C, Some(10), None, "w");
    let deny = rule(false, LinuxDeviceType::C, Some(10), Some(1), "w");
    check(&[read.clone(), write.clone()], (CHARACTER, 10, 1), READ | WRITE, true);
    let rules = [read, write, deny];
    check(&rules, (CHARACTER, 10, 1), READ | WRITE, false);
    check(&rules, (CHARACTER, 10, 1), READ, true);
    check(&rules, (CHARACTER, 10, 2), WRITE, true);
}

#[test]
fn a_privileged_container_may_use_everything() {
    let rules = [deny_all(), rule(true, LinuxDeviceType::A, None, None, "rwm")];
    check(&rules, (BLOCK, 8, 0), ALL, true);
    check(&rules, (CHARACTER, 1, 1), READ, true);
}

#[test]
fn what_no_device_can_be_allows_and_denies_nothing() {
    let pipe = rule(true, LinuxDeviceType::P, None, None, "rwm");
    let large = rule(true, LinuxDeviceType::B, Some(i64::MAX), None, "rwm");
    check(&[pipe, large], (BLOCK, 8, 0), READ, false);
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let number = || prop::option::of(0_u32..3);
    (any::<bool>(), prop::option::of(1_u8..3), number(), number(), 0..=ALL)
        .prop_map(|(allow, kind, major, minor, access)| Rule { allow, kind, major, minor, access })
}

fn oci(one: &Rule) -> LinuxDeviceCgroup {
    let kind = match one.kind {
        None => LinuxDeviceType::A,
        Some(BLOCK) => LinuxDeviceType::B,
        Some(_) => LinuxDeviceType::C,
    };
    let letters = [(READ, 'r'), (WRITE, 'w'), (MAKE, 'm')];
    let access: String =
        letters.iter().filter(|(bit, _)| one.access & bit != 0).map(|(_, letter)| letter).collect();
    rule(one.allow, kind, one.major.map(i64::from), one.minor.map(i64::from), &access)
}

proptest! {
    /// Majors stay below those of the common devices that are asked for here.
    #[test]
    fn each_right_is_judged_by_the_last_rule_that_names_it(
        rules in prop::collection::vec(any_rule(), 0..6),
        kind in 1_u8..3, access in 1..=ALL, major in 0_u32..3, minor in 0_u32..3,
    ) {
        let allowed = |right: u8| {
            let names = |rule: &&Rule| {
                rule.access & right != 0
                    && rule.kind.is_none_or(|it| it == kind)
                    && rule.major.is_none_or(|it| it == major)
                    && rule.minor.is_none_or(|it| it == minor)
            };
            right == MAKE || rules.iter().rev().find(names).is_some_and(|rule| rule.allow)
        };
        let expected = [MAKE, READ, WRITE].iter().all(|right| access & right == 0 || allowed(*right));
        let given: Vec<_> = rules.iter().map(oci).collect();
        let program = program(&given);
        prop_assert_eq!(answer(&program, Question { kind, access, major, minor }), expected);
    }
}

/// Runs a script in a cgroup, which it enters itself.
fn run_in(cgroup: &Path, script: &str) -> Output {
    let script = format!("echo 0 > {}/cgroup.procs && {script}", cgroup.display());
    Command::new("sh").args(["-c", &script]).output().unwrap()
}

#[test]
fn the_kernel_takes_the_program_and_follows_it() {
    let Ok(hierarchies) = Hierarchies::detect() else {
        return eprintln!("SKIPPED: there is no cgroup v2");
    };
    if !rustix::process::geteuid().is_root() || !sys::can_guard_devices() {
        return eprintln!("SKIPPED: this kernel takes no device programs from us");
    }
    let name = format!("/waybill-devices-test-{}", std::process::id());
    let cgroup = Cgroup::new(&hierarchies, Path::new(&name)).unwrap();
    fs::create_dir(cgroup.directory()).unwrap();
    let rules = [deny_all(), rule(true, LinuxDeviceType::C, Some(1), Some(11), "r")];
    cgroup.guard_devices(&rules).unwrap();
    let below = cgroup.directory().join("exec-1");
    fs::create_dir(&below).unwrap();
    let nodes = tempfile::tempdir().unwrap();
    let node = |name: &str| nodes.path().join(name).display().to_string();
    for directory in [&cgroup.directory(), &below] {
        let check = |script: &str, expected: bool| {
            let output = run_in(directory, script);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.success(), expected, "{script}: {said}");
            assert!(expected || said.contains("not permitted"), "{script}: {said}");
        };
        check("echo > /dev/null && head -c 1 /dev/zero", true);
        let (memory, log) = (node("memory"), node("log"));
        check(&format!("mknod {memory} c 1 1 && mknod {log} c 1 11"), true);
        check(&format!("head -c 1 {memory}"), false);
        check(&format!("true < {log}"), true);
        check(&format!("true > {log}"), false);
        check(&format!("rm {memory} {log}"), true);
    }
    fs::remove_dir(&below).unwrap();
    fs::remove_dir(cgroup.directory()).unwrap();
}
