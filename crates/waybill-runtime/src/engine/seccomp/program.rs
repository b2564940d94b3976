//! A policy as a program for the kernel: classic BPF over `struct seccomp_data`.
//!
//! When a filter is installed the kernel runs it for every number there is, to know those that are always allowed, and each
//! session installs one. So numbers are looked up by halving, and what is the same for many is written once.

use libc::sock_filter;
use serde::{Deserialize, Serialize};

use super::policy::{AbiPolicy, Action, Condition, Policy, Rule, Test, Verdict};

/// How many instructions the kernel takes: `BPF_MAXINSNS`.
pub(super) const MOST: usize = 4096;

/// Where `struct seccomp_data` has the call's number, the ABI, and the first argument.
pub(super) const NUMBER: u32 = 0;
pub(super) const ARCHITECTURE: u32 = 4;
pub(super) const ARGUMENTS: u32 = 16;

pub(super) const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
pub(super) const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(super) const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
pub(super) const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
pub(super) const JUMP_IF_GREATER: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
pub(super) const JUMP_IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
pub(super) const JUMP_IF_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
pub(super) const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// An instruction: its code, where it goes on if a test holds and if not, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(in crate::engine) struct Instruction(
    pub(super) u16,
    pub(super) u8,
    pub(super) u8,
    pub(super) u32,
);

impl Instruction {
    pub(super) fn for_kernel(&self) -> sock_filter {
        let &Self(code, jt, jf, k) = self;
        sock_filter { code, jt, jf, k }
    }
}

/// The program of a policy. It may be longer than the kernel takes.
pub(super) fn compile(policy: &Policy) -> Vec<Instruction> {
    let mut program = Backwards::default();
    let elsewhere = program.action(policy.elsewhere);
    let blocks: Vec<_> = policy.abis.iter().map(|abi| (abi.abi, program.abi(abi))).collect();
    let start = blocks.into_iter().rfold(elsewhere, |otherwise, (abi, block)| {
        program.branch(JUMP_IF_EQUAL, abi.kernel_name(), block, otherwise)
    });
    program.put_before(LOAD, ARCHITECTURE, start);
    program.finish()
}

/// A program that is written from its end: jumps lead forward only, so where one leads is there already.
#[derive(Default)]
struct Backwards {
    written: Vec<Instruction>,
    /// Where verdicts are given, so that those of several calls are written once.
    verdicts: Vec<(Verdict, Place)>,
    /// Where pieces are looked up: the verdict of the first, the others, and the place. From number 424 on all ABIs are the same.
    searches: Vec<(Place, Pieces, Place)>,
    /// Places that were too far away to branch to, and the last jump that leads there.
    stations: Vec<(Place, Place)>,
}

/// From which number on there is which verdict.
type Pieces = Vec<(u32, Place)>;

/// An instruction, counted from the end.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place(usize);

impl Backwards {
    fn finish(mut self) -> Vec<Instruction> {
        self.written.reverse();
        self.written
    }

    /// Judges calls of one ABI.
    fn abi(&mut self, policy: &AbiPolicy) -> Place {
        let otherwise = self.action(policy.otherwise);
        // Each number up to the next piece has the same verdict.
        let mut pieces = vec![(0, otherwise)];
        for (numbers, verdict) in &policy.verdicts {
            let place = self.verdict(verdict);
            match pieces.last_mut() {
                // The one before ended where this one begins.
                Some(last) if last.0 == *numbers.start() => last.1 = place,
                _ => pieces.push((*numbers.start(), place)),
            }
            if let Some(next) = numbers.end().checked_add(1) {
                pieces.push((next, otherwise));
            }
        }
        pieces.dedup_by_key(|(_, verdict)| *verdict);
        let search = self.search(&pieces);
        self.put_before(LOAD, NUMBER, search)
    }

    /// Finds the piece that a number is in. Each question halves the numbers, not the pieces, since each number is asked for once.
    fn search(&mut self, pieces: &[(u32, Place)]) -> Place {
        let [(start, verdict), further @ ..] = pieces else {
            // There is always a piece; without one nothing would be known.
            return Place(0);
        };
        let Some((end, _)) = further.last() else { return *verdict };
        let known =
            |(first, rest, _): &&(Place, Pieces, Place)| first == verdict && rest == further;
        if let Some((_, _, place)) = self.searches.iter().find(known) {
            return *place;
        }
        let half = start.midpoint(*end);
        let nearest = further.iter().map(|(least, _)| least.abs_diff(half)).enumerate();
        let middle = nearest.min_by_key(|(_, far)| *far).map_or(0, |(at, _)| at);
        let (below, above) = pieces.split_at(middle + 1);
        let least = above.first().map_or(*end, |(least, _)| *least);
        let (low, high) = (self.search(below), self.search(above));
        let place = self.branch(JUMP_IF_AT_LEAST, least, high, low);
        self.searches.push((*verdict, further.to_vec(), place));
        place
    }

    fn action(&mut self, action: Action) -> Place {
        self.verdict(&Verdict::plain(action))
    }

