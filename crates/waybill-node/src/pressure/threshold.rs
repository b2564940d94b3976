//! What a machine must have left, as a kubelet's `--eviction-hard` says it: `memory.available<100Mi,nodefs.available<10%`.

use std::fmt;

use waybill_core::quantity::Quantity;

/// What is measured, by the names that kubelets have for it. Earlier ones are relieved first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    MemoryAvailable,
    /// The disk of the node's own files: volumes and logs.
    NodefsAvailable,
    NodefsInodesFree,
    /// The disk of images and of what containers write beside their volumes.
    ImagefsAvailable,
    ImagefsInodesFree,
    PidAvailable,
}

const SIGNALS: [(&str, Signal); 6] = [
    ("memory.available", Signal::MemoryAvailable),
    ("nodefs.available", Signal::NodefsAvailable),
    ("nodefs.inodesFree", Signal::NodefsInodesFree),
    ("imagefs.available", Signal::ImagefsAvailable),
    ("imagefs.inodesFree", Signal::ImagefsInodesFree),
    ("pid.available", Signal::PidAvailable),
];

/// A kubelet's, and one for process ids, which a kubelet does not watch by itself.
const DEFAULT: &str = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,\
                       imagefs.available<15%,imagefs.inodesFree<5%,pid.available<5%";

impl Signal {
    /// What people read that there is too little of.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodefsAvailable | Self::ImagefsAvailable => "ephemeral-storage",
            Self::NodefsInodesFree | Self::ImagefsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }

    /// Whether it is measured in bytes; the others are counted.
    pub(crate) fn is_in_bytes(self) -> bool {
        match self {
            Self::MemoryAvailable | Self::NodefsAvailable | Self::ImagefsAvailable => true,
            Self::NodefsInodesFree | Self::ImagefsInodesFree | Self::PidAvailable => false,
        }
    }
}

/// How much must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Least {
    Amount(u64),
    /// Thousandths of a percent of all that there is.
    Share(u64),
}

/// All that must be left of a machine; with less of one of these it is under pressure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionThresholds {
    text: String,
    least: Vec<(Signal, Least)>,
}

/// Why something is not a list of thresholds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    /// There is no `<`, which is what kubelets expect.
    #[error("{0:?} is no threshold; write one as memory.available<100Mi")]
    Shape(String),
    /// Nothing of that name is measured.
    #[error(
        "{0:?} is not measured; there are memory.available, nodefs.available, nodefs.inodesFree, \
             imagefs.available, imagefs.inodesFree and pid.available"
    )]
    Signal(String),
    /// Neither a quantity nor a share.
    #[error(
        "{signal}<{value}: expected more than nothing, as a quantity such as 1Gi or at most 100%"
    )]
    Value {
        /// Of what.
        signal: &'static str,
        /// What it says.
        value: String,
    },
    /// Two values for one.
    #[error("{0} stands there twice")]
    Twice(&'static str),
}

impl EvictionThresholds {
    /// Reads a list as kubelets do: what is not in it is not watched, nor is what has the value `0%` or `100%`.
    pub fn parse(text: &str) -> Result<Self, ThresholdError> {
        let mut least: Vec<(Signal, Least)> = Vec::new();
        for statement in text.split(',').map(str::trim).filter(|statement| !statement.is_empty()) {
            let (name, value) = statement
                .split_once('<')
                .ok_or_else(|| ThresholdError::Shape(statement.to_owned()))?;
            let (name, signal) = SIGNALS
                .into_iter()
                .find(|(known, _)| *known == name.trim())
                .ok_or_else(|| ThresholdError::Signal(name.to_owned()))?;
            if least.iter().any(|(known, _)| *known == signal) {
                return Err(ThresholdError::Twice(name));
            }
            let wrong = || ThresholdError::Value { signal: name, value: value.trim().to_owned() };
            match value.trim() {
                "0%" | "100%" => {}
                value => least.push((signal, Least::parse(value).ok_or_else(wrong)?)),
            }
        }
        least.sort_unstable_by_key(|(signal, _)| *signal);
        Ok(Self { text: text.to_owned(), least })
    }

