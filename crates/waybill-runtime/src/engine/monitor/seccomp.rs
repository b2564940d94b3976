//! The seccomp filter of containers that ask for none, or for that of the runtime: it denies what processes of a container need to
//! leave it or to change one another, and nothing else (docs/adr/0020).
//!
//! As other runtimes do, a capability that the container was given lifts what belongs to it.

use std::{ffi::c_long, io, ops::RangeInclusive};

use libc::sock_filter;

use crate::engine::sys;

/// Installs the filter for this process and all that descend from it. `capabilities` is the container's bounding set.
pub(super) fn install(capabilities: u64) -> io::Result<()> {
    if ABIS.is_empty() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    sys::install_seccomp_filter(&program(capabilities))
}

/// A system call that is denied.
struct Call {
    native: c_long,
    /// By the 32-bit ABI of the same machine, where that has it.
    compat: Option<u32>,
    denied: Denied,
    /// Capabilities of which one is enough.
    lifted_by: u64,
}

/// When, and how.
#[derive(Clone, Copy)]
enum Denied {
    Always,
    /// As if the kernel did not know the call, so that C libraries use the older one.
    AsUnknown,
    /// If the first argument has one of these bits.
    WithFlags(u32),
    /// If the first argument is one of these.
    Asking([u32; 2]),
}

const SYS_MODULE: u64 = 1 << 16;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;
const NOTHING: u64 = 0;

/// The new namespaces that `clone` can make.
const CLONE_NAMESPACES: u32 = 0x7e02_0000;
/// `unshare` can make one of time besides; for `clone` that bit is part of a signal's number.
const UNSHARE_NAMESPACES: u32 = CLONE_NAMESPACES | 0x80;
const PTRACE_ATTACH: u32 = 16;
const PTRACE_SEIZE: u32 = 0x4206;
/// Linux 6.15; the `libc` crate does not know it yet.
const SYS_OPEN_TREE_ATTR: c_long = 467;

/// With the numbers of i386 and of 32-bit ARM. From 403 on all ABIs have the same.
#[rustfmt::skip]
const CALLS: &[Call] = &[
    // Namespaces, and with them all rights over new ones.
    call(libc::SYS_unshare, [Some(310), Some(337)], Denied::WithFlags(UNSHARE_NAMESPACES), SYS_ADMIN),
    call(libc::SYS_clone, [Some(120), Some(120)], Denied::WithFlags(CLONE_NAMESPACES), SYS_ADMIN),
    // Its flags are in memory, where no filter can look.
    call(libc::SYS_clone3, SAME, Denied::AsUnknown, SYS_ADMIN),
    call(libc::SYS_setns, [Some(346), Some(375)], Denied::Always, SYS_ADMIN),
    // Mounts.
    call(libc::SYS_mount, [Some(21), Some(21)], Denied::Always, SYS_ADMIN),
    call(libc::SYS_umount2, [Some(52), Some(52)], Denied::Always, SYS_ADMIN),
    call(libc::SYS_pivot_root, [Some(217), Some(218)], Denied::Always, SYS_ADMIN),
    call(libc::SYS_fsopen, SAME, Denied::Always, SYS_ADMIN),
    call(libc::SYS_fsconfig, SAME, Denied::Always, SYS_ADMIN),
    call(libc::SYS_fsmount, SAME, Denied::Always, SYS_ADMIN),
    call(libc::SYS_fspick, SAME, Denied::Always, SYS_ADMIN),
    call(libc::SYS_move_mount, SAME, Denied::Always, SYS_ADMIN),
    call(libc::SYS_open_tree, SAME, Denied::Always, SYS_ADMIN),
    call(SYS_OPEN_TREE_ATTR, SAME, Denied::Always, SYS_ADMIN),
    call(libc::SYS_mount_setattr, SAME, Denied::Always, SYS_ADMIN),
    // Other processes. A debugger may still start the program that it debugs.
    call(libc::SYS_ptrace, [Some(26), Some(26)], Denied::Asking([PTRACE_ATTACH, PTRACE_SEIZE]), SYS_PTRACE),
    call(libc::SYS_process_vm_writev, [Some(348), Some(377)], Denied::Always, SYS_PTRACE),
    call(libc::SYS_process_madvise, SAME, Denied::Always, SYS_PTRACE),
    call(libc::SYS_pidfd_getfd, SAME, Denied::Always, SYS_PTRACE),
    // The kernel: keys belong to no container, the rest has been the way into many kernels.
    call(libc::SYS_keyctl, [Some(288), Some(311)], Denied::Always, NOTHING),
    call(libc::SYS_add_key, [Some(286), Some(309)], Denied::Always, NOTHING),
    call(libc::SYS_request_key, [Some(287), Some(310)], Denied::Always, NOTHING),
    call(libc::SYS_io_uring_setup, SAME, Denied::Always, NOTHING),
    call(libc::SYS_io_uring_enter, SAME, Denied::Always, NOTHING),
    call(libc::SYS_io_uring_register, SAME, Denied::Always, NOTHING),
    call(libc::SYS_userfaultfd, [Some(374), Some(388)], Denied::Always, NOTHING),
    call(libc::SYS_kexec_load, [Some(283), Some(347)], Denied::Always, NOTHING),
    call(libc::SYS_kexec_file_load, [None, Some(401)], Denied::Always, NOTHING),
    call(libc::SYS_bpf, [Some(357), Some(386)], Denied::Always, SYS_ADMIN | BPF),
    call(libc::SYS_perf_event_open, [Some(336), Some(364)], Denied::Always, SYS_ADMIN | PERFMON),
    call(libc::SYS_init_module, [Some(128), Some(128)], Denied::Always, SYS_MODULE),
    call(libc::SYS_finit_module, [Some(350), Some(379)], Denied::Always, SYS_MODULE),
    call(libc::SYS_delete_module, [Some(129), Some(129)], Denied::Always, SYS_MODULE),
];