    fn verdict(&mut self, verdict: &Verdict) -> Place {
        if let Some((_, place)) = self.verdicts.iter().find(|(known, _)| known == verdict) {
            return *place;
        }
        let place = if verdict.rules.is_empty() {
            self.put(Instruction(RETURN, 0, 0, verdict.otherwise.0))
        } else {
            let otherwise = self.action(verdict.otherwise);
            verdict.rules.iter().rfold(otherwise, |next, rule| self.rule(rule, next))
        };
        self.verdicts.push((verdict.clone(), place));
        place
    }

    fn rule(&mut self, rule: &Rule, next: Place) -> Place {
        let action = self.action(rule.action);
        rule.conditions
            .iter()
            .rfold(action, |holds, condition| self.condition(*condition, holds, next))
    }

    fn condition(
        &mut self,
        Condition { argument, test }: Condition,
        holds: Place,
        fails: Place,
    ) -> Place {
        let at = ARGUMENTS + 8 * u32::from(argument);
        match test {
            Test::Equal(value) => self.masked(at, (u64::MAX, value), holds, fails),
            Test::NotEqual(value) => self.masked(at, (u64::MAX, value), fails, holds),
            Test::Masked { mask, value } => self.masked(at, (mask, value), holds, fails),
            Test::Greater(value) => self.above(at, JUMP_IF_GREATER, value, holds, fails),
            Test::LessOrEqual(value) => self.above(at, JUMP_IF_GREATER, value, fails, holds),
            Test::GreaterOrEqual(value) => self.above(at, JUMP_IF_AT_LEAST, value, holds, fails),
            Test::Less(value) => self.above(at, JUMP_IF_AT_LEAST, value, fails, holds),
        }
    }

    fn masked(&mut self, at: u32, (mask, value): (u64, u64), holds: Place, fails: Place) -> Place {
        let ((low_mask, high_mask), (low, high)) = (halves(mask), halves(value));
        let then = self.masked_half(at + LOW, (low_mask, low), holds, fails);
        self.masked_half(at + HIGH, (high_mask, high), then, fails)
    }

    fn masked_half(
        &mut self,
        at: u32,
        (mask, value): (u32, u32),
        holds: Place,
        fails: Place,
    ) -> Place {
        let test = match (mask, value) {
            (0, 0) => return holds,
            (_, 0) => self.branch(JUMP_IF_ANY_BIT, mask, fails, holds),
            (u32::MAX, _) => self.branch(JUMP_IF_EQUAL, value, holds, fails),
            _ => {
                let equal = self.branch(JUMP_IF_EQUAL, value, holds, fails);
                self.put_before(AND, mask, equal)
            }
        };
        self.put_before(LOAD, at, test)
    }

    /// Whether an argument is above a value, by a test for its lower half.
    fn above(&mut self, at: u32, test: u16, value: u64, holds: Place, fails: Place) -> Place {
        let (low, high) = halves(value);
        let low = self.branch(test, low, holds, fails);
        let low = self.put_before(LOAD, at + LOW, low);
        let equal = self.branch(JUMP_IF_EQUAL, high, low, fails);
        let greater = self.branch(JUMP_IF_GREATER, high, holds, equal);
        self.put_before(LOAD, at + HIGH, greater)
    }

    fn put(&mut self, instruction: Instruction) -> Place {
        self.written.push(instruction);
        Place(self.written.len() - 1)
    }

    /// An instruction after which the program goes on at `next`.
    fn put_before(&mut self, code: u16, k: u32, next: Place) -> Place {
        if self.distance(next) > 0 {
            self.jump(next);
        }
        self.put(Instruction(code, 0, 0, k))
    }

    fn jump(&mut self, to: Place) -> Place {
        let distance = u32::try_from(self.distance(to)).unwrap_or(u32::MAX);
        self.put(Instruction(JUMP, 0, 0, distance))
    }

    /// A test, and where the program goes on if it holds and if not.
    fn branch(&mut self, code: u16, k: u32, holds: Place, fails: Place) -> Place {
        let (holds, fails) = (self.near(holds), self.near(fails));
        let [jt, jf] = [holds, fails].map(|to| u8::try_from(self.distance(to)).unwrap_or(u8::MAX));
        self.put(Instruction(code, jt, jf, k))
    }

    /// The place itself, or a jump to it: how far a test leads is told by one byte.
    fn near(&mut self, to: Place) -> Place {
        // A jump for the other way of the same test may still come between.
        let reach = usize::from(u8::MAX) - 1;
        if self.distance(to) <= reach {
            return to;
        }
        let known = self.stations.iter().find(|(end, _)| *end == to).map(|(_, station)| *station);
        if let Some(station) = known.filter(|station| self.distance(*station) <= reach) {
            return station;
        }
        let station = self.jump(to);
        self.stations.retain(|(end, _)| *end != to);
        self.stations.push((to, station));
        station
    }

    /// How many instructions the next one that is written has to skip.
    fn distance(&self, Place(to): Place) -> usize {
        self.written.len() - 1 - to
    }
}

/// Where the halves of an argument are.
const LOW: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };
const HIGH: u32 = 4 - LOW;

/// The lower and the upper half.
fn halves(value: u64) -> (u32, u32) {
    let bytes = value.to_le_bytes();
    let [a, b, c, d, e, f, g, h] = bytes;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}
