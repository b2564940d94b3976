//! The filter as the kernel would run it.

use super::*;

/// A first argument that no rule is about.
const HARMLESS: u32 = 0;
const CLONE_NEWUSER: u32 = 0x1000_0000;
const PTRACE_TRACEME: u32 = 0;

/// What the kernel does with the program.
fn judged(program: &[sock_filter], architecture: u32, number: u32, argument: u32) -> u32 {
    let mut loaded = 0;
    let mut at = 0;
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        at += 1;
        match code {
            LOAD if k == ARCHITECTURE => loaded = architecture,
            LOAD if k == NUMBER => loaded = number,
            LOAD if k == FIRST_ARGUMENT => loaded = argument,
            JUMP => at += usize::try_from(k).unwrap(),
            JUMP_IF_EQUAL => at += jump(loaded == k),
            JUMP_IF_AT_LEAST => at += jump(loaded >= k),
            JUMP_IF_ANY_BIT => at += jump(loaded & k != 0),
            RETURN => return k,
            _ => panic!("instruction {code:#x} {k:#x}"),
        }
    }
}

#[track_caller]
fn check(capabilities: u64, (abi, number): (usize, c_long), argument: u32, expected: u32) {
    let number = u32::try_from(number).unwrap();
    let found = judged(&program(capabilities), ABIS[abi].0, number, argument);
    assert_eq!(found, expected, "call {number} of ABI {abi} with {argument:#x}");
}

#[test]
fn new_namespaces_are_denied_and_other_uses_of_the_calls_are_not() {
    for (call, flag) in [(libc::SYS_unshare, CLONE_NEWUSER), (libc::SYS_clone, 0x2_0000)] {
        check(0, (0, call), flag, FORBIDDEN);
        check(0, (0, call), 0x400, ALLOW);
        check(SYS_ADMIN, (0, call), flag, ALLOW);
    }
    // A signal of a new process is no namespace of time.
    check(0, (0, libc::SYS_clone), 0x80, ALLOW);
    check(0, (0, libc::SYS_unshare), 0x80, FORBIDDEN);
    check(0, (0, libc::SYS_clone3), HARMLESS, UNKNOWN);
    check(SYS_ADMIN, (0, libc::SYS_clone3), HARMLESS, ALLOW);
}

#[test]
fn other_processes_are_left_alone_and_children_may_be_traced() {
    for request in [PTRACE_ATTACH, PTRACE_SEIZE] {
        check(0, (0, libc::SYS_ptrace), request, FORBIDDEN);
        check(SYS_PTRACE, (0, libc::SYS_ptrace), request, ALLOW);
    }
    check(0, (0, libc::SYS_ptrace), PTRACE_TRACEME, ALLOW);
    check(0, (0, libc::SYS_process_vm_writev), HARMLESS, FORBIDDEN);
    check(0, (0, libc::SYS_process_vm_readv), HARMLESS, ALLOW);
}

#[test]
fn ordinary_calls_are_allowed() {
    for call in [libc::SYS_read, libc::SYS_execve, libc::SYS_openat2, libc::SYS_setresuid, 1000] {
        check(0, (0, call), u32::MAX, ALLOW);
    }
}

/// As containerd's filter: through its rings a process makes calls that no filter sees.
#[test]
fn rings_of_calls_are_denied_to_all() {
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
    for call in calls {
        for abi in 0..ABIS.len() {
            check(0, (abi, call), HARMLESS, FORBIDDEN);
            check(u64::MAX, (abi, call), HARMLESS, FORBIDDEN);
        }
    }
}

#[test]
fn a_capability_lifts_its_own_part_and_no_other() {
    check(SYS_ADMIN, (0, libc::SYS_mount), HARMLESS, ALLOW);
    check(SYS_ADMIN, (0, libc::SYS_ptrace), PTRACE_ATTACH, FORBIDDEN);
    check(SYS_PTRACE, (0, libc::SYS_mount), HARMLESS, FORBIDDEN);
    check(BPF, (0, libc::SYS_bpf), HARMLESS, ALLOW);
    check(u64::MAX, (0, libc::SYS_keyctl), HARMLESS, FORBIDDEN);
}

#[test]
fn every_row_is_found_by_each_abi() {
    for (abi, (_, kind)) in ABIS.iter().enumerate() {
        for call in CALLS {
            let Some(number) = call.number(*kind) else { continue };
            let (argument, expected) = match call.denied {
                Denied::Always => (HARMLESS, FORBIDDEN),
                Denied::AsUnknown => (HARMLESS, UNKNOWN),
                Denied::WithFlags(flags) => (flags, FORBIDDEN),
                Denied::Asking([_, other]) => (other, FORBIDDEN),
            };
            check(0, (abi, c_long::from(number)), argument, expected);
        }
    }
}

/// The search by halving finds what a look at each rule in turn finds.
#[test]
fn every_number_is_judged_by_its_own_rule_and_no_other() {
    for capabilities in [0, SYS_ADMIN, SYS_PTRACE, BPF | PERFMON | SYS_MODULE, u64::MAX] {
        let program = program(capabilities);
        for &(name, abi) in ABIS {
            let rules = rules(abi, capabilities);
            for number in (0..1000).chain([X32_BIT - 1, X32_BIT, u32::MAX]) {
                let rule = rules.iter().find(|(numbers, _)| numbers.contains(&number));
                let expected = match rule.map(|(_, denied)| denied) {
                    None | Some(Denied::WithFlags(_) | Denied::Asking(_)) => ALLOW,
                    Some(Denied::Always) => FORBIDDEN,
                    Some(Denied::AsUnknown) => UNKNOWN,
                };
                let found = judged(&program, name, number, HARMLESS);
                assert_eq!(found, expected, "call {number} of ABI {name:#x}");
            }
        }
    }
}

#[test]
fn no_other_abi_is_a_way_around() {
    // s390, which no process here can be.
    assert_eq!(judged(&program(0), 0x16, 21, HARMLESS), UNKNOWN);
    if cfg!(target_arch = "x86_64") {
        let x32 = c_long::from(X32_BIT);
        check(u64::MAX, (0, x32 + libc::SYS_mount), HARMLESS, UNKNOWN);
        check(u64::MAX, (0, x32 + 521), PTRACE_ATTACH, UNKNOWN);
        check(u64::MAX, (0, 521), PTRACE_ATTACH, UNKNOWN);
        check(u64::MAX, (0, 511), HARMLESS, ALLOW);
        check(u64::MAX, (0, 548), HARMLESS, ALLOW);
        check(0, (1, c_long::from(I386_UMOUNT)), HARMLESS, FORBIDDEN);
    }
}

/// Each of the two ways on from a test is told by one byte.
#[test]
fn no_jump_is_too_far_to_be_told() {
    assert!(program(0).len() < 256);
}