/// The older `umount`, which i386 alone has.
const I386_UMOUNT: u32 = 22;

/// Marks a number that is the same in the native ABI and in the 32-bit one.
const SAME: [Option<u32>; 2] = [Some(u32::MAX); 2];

const fn call(
    native: c_long,
    [i386, arm]: [Option<u32>; 2],
    denied: Denied,
    lifted_by: u64,
) -> Call {
    let compat = if cfg!(target_arch = "x86_64") { i386 } else { arm };
    Call { native, compat, denied, lifted_by }
}

impl Call {
    fn number(&self, abi: Abi) -> Option<u32> {
        let native = u32::try_from(self.native).ok()?;
        match (abi, self.compat) {
            (Abi::Native, _) | (Abi::Compat, Some(u32::MAX)) => Some(native),
            (Abi::Compat, compat) => compat,
        }
    }
}

/// How a process calls the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Abi {
    Native,
    Compat,
}

/// As the kernel names them, `AUDIT_ARCH_*` of `linux/audit.h`. What is not here can call nothing.
#[cfg(target_arch = "x86_64")]
const ABIS: &[(u32, Abi)] = &[(0xc000_003e, Abi::Native), (0x4000_0003, Abi::Compat)];
#[cfg(target_arch = "aarch64")]
const ABIS: &[(u32, Abi)] = &[(0xc000_00b7, Abi::Native), (0x4000_0028, Abi::Compat)];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ABIS: &[(u32, Abi)] = &[];

/// x32, a third ABI of x86-64, has the native name: its numbers have this bit, and kernels before 5.4 also took these without it.
const X32_BIT: u32 = 0x4000_0000;
const X32_ONLY: RangeInclusive<u32> = 512..=547;

/// Where `struct seccomp_data` has the call's number, the ABI, and the lower half of the first argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const FORBIDDEN: u32 = refusal(libc::EPERM);
const UNKNOWN: u32 = refusal(libc::ENOSYS);

/// `SECCOMP_RET_ERRNO`, which the call then returns.
const fn refusal(errno: i32) -> u32 {
    0x0005_0000 | errno.unsigned_abs()
}

fn program(capabilities: u64) -> Vec<sock_filter> {
    let mut program = Backwards::default();
    let verdicts = Verdicts {
        unknown: program.put(RETURN, UNKNOWN),
        forbidden: program.put(RETURN, FORBIDDEN),
        allowed: program.put(RETURN, ALLOW),
    };
    let blocks: Vec<_> = ABIS
        .iter()
        .map(|&(name, abi)| (name, judge(&mut program, &verdicts, rules(abi, capabilities))))
        .collect();
    let start = blocks.into_iter().rfold(verdicts.unknown, |otherwise, (name, block)| {
        program.branch(JUMP_IF_EQUAL, name, block, otherwise)
    });
    program.put_before(LOAD, ARCHITECTURE, start);
    program.finish()
}

/// Where verdicts are given that need no further look.
struct Verdicts {
    allowed: Place,
    forbidden: Place,
    unknown: Place,
}

