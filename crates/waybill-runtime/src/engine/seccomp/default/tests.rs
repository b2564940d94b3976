//! What the profile allows and denies, by the program that the kernel gets.

use super::*;
use crate::engine::seccomp::{
    program::{Instruction, compile},
    tests::{Asked, EDGES, check as check_program, judged},
};

const X86: &[Abi] = &[Abi::X86_64, Abi::I386];
const ARM: &[Abi] = &[Abi::Aarch64, Abi::Arm];
/// A first argument that no rule is about.
const HARMLESS: u64 = 0;
const CLONE_NEWUSER: u64 = 0x1000_0000;
const PTRACE_TRACEME: u64 = 0;

/// What containers of Kubernetes have if they ask for none.
const USUAL: u64 = 0xa804_25fb;

fn programs(capabilities: u64) -> Vec<(Abi, Vec<Instruction>)> {
    let of = |abis: &[Abi]| {
        let program = compile(&policy(abis, capabilities));
        abis.iter().map(|abi| (*abi, program.clone())).collect::<Vec<_>>()
    };
    [of(X86), of(ARM)].concat()
}

/// In each ABI that has the call.
#[track_caller]
fn check(capabilities: u64, name: &str, argument: u64, expected: Action) {
    let call = calls::all().find(|call| call.name == name);
    let call = call.unwrap_or_else(|| panic!("no call is named {name}"));
    for (abi, program) in programs(capabilities) {
        let Some(number) = call.number(abi) else { continue };
        let found = judged(&program, Asked::new(abi, number, argument));
        assert_eq!(found, expected, "{name} of {abi:?} with {argument:#x}");
    }
}

/// Every call of every ABI, with every capability alone.
#[test]
fn programs_do_what_the_lists_say() {
    let single = (0..41).map(|number| 1 << number);
    for capabilities in single.chain([0, USUAL, u64::MAX]) {
        for abis in [X86, ARM] {
            check_program(&policy(abis, capabilities), &EDGES);
        }
    }
}

#[test]
fn every_name_of_the_lists_is_that_of_a_call() {
    let known: BTreeSet<&str> = calls::all().map(|call| call.name).collect();
    let lifted = LIFTED.iter().map(|(_, names)| *names);
    let names: Vec<&str> = lifted
        .chain([ALLOWED, ALLOWED_AS_OF_OLD, AS_UNKNOWN])
        .flat_map(str::split_ascii_whitespace)
        .collect();
    for name in &names {
        assert!(known.contains(name), "{name}");
    }
    let allowed: BTreeSet<&str> = ALLOWED.split_ascii_whitespace().collect();
    assert_eq!(allowed.len(), ALLOWED.split_ascii_whitespace().count(), "a name is there twice");
    for (_, lifted) in LIFTED {
        assert!(lifted.split_ascii_whitespace().all(|name| !allowed.contains(name)), "{lifted}");
    }
}

#[test]
fn new_namespaces_are_denied_and_other_uses_of_the_calls_are_not() {
    for (call, flag) in [("unshare", CLONE_NEWUSER), ("clone", 0x2_0000)] {
        check(0, call, flag, Action::FORBIDDEN);
        check(0, call, flag | 0x1_0000_0000, Action::FORBIDDEN);
        check(0, call, 0x400, Action::ALLOW);
        check(bit(Capability::SysAdmin), call, flag, Action::ALLOW);
    }
    // A signal of a new process is no namespace of time.
    check(0, "clone", 0x80, Action::ALLOW);
    check(0, "unshare", 0x80, Action::FORBIDDEN);
    check(0, "clone3", HARMLESS, Action::UNKNOWN);
    check(bit(Capability::SysAdmin), "clone3", HARMLESS, Action::ALLOW);
}

#[test]
fn other_processes_are_left_alone_and_children_may_be_traced() {
    for request in [PTRACE_ATTACH, PTRACE_SEIZE] {
        check(USUAL, "ptrace", request, Action::FORBIDDEN);
        check(bit(Capability::SysPtrace), "ptrace", request, Action::ALLOW);
    }
    check(0, "ptrace", PTRACE_TRACEME, Action::ALLOW);
    check(0, "process_vm_writev", HARMLESS, Action::FORBIDDEN);
    check(0, "process_vm_readv", HARMLESS, Action::ALLOW);
}

/// The kernel looks at the lower half of the number of a family: a filter that looks at all of it can be led past.
#[test]
fn families_of_sockets_that_break_kernels_are_denied() {
    for family in [AF_ALG, AF_VSOCK, AF_ALG | 1 << 32, AF_VSOCK | 1 << 63] {
        check(u64::MAX, "socket", family, Action::FORBIDDEN);
    }
    // Unix, IPv4, IPv6, netlink, packets, and the one between the two.
    for family in [1, 2, 10, 16, 17, 39] {
        check(0, "socket", family, Action::ALLOW);
    }
}

