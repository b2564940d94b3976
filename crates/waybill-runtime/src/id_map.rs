//! Which ids of the machine stand for those in a pod's user namespace.
//!
//! A pod has one range of users and the same range of groups; root in the pod is the first of them. No range holds root of the
//! machine. Which of the others a pod may have is for its node to say: ours gives none below 65536.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How many ids a range has at least: programs expect all that sixteen bits can say, and 65534 is nobody.
pub(crate) const UNIT: u32 = 65536;

/// A user namespace of a pod that exists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct UserNamespace {
    /// The file that keeps it.
    pub(crate) pin: PathBuf,
    pub(crate) map: IdMap,
}

/// One range of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct IdMap {
    first: u32,
    length: u32,
}

/// Why a range is none that a pod can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdMapError {
    /// Programs need ids that it would not have.
    #[error("a length of {length} is too short; give at least {UNIT} ids")]
    Length {
        /// The length that was asked for.
        length: u32,
    },
    /// The machine's root is in it.
    #[error("root of the machine is among its ids; begin at host_id 65536 or above")]
    Machine,
    /// Some of it does not exist.
    #[error("there are no {length} ids from {first} on")]
    TooHigh {
        /// The first id.
        first: u32,
        /// How many were asked for.
        length: u32,
    },
}

impl IdMap {
    /// The range of `length` ids of the machine that begins with `first`.
    pub fn parse(first: u32, length: u32) -> Result<Self, IdMapError> {
        if length < UNIT {
            return Err(IdMapError::Length { length });
        }
        if first == 0 {
            return Err(IdMapError::Machine);
        }
        // The last number of all means "no id".
        if first.checked_add(length).is_none() {
            return Err(IdMapError::TooHigh { first, length });
        }
        Ok(Self { first, length })
    }

    /// What the machine calls root of the pod.
    pub fn root(self) -> u32 {
        self.first
    }

    /// What the machine calls an id of the pod; `None` for one that the pod does not have.
    pub fn on_the_machine(self, id: u32) -> Option<u32> {
        (id < self.length).then(|| self.first + id)
    }

    /// How many ids it has.
    pub fn length(self) -> u32 {
        self.length
    }

    /// As `/proc/<pid>/uid_map` takes it.
    pub(crate) fn line(self) -> String {
        format!("0 {} {}\n", self.first, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_range_has_root_of_the_machine() {
        assert_eq!(IdMap::parse(0, UNIT), Err(IdMapError::Machine));
        assert!(IdMap::parse(UNIT, UNIT).is_ok());
        // As upstream's validation suite has it.
        assert!(IdMap::parse(1000, 100_000).is_ok());
    }

    #[test]
    fn a_range_has_all_ids_of_sixteen_bits() {
        for length in [0, 1, 1000, 65535] {
            assert_eq!(IdMap::parse(UNIT, length), Err(IdMapError::Length { length }));
        }
    }

    #[test]
    fn a_range_ends_before_the_number_that_means_no_id() {
        let last = u32::MAX - UNIT;
        assert!(IdMap::parse(last, UNIT).is_ok());
        assert!(IdMap::parse(last + 1, UNIT).is_err());
        assert!(IdMap::parse(UNIT, u32::MAX - UNIT + 1).is_err());
    }

    #[test]
    fn ids_are_moved_by_the_first_and_others_are_not_there() {
        let map = IdMap::parse(131_072, UNIT).unwrap();
        assert_eq!(map.root(), 131_072);
        assert_eq!(map.on_the_machine(65_535), Some(196_607));
        assert_eq!(map.on_the_machine(65_536), None);
        assert_eq!(map.line(), "0 131072 65536\n");
    }
}