/// The calls of an ABI that are denied, from the lowest number to the highest.
fn rules(abi: Abi, capabilities: u64) -> Vec<(RangeInclusive<u32>, Denied)> {
    let lifted = |call: &&Call| call.lifted_by & capabilities != 0;
    let calls = CALLS.iter().filter(|call| !lifted(call));
    let mut rules: Vec<_> = calls
        .filter_map(|call| call.number(abi).map(|number| (number..=number, call.denied)))
        .collect();
    if cfg!(target_arch = "x86_64") {
        match abi {
            Abi::Native => {
                rules.push((X32_ONLY, Denied::AsUnknown));
                rules.push((X32_BIT..=u32::MAX, Denied::AsUnknown));
            }
            Abi::Compat if capabilities & SYS_ADMIN == 0 => {
                rules.push((I386_UMOUNT..=I386_UMOUNT, Denied::Always));
            }
            Abi::Compat => {}
        }
    }
    rules.sort_by_key(|(numbers, _)| *numbers.start());
    rules
}

/// Judges calls of one ABI.
///
/// By halving: when a filter is installed the kernel runs it for every number there is, and each session installs one. That takes
/// half as long as with a test for each rule in turn.
fn judge(
    program: &mut Backwards,
    verdicts: &Verdicts,
    rules: Vec<(RangeInclusive<u32>, Denied)>,
) -> Place {
    // Each number up to the next piece has the same verdict.
    let mut pieces = vec![(0, verdicts.allowed)];
    for (numbers, denied) in rules {
        let verdict = verdict(program, verdicts, denied);
        match pieces.last_mut() {
            // The rule before ended where this one begins.
            Some(last) if last.0 == *numbers.start() => last.1 = verdict,
            _ => pieces.push((*numbers.start(), verdict)),
        }
        if let Some(next) = numbers.end().checked_add(1) {
            pieces.push((next, verdicts.allowed));
        }
    }
    pieces.dedup_by_key(|(_, verdict)| *verdict);
    let search = search(program, &pieces);
    program.put_before(LOAD, NUMBER, search)
}

fn search(program: &mut Backwards, pieces: &[(u32, Place)]) -> Place {
    let (below, above) = pieces.split_at(pieces.len() / 2);
    match (below, above) {
        ([], [(_, verdict), ..]) => *verdict,
        (_, [(least, _), ..]) => {
            let (low, high) = (search(program, below), search(program, above));
            program.branch(JUMP_IF_AT_LEAST, *least, high, low)
        }
        // There is always a piece; without one nothing would be known.
        (_, []) => Place(0),
    }
}

fn verdict(program: &mut Backwards, verdicts: &Verdicts, denied: Denied) -> Place {
    let &Verdicts { allowed, forbidden, unknown } = verdicts;
    let on_argument = match denied {
        Denied::Always => return forbidden,
        Denied::AsUnknown => return unknown,
        Denied::WithFlags(flags) => program.branch(JUMP_IF_ANY_BIT, flags, forbidden, allowed),
        Denied::Asking([one, other]) => {
            let second = program.branch(JUMP_IF_EQUAL, other, forbidden, allowed);
            program.branch(JUMP_IF_EQUAL, one, forbidden, second)
        }
    };
    program.put_before(LOAD, FIRST_ARGUMENT, on_argument)
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP_IF_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// A program that is written from its end: jumps lead forward only, so where one leads is there already.
#[derive(Default)]
struct Backwards(Vec<sock_filter>);

/// An instruction, counted from the end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place(usize);

impl Backwards {
    fn put(&mut self, code: u16, k: u32) -> Place {
        self.0.push(sock_filter { code, jt: 0, jf: 0, k });
        Place(self.0.len() - 1)
    }

    /// An instruction after which the program goes on at `next`.
    fn put_before(&mut self, code: u16, k: u32, next: Place) -> Place {
        let distance = self.distance(next);
        if distance > 0 {
            self.put(JUMP, u32::try_from(distance).unwrap_or(u32::MAX));
        }
        self.put(code, k)
    }

    /// A test, and where the program goes on if it holds and if not.
    fn branch(&mut self, code: u16, k: u32, holds: Place, fails: Place) -> Place {
        let [jt, jf] = [holds, fails].map(|to| u8::try_from(self.distance(to)).unwrap_or(u8::MAX));
        self.0.push(sock_filter { code, jt, jf, k });
        Place(self.0.len() - 1)
    }

    fn finish(mut self) -> Vec<sock_filter> {
        self.0.reverse();
        self.0
    }

    /// How many instructions the next one that is written has to skip.
    fn distance(&self, Place(to): Place) -> usize {
        self.0.len() - 1 - to
    }
}

#[cfg(test)]
mod tests;