#[test]
fn a_process_may_have_the_personalities_that_change_little() {
    for persona in PERSONALITIES {
        check(0, "personality", persona, Action::ALLOW);
    }
    // `ADDR_NO_RANDOMIZE`, `READ_IMPLIES_EXEC`.
    for persona in [0x004_0000, 0x040_0000] {
        check(u64::MAX, "personality", persona, Action::FORBIDDEN);
    }
}

/// Through its rings a process makes calls that no filter sees; keys belong to no container; the rest is the machine's.
#[test]
fn some_calls_are_denied_to_all() {
    for name in [
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "keyctl",
        "add_key",
        "request_key",
        "userfaultfd",
        "kexec_load",
        "kexec_file_load",
        "swapon",
        "swapoff",
        "nfsservctl",
        "uselib",
        "vm86",
        "move_pages",
        "migrate_pages",
    ] {
        check(0, name, HARMLESS, Action::FORBIDDEN);
        check(u64::MAX, name, HARMLESS, Action::FORBIDDEN);
    }
}

#[test]
fn a_capability_lifts_its_own_part_and_no_other() {
    for name in [
        "mount",
        "umount",
        "umount2",
        "pivot_root",
        "setns",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "move_mount",
        "open_tree",
        "open_tree_attr",
        "mount_setattr",
        "sethostname",
    ] {
        check(bit(Capability::SysAdmin), name, HARMLESS, Action::ALLOW);
        check(!bit(Capability::SysAdmin), name, HARMLESS, Action::FORBIDDEN);
    }
    check(bit(Capability::SysAdmin), "ptrace", PTRACE_ATTACH, Action::FORBIDDEN);
    for (by, name) in [
        (Capability::Bpf, "bpf"),
        (Capability::Perfmon, "perf_event_open"),
        (Capability::Syslog, "syslog"),
        (Capability::SysModule, "init_module"),
        (Capability::SysPtrace, "pidfd_getfd"),
        (Capability::SysPtrace, "process_madvise"),
        (Capability::DacReadSearch, "open_by_handle_at"),
        (Capability::SysChroot, "chroot"),
        (Capability::SysBoot, "reboot"),
        (Capability::SysNice, "mbind"),
        (Capability::SysTime, "clock_settime"),
    ] {
        let by = bit(by);
        check(by, name, HARMLESS, Action::ALLOW);
        check(!(by | bit(Capability::SysAdmin)), name, HARMLESS, Action::FORBIDDEN);
    }
    // `chroot` is for all that ask for no other capabilities.
    check(USUAL, "chroot", HARMLESS, Action::ALLOW);
}

#[test]
fn ordinary_calls_are_allowed_whatever_their_arguments() {
    for name in [
        "read",
        "execve",
        "openat2",
        "setresuid",
        "futex",
        "mmap",
        "mmap2",
        "clock_gettime64",
        "epoll_pwait2",
        "statx",
        "rseq",
        "memfd_create",
        "set_tls",
        "cacheflush",
        "socketcall",
        "landlock_restrict_self",
        "seccomp",
        "arch_prctl",
        "close_range",
        "waitpid",
    ] {
        check(0, name, u64::MAX, Action::ALLOW);
    }
}

/// C libraries then use what the kernel had before.
#[test]
fn what_nobody_knows_is_answered_as_by_an_older_kernel() {
    for (abi, program) in programs(u64::MAX) {
        let newest = calls::all().filter_map(|call| call.number(abi)).filter(|it| *it < 1000).max();
        for number in [newest.unwrap() + 1, 999, 100_000] {
            assert_eq!(judged(&program, Asked::new(abi, number, 0)), Action::UNKNOWN, "{abi:?}");
        }
    }
    // A gap of x86-64, where a call was put later.
    let program = compile(&policy(X86, u64::MAX));
    for number in [336, 400, 423] {
        assert_eq!(judged(&program, Asked::new(Abi::X86_64, number, 0)), Action::UNKNOWN);
    }
}

#[test]
fn no_other_abi_is_a_way_around() {
    let program = compile(&policy(X86, u64::MAX));
    let x32 = |number: u32| Asked::new(Abi::X86_64, number, PTRACE_ATTACH);
    for number in [0x4000_0000, 0x4000_0000 + 165, 0x4000_0000 + 521, 521, 512, 547] {
        assert_eq!(judged(&program, x32(number)), Action::UNKNOWN, "{number:#x}");
    }
    for foreign in ARM {
        assert_eq!(judged(&program, Asked::new(*foreign, 0, 0)), Action::UNKNOWN);
    }
}

/// Each session has the kernel check, translate and try it.
#[test]
fn the_program_is_short() {
    for capabilities in [0, USUAL, bit(Capability::SysAdmin), u64::MAX] {
        for abis in [X86, ARM] {
            let length = compile(&policy(abis, capabilities)).len();
            assert!(length < 256, "{length} instructions with {capabilities:#x}");
        }
    }
}
