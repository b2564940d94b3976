//! Which definition of a variable wins, and who had to give way.
//!
//! An [`Environment`] holds one entry per name. Between tiers the higher [`Tier`] wins, inside a
//! tier the later definition; a name keeps the place where it first appeared. So the result does not
//! depend on how layers are grouped (the laws are tested in `tests/it/merge_laws.rs`), and an exec
//! session without variables of its own sees the container's environment in its own order.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry as Slot};

use super::{
    expand::{ExpandError, expand},
    limits::{KERNEL_STRING_BYTES, KernelLimitError, kernel_bytes},
    name::EnvName,
    origin::Origin,
    value::{EnvValue, EnvValueError},
};

/// A variable on its way into an environment.
#[derive(Debug)]
pub struct EnvVar {
    /// What it is called.
    pub name: EnvName,
    /// What it is set to.
    pub value: EnvValue,
    /// Who set it.
    pub origin: Origin,
}

/// Who speaks, from the weakest to the strongest (EXEC-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// What the container was created with: image, then `envFrom`, then `env`.
    Baseline,
    /// What the caller of an exec session asked for.
    Caller,
    /// What the API server adds to an exec session.
    ApiServer,
    /// What the node adds.
    Node,
    /// What the container runtime adds for its own needs.
    Runtime,
}

/// The variables of one process, each name once.
#[derive(Debug, Default)]
pub struct Environment {
    entries: Vec<Entry>,
    /// Positions in `entries`, found by the name's hash.
    positions: HashTable<usize>,
    hasher: DefaultHashBuilder,
    shadowed: Vec<Shadowed>,
}

/// The definition that won, with the tier it spoke from.
#[derive(Debug)]
pub struct Entry {
    var: EnvVar,
    tier: Tier,
}

/// A definition that lost. Its value is gone; who made it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadowed {
    name: EnvName,
    tier: Tier,
    origin: Origin,
}

impl Environment {
    /// An environment without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Defines `vars` in their order, all speaking from `tier`.
    pub fn extend(&mut self, tier: Tier, vars: impl IntoIterator<Item = EnvVar>) {
        let vars = vars.into_iter();
        self.reserve(vars.size_hint().0);
        vars.for_each(|var| self.set(tier, var));
    }

    /// Defines everything that `other` holds, each variable speaking from the tier it has there.
    pub fn absorb(&mut self, other: Self) {
        self.reserve(other.entries.len());
        other.entries.into_iter().for_each(|Entry { var, tier }| self.set(tier, var));
        self.shadowed.extend(other.shadowed);
    }

    /// Defines one variable, unless a higher tier has done so already.
    pub fn set(&mut self, tier: Tier, var: EnvVar) {
        let hash = self.hasher.hash_one(var.name.as_bytes());
        let entries = &mut self.entries;
        let same = |&at: &usize| entries.get(at).is_some_and(|entry| entry.var.name == var.name);
        let rehash = |&at: &usize| {
            self.hasher.hash_one(entries.get(at).map_or(&[][..], |entry| entry.var.name.as_bytes()))
        };
        let at = match self.positions.entry(hash, same, rehash) {
            Slot::Occupied(slot) => *slot.get(),
            Slot::Vacant(slot) => {
                slot.insert(entries.len());
                entries.push(Entry { var, tier });
                return;
            }
        };
        let Some(entry) = entries.get_mut(at) else { return };
        let mut loser = Entry { var, tier };
        if tier >= entry.tier {
            core::mem::swap(entry, &mut loser);
        }
        let Entry { var: EnvVar { name, origin, .. }, tier } = loser;
        self.shadowed.push(Shadowed { name, tier, origin });
    }

    /// Defines a variable of the pod whose value may refer to earlier ones as `$(NAME)` (OP-38). One that
    /// the kernel would not take is not built.
    pub fn set_expanded(
        &mut self,
        name: EnvName,
        template: &[u8],
        origin: Origin,
    ) -> Result<(), SetError> {
        let room = KERNEL_STRING_BYTES.saturating_sub(name.as_bytes().len().saturating_add(1));
        let value = match expand(template, |name| self.get(name).map(Entry::value), room) {
            Err(ExpandError::TooLong { length, .. }) => {
                return Err(KernelLimitError::new(name, length).into());
            }
            Err(ExpandError::Value(error)) => return Err(error.into()),
            Ok(value) => value,
        };
        self.set(Tier::Baseline, EnvVar { name, value, origin });
        Ok(())
    }

    /// The entry called `name`, compared byte for byte (NAME-14).
    pub fn get(&self, name: &[u8]) -> Option<&Entry> {
        let hash = self.hasher.hash_one(name);
        let same = |&at: &usize| {
            self.entries.get(at).is_some_and(|entry| entry.var.name.as_bytes() == name)
        };
        self.positions.find(hash, same).and_then(|&at| self.entries.get(at))
    }

    /// All entries, in the order in which their names first appeared.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// All definitions that lost, in the order in which they did.
    pub fn shadowed(&self) -> impl ExactSizeIterator<Item = &Shadowed> {
        self.shadowed.iter()
    }

    /// The winners as variables, to pass them on as one flat list (OP-6).
    pub fn into_vars(self) -> impl ExactSizeIterator<Item = EnvVar> {
        self.entries.into_iter().map(|entry| entry.var)
    }

    /// The number of variables.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What the kernel counts for all of them when a program is executed (see `KERNEL_TOTAL_BYTES`).
    pub fn kernel_bytes(&self) -> usize {
        self.entries.iter().map(Entry::kernel_bytes).fold(0, usize::saturating_add)
    }

    fn reserve(&mut self, additional: usize) {
        self.entries.reserve(additional);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.positions.reserve(additional, |&at| {
            hasher.hash_one(entries.get(at).map_or(&[][..], |entry| entry.var.name.as_bytes()))
        });
    }
}

impl Entry {
    /// What it is called.
    pub fn name(&self) -> &EnvName {
        &self.var.name
    }

    /// What it is set to.
    pub fn value(&self) -> &EnvValue {
        &self.var.value
    }

    /// Who set it.
    pub fn origin(&self) -> &Origin {
        &self.var.origin
    }

    /// The tier that set it.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// What the kernel counts for `NAME=value`.
    pub fn kernel_bytes(&self) -> usize {
        let name = self.var.name.as_bytes().len().saturating_add(1);
        kernel_bytes(name.saturating_add(self.var.value.len()))
    }
}

/// Why a variable with references cannot be defined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// It would be longer than the kernel takes.
    #[error(transparent)]
    Long(#[from] KernelLimitError),
    /// What it expands to cannot be a value.
    #[error(transparent)]
    Value(#[from] EnvValueError),
}

impl Shadowed {
    /// The variable that somebody else has set.
    pub fn name(&self) -> &EnvName {
        &self.name
    }

    /// Who lost.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The tier that lost.
    pub fn tier(&self) -> Tier {
        self.tier
    }
}
