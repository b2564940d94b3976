//! What becomes of each system call, before it is a program.

use std::ops::RangeInclusive;

use super::calls::Abi;

/// What becomes of the calls of each ABI.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) abis: Vec<AbiPolicy>,
    /// Of calls by an ABI that is not among those.
    pub(super) elsewhere: Action,
}

/// What becomes of the calls of one ABI.
#[derive(Debug)]
pub(super) struct AbiPolicy {
    pub(super) abi: Abi,
    /// By number, from the lowest to the highest; no number is in two.
    pub(super) verdicts: Vec<(RangeInclusive<u32>, Verdict)>,
    /// Of every other number.
    pub(super) otherwise: Action,
}

impl AbiPolicy {
    /// With the verdicts in any order. On x86-64 those of x32 are added, unless something covers their numbers.
    pub(super) fn new(
        abi: Abi,
        mut verdicts: Vec<(RangeInclusive<u32>, Verdict)>,
        otherwise: Action,
    ) -> Self {
        if abi == Abi::X86_64 {
            for numbers in [X32_ONLY, X32_BIT..=u32::MAX] {
                let covered = |(other, _): &(RangeInclusive<u32>, Verdict)| {
                    other.contains(numbers.start()) && other.contains(numbers.end())
                };
                if !verdicts.iter().any(covered) {
                    verdicts.push((numbers, Verdict::plain(Action::UNKNOWN)));
                }
            }
        }
        verdicts.sort_by_key(|(numbers, _)| *numbers.start());
        // ARM has a call with two names.
        verdicts.dedup_by(|(one, _), (other, _)| one == other);
        Self { abi, verdicts, otherwise }
    }
}

/// x32, a third ABI of x86-64, has the same name for the kernel: its numbers have this bit, and kernels before 5.4 also took these
/// without it. It gets nothing.
const X32_BIT: u32 = 0x4000_0000;
const X32_ONLY: RangeInclusive<u32> = 512..=547;

/// What becomes of one call: what the first rule says that holds, or else the last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) rules: Vec<Rule>,
    pub(super) otherwise: Action,
}

impl Verdict {
    /// Whatever the arguments are.
    pub(super) fn plain(action: Action) -> Self {
        Self { rules: Vec::new(), otherwise: action }
    }
}

/// An action for calls that fulfil all conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) conditions: Vec<Condition>,
    pub(super) action: Action,
}

/// A look at one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// From 0 to 5.
    pub(super) argument: u8,
    pub(super) test: Test,
}

/// As a number of 64 bits; those of 32-bit ABIs have zeros above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal(u64),
    NotEqual(u64),
    Less(u64),
    LessOrEqual(u64),
    Greater(u64),
    GreaterOrEqual(u64),
    /// The bits of the mask are those of the value.
    Masked {
        mask: u64,
        value: u64,
    },
}

/// What the kernel does with a call: a value of `SECCOMP_RET_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action(pub(super) u32);

impl Action {
    pub(super) const ALLOW: Self = Self(0x7fff_0000);
    pub(super) const LOG: Self = Self(0x7ffc_0000);
    pub(super) const TRAP: Self = Self(0x0003_0000);
    pub(super) const KILL_THREAD: Self = Self(0);
    pub(super) const KILL_PROCESS: Self = Self(0x8000_0000);
    pub(super) const FORBIDDEN: Self = Self::errno(libc::EPERM.unsigned_abs());
    /// As if the kernel did not know the call, so that C libraries use an older one.
    pub(super) const UNKNOWN: Self = Self::errno(libc::ENOSYS.unsigned_abs());

    /// The call returns an error; the kernel takes numbers up to 4095.
    pub(super) const fn errno(errno: u32) -> Self {
        Self(0x0005_0000 | errno)
    }

    /// Whether the call is carried out.
    pub(super) fn is_permissive(self) -> bool {
        self == Self::ALLOW || self == Self::LOG
    }
}