    /// What must be left of each signal that is watched and of which there are `capacity` in all.
    pub(crate) fn least(&self, signal: Signal, capacity: u64) -> Option<u64> {
        let (_, least) = self.least.iter().find(|(watched, _)| *watched == signal)?;
        Some(match *least {
            Least::Amount(amount) => amount,
            Least::Share(share) => {
                let amount = u128::from(capacity) * u128::from(share) / 100_000;
                u64::try_from(amount).unwrap_or(u64::MAX)
            }
        })
    }
}

impl Default for EvictionThresholds {
    fn default() -> Self {
        Self::parse(DEFAULT).expect("a test reads the list")
    }
}

/// As it was given.
impl fmt::Display for EvictionThresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Least {
    fn parse(text: &str) -> Option<Self> {
        let (number, is_share) = match text.strip_suffix('%') {
            Some(number) => (number, true),
            None => (text, false),
        };
        let quantity = Quantity::parse(number).ok().filter(|it| !it.is_zero())?;
        if !is_share {
            return Some(Self::Amount(u64::try_from(quantity.value()).ok()?));
        }
        let share = u64::try_from(quantity.milli_value()).ok()?;
        (share <= 100_000).then_some(Self::Share(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, signal: Signal, capacity: u64, expected: Option<u64>) {
        let thresholds = EvictionThresholds::parse(text).unwrap();
        assert_eq!(thresholds.least(signal, capacity), expected, "{text}");
    }

    #[test]
    fn the_defaults_are_those_of_kubelets() {
        let default = EvictionThresholds::default();
        for (signal, expected) in [
            (Signal::MemoryAvailable, 100 << 20),
            (Signal::NodefsAvailable, 1000),
            (Signal::NodefsInodesFree, 500),
            (Signal::ImagefsAvailable, 1500),
            (Signal::ImagefsInodesFree, 500),
            (Signal::PidAvailable, 500),
        ] {
            assert_eq!(default.least(signal, 10_000), Some(expected), "{signal:?}");
        }
    }

    #[test]
    fn thresholds_are_amounts_or_shares_and_what_is_not_named_is_not_watched() {
        check("nodefs.available<1Gi", Signal::NodefsAvailable, 7, Some(1 << 30));
        check("nodefs.available<7.5%", Signal::NodefsAvailable, 2000, Some(150));
        check("nodefs.available<1Gi", Signal::MemoryAvailable, 7, None);
        check("nodefs.available<0%, pid.available<100%", Signal::NodefsAvailable, 7, None);
        check("", Signal::MemoryAvailable, 7, None);
    }

    #[test]
    fn what_is_no_threshold_is_refused_by_name() {
        for (text, expected) in [
            (
                "memory.available=1Gi",
                "\"memory.available=1Gi\" is no threshold; write one as memory.available<100Mi",
            ),
            (
                "memory.available<much",
                "memory.available<much: expected more than nothing, as a quantity such as 1Gi or at most 100%",
            ),
            (
                "pid.available<0",
                "pid.available<0: expected more than nothing, as a quantity such as 1Gi or at most 100%",
            ),
            (
                "pid.available<-1%",
                "pid.available<-1%: expected more than nothing, as a quantity such as 1Gi or at most 100%",
            ),
            (
                "pid.available<101%",
                "pid.available<101%: expected more than nothing, as a quantity such as 1Gi or at most 100%",
            ),
            ("pid.available<1%,pid.available<2%", "pid.available stands there twice"),
        ] {
            assert_eq!(EvictionThresholds::parse(text).unwrap_err().to_string(), expected);
        }
        let unknown = EvictionThresholds::parse("disk.free<1%").unwrap_err().to_string();
        assert!(unknown.starts_with("\"disk.free\" is not measured; "), "{unknown}");
    }
}
