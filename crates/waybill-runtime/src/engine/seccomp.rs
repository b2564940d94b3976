//! Which system calls the processes of a container may make (docs/adr/0042).
//!
//! A profile, ours or that of a file, becomes a [`policy`]: what happens to each call of each ABI. The policy becomes a program
//! that the kernel runs. All of that is done once, before a container is made; processes that enter it install what is ready.

mod calls;
mod default;
mod file;
mod policy;
mod program;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use self::calls::Abi;
pub(super) use self::program::Instruction;
use super::{EngineError, SeccompProfile, sys};

/// A program for the kernel, and how it is installed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Filter {
    program: Vec<Instruction>,
    flags: u32,
}

/// Speculation need not be slowed down where what is denied depends on nothing secret: `SECCOMP_FILTER_FLAG_SPEC_ALLOW`.
const SPECULATION_ALLOWED: u32 = 1 << 2;

impl Filter {
    /// Has it judge every system call of this process, for ever, and of all that descend from it.
    pub(super) fn install(&self) -> io::Result<()> {
        let program: Vec<_> = self.program.iter().map(Instruction::for_kernel).collect();
        sys::install_seccomp_filter(&program, self.flags)
    }
}

/// Makes filters, and keeps our own for the sets of capabilities that containers have.
#[derive(Debug, Default)]
pub(super) struct Filters {
    kept: Mutex<BTreeMap<u64, Arc<Filter>>>,
}

impl Filters {
    /// Nearly all containers have one of three sets.
    const MOST: usize = 16;

    /// The filter of a container whose bounding set is `capabilities`, if it shall have one.
    pub(super) fn filter(
        &self,
        profile: &SeccompProfile,
        capabilities: u64,
    ) -> Result<Option<Filter>, EngineError> {
        let abis = Abi::of_this_machine();
        if abis.is_empty() && *profile != SeccompProfile::Unconfined {
            return Err(EngineError::Invalid {
                reason: "seccomp profiles are made for x86-64 and ARM64 alone; set seccompProfile.type to Unconfined"
                    .to_owned(),
            });
        }
        match profile {
            SeccompProfile::Unconfined => Ok(None),
            SeccompProfile::RuntimeDefault => Ok(Some(self.of_runtime(abis, capabilities))),
            SeccompProfile::Localhost(path) => match file::filter(path, abis, capabilities) {
                Ok(filter) => Ok(Some(filter)),
                Err(fault) => Err(EngineError::SeccompFile { path: path.clone(), fault }),
            },
        }
    }

    fn of_runtime(&self, abis: &[Abi], capabilities: u64) -> Filter {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(filter) = kept.get(&capabilities) {
            return Filter::clone(filter);
        }
        let program = program::compile(&default::policy(abis, capabilities));
        let filter = Filter { program, flags: SPECULATION_ALLOWED };
        if kept.len() >= Self::MOST {
            kept.clear();
        }
        kept.insert(capabilities, Arc::new(filter.clone()));
        filter
    }
}

/// What is wrong with a profile's file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeccompFault {
    /// The name of the file.
    #[error(
        "the path is not absolute, or leads upwards; name a file below the node's folder of profiles"
    )]
    Path,
    /// The file is not there, or cannot be read.
    #[error("the file cannot be read; put the profile on this node")]
    Read(#[source] io::Error),
    /// A directory, a device or the like.
    #[error("it is no regular file")]
    Kind,
    /// No profile is that long.
    #[error("the file is longer than {} bytes", file::LONGEST)]
    Long,
    /// The file is no JSON, or another one than that of a profile.
    #[error("it is not a seccomp profile in JSON")]
    Json(#[source] serde_json::Error),
    /// A value that nothing knows, or that we cannot carry out.
    #[error("{place}: {reason}")]
    Value {
        /// The field.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernel takes only so many instructions.
    #[error("it becomes {0} instructions, and the kernel takes {most}; name fewer calls with conditions", most = program::MOST)]
    Size(usize),
}

impl SeccompFault {
    fn value(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Value { place: place.into(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;
