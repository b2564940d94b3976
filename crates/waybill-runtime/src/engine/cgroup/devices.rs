//! Device rules on cgroup v2, which has no controller for them: a program that the kernel runs whenever a process
//! of the cgroup makes or opens a device (eBPF, `BPF_PROG_TYPE_CGROUP_DEVICE`).
//!
//! This module writes the program and does nothing else; [`sys`](crate::engine::sys) hands it to the kernel.
//! Each of reading, writing and making a node is judged by the last rule that names it, and refused if none does.

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

/// One instruction as the kernel reads it: operation, registers, offset of a jump, number.
pub(in crate::engine) type Instruction = [u8; 8];

/// What may be done to devices, as in `linux/bpf.h`.
const MAKE: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 4;
const ALL: u8 = MAKE | READ | WRITE;

/// Kinds of devices, as in `linux/bpf.h`.
const BLOCK: u8 = 1;
const CHARACTER: u8 = 2;

/// What a program can do with the few devices that every container has, whatever its rules say: null, zero, full,
/// random, urandom, tty, console, ptmx and pseudo-terminals.
const COMMON: [(u32, Option<u32>); 9] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(1)),
    (5, Some(2)),
    (136, None),
];

/// The program for these rules and the devices that every container has. Nodes of any device may be made, as on
/// cgroup v1: the node alone gives no access.
pub(in crate::engine) fn program(rules: &[LinuxDeviceCgroup]) -> Vec<Instruction> {
    let nodes = [BLOCK, CHARACTER].map(|kind| Rule {
        allow: true,
        kind: Some(kind),
        major: None,
        minor: None,
        access: MAKE,
    });
    let common = COMMON.map(|(major, minor)| Rule {
        allow: true,
        kind: Some(CHARACTER),
        major: Some(major),
        minor,
        access: ALL,
    });
    let rules = rules.iter().filter_map(Rule::of);
    let mut code = vec![
        load(KIND, 0),
        number(AND, KIND, 0xffff),
        load(ACCESS, 0),
        number(SHIFT_RIGHT, ACCESS, 16),
        load(MAJOR, 4),
        load(MINOR, 8),
    ];
    let all: Vec<Rule> = rules.chain(nodes).chain(common).collect();
    for rule in all.iter().rev() {
        rule.write(&mut code);
        if rule.is_last_word() {
            break;
        }
    }
    code.extend([number(SET, RESULT, 0), EXIT]);
    code
}

/// A rule in the kernel's terms; what is `None` is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    kind: Option<u8>,
    major: Option<u32>,
    minor: Option<u32>,
    access: u8,
}

impl Rule {
    /// `None` for a rule that no device can meet.
    fn of(rule: &LinuxDeviceCgroup) -> Option<Self> {
        let kind = match rule.typ() {
            None | Some(LinuxDeviceType::A) => None,
            Some(LinuxDeviceType::B) => Some(BLOCK),
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(CHARACTER),
            Some(LinuxDeviceType::P) => return None,
        };
        let access = match rule.access() {
            None => ALL,
            Some(letters) => letters.bytes().fold(0, |access, letter| match letter {
                b'r' => access | READ,
                b'w' => access | WRITE,
                b'm' => access | MAKE,
                _ => access,
            }),
        };
        Some(Self {
            allow: rule.allow(),
            kind,
            major: device_number(rule.major())?,
            minor: device_number(rule.minor())?,
            access,
        })
    }

    /// Whether nothing that stands before it matters.
    fn is_last_word(&self) -> bool {
        let anything = self.kind.is_none() && self.major.is_none() && self.minor.is_none();
        anything && self.access == ALL
    }

    /// What is left of the access that is asked for is in [`ACCESS`]: a rule that denies any of it ends the program, one
    /// that allows some takes that away, and ends the program when nothing is left.
    fn write(&self, code: &mut Vec<Instruction>) {
        let conditions =
            [(KIND, self.kind.map(u32::from)), (MAJOR, self.major), (MINOR, self.minor)];
        let verdict = if self.allow {
            let rest = u32::from(ALL & !self.access);
            [number(AND, ACCESS, rest), jump(IF_NOT, ACCESS, 0, 2)].to_vec()
        } else {
            let named = u32::from(self.access);
            [copy(SCRATCH, ACCESS), number(AND, SCRATCH, named), jump(IF, SCRATCH, 0, 2)].to_vec()
        };
        let conditions: Vec<_> = conditions
            .iter()
            .filter_map(|(register, wanted)| Some((*register, (*wanted)?)))
            .collect();
        for (at, (register, wanted)) in conditions.iter().enumerate() {
            // Over the other conditions, the verdict, and the two instructions that end the program.
            let distance = conditions.len() - at - 1 + verdict.len() + 2;
            code.push(jump(IF_NOT, *register, *wanted, u8::try_from(distance).unwrap_or(u8::MAX)));
        }
        code.extend(verdict);
        code.extend([number(SET, RESULT, u32::from(self.allow)), EXIT]);
    }
}

/// `Some(None)` for any; `None` for what is no number of a device.
fn device_number(number: Option<i64>) -> Option<Option<u32>> {
    match number {
        None | Some(-1) => Some(None),
        // The kernel has 12 bits for one and 20 for the other.
        Some(number) => u32::try_from(number).ok().filter(|number| *number < 1 << 20).map(Some),
    }
}

/// Registers: the program gets its context in 1 and answers in 0.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
const SCRATCH: u8 = 6;

/// Operations, with a number unless said otherwise, as in `linux/bpf.h` and `linux/bpf_common.h`.
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const SET: u8 = 0xb7;
const SET_FROM_REGISTER: u8 = 0xbf;
const IF: u8 = 0x15;
const IF_NOT: u8 = 0x55;
const EXIT: Instruction = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// A word of the context: access and kind at 0, then major and minor number.
fn load(register: u8, offset: u8) -> Instruction {
    [LOAD_WORD, CONTEXT << 4 | register, offset, 0, 0, 0, 0, 0]
}

fn copy(register: u8, from: u8) -> Instruction {
    [SET_FROM_REGISTER, from << 4 | register, 0, 0, 0, 0, 0, 0]
}

fn number(operation: u8, register: u8, number: u32) -> Instruction {
    jump(operation, register, number, 0)
}

fn jump(operation: u8, register: u8, number: u32, distance: u8) -> Instruction {
    let [a, b, c, d] = number.to_le_bytes();
    [operation, register, distance, 0, a, b, c, d]
}

#[cfg(test)]
mod tests;
