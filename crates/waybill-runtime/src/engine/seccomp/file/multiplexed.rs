//! Calls that i386 has a second way to: `socketcall` and `ipc` take the number of the call meant as their first argument, and the
//! rest of the arguments of `socketcall` from memory, where no filter can look.
//!
//! A rule about `socket` that said nothing about `socketcall` would be a rule about nothing for half of all 32-bit programs.

use crate::engine::seccomp::{
    calls::Abi,
    policy::{Condition, Rule, Test},
};

/// `linux/net.h`, from 1 on.
const SOCKETCALLS: [&str; 20] = [
    "socket",
    "bind",
    "connect",
    "listen",
    "accept",
    "getsockname",
    "getpeername",
    "socketpair",
    "send",
    "recv",
    "sendto",
    "recvfrom",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "sendmsg",
    "recvmsg",
    "accept4",
    "recvmmsg",
    "sendmmsg",
];
/// `linux/ipc.h`.
const IPC: [(&str, u64); 12] = [
    ("semop", 1),
    ("semget", 2),
    ("semctl", 3),
    ("semtimedop", 4),
    ("msgsnd", 11),
    ("msgrcv", 12),
    ("msgget", 13),
    ("msgctl", 14),
    ("shmat", 21),
    ("shmdt", 22),
    ("shmget", 23),
    ("shmctl", 24),
];

/// The call that a call may also be made by, and its number there.
pub(super) fn call(abi: Abi, name: &str) -> Option<(&'static str, u64)> {
    if abi != Abi::I386 {
        return None;
    }
    let socket = SOCKETCALLS.iter().position(|known| *known == name);
    let socket = socket.and_then(|place| u64::try_from(place + 1).ok());
    let ipc = IPC.iter().find(|(known, _)| *known == name);
    socket.map(|which| ("socketcall", which)).or(ipc.map(|(_, which)| ("ipc", *which)))
}

/// What a rule about the one means for the other. One with conditions is kept if it denies: then it denies whatever the arguments.
pub(super) fn rule(rule: &Rule, which: u64) -> Option<Rule> {
    if !rule.conditions.is_empty() && rule.action.is_permissive() {
        return None;
    }
    // The upper half of the first argument of `ipc` is a version.
    let test = Test::Masked { mask: 0xffff, value: which };
    Some(Rule { conditions: vec![Condition { argument: 0, test }], action: rule.action })
}
