//! What the kernel tells about its own structures (BPF Type Format): where a member of a structure stands.
//!
//! A program for one kernel would read nonsense on another, so the places are looked up in `/sys/kernel/btf/vmlinux` when the
//! program is written. Pure; nothing in the text of the format is believed before it is checked.

use std::collections::BTreeSet;

/// Why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It does not begin as one.
    #[error("this is no type information of a kernel that we can read")]
    Header,
    /// It ends early, or has a kind of type that we do not know.
    #[error("the type information is damaged, or newer than we know, at type {type_id}")]
    Type {
        /// The number of the type.
        type_id: u32,
    },
    /// This kernel has it elsewhere or not at all.
    #[error("this kernel has no {structure}.{member}")]
    Missing {
        /// The structure.
        structure: &'static str,
        /// Its member.
        member: &'static str,
    },
}

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const UNION: u32 = 5;

/// How deep anonymous structures are looked into.
const DEPTH: u32 = 16;

/// The types of a kernel.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each type begins; the first is number 1.
    starts: Vec<u32>,
}

/// The first words of a type.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    members: u32,
    /// Whether offsets of members share their word with the size of a bit field.
    has_bit_fields: bool,
    size: u32,
    /// Where what follows begins.
    rest: usize,
}

impl<'a> Btf<'a> {
    /// Reads where each type begins.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let word = |at: usize| read_u32(bytes, at).map(|word| word as usize);
        let header = || {
            let magic = u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?);
            let part = |offset: usize, length: usize| {
                let begin = word(4)?.checked_add(word(offset)?)?;
                bytes.get(begin..begin.checked_add(word(length)?)?)
            };
            let parts = (part(8, 12)?, part(16, 20)?);
            (magic == MAGIC && bytes.get(2) == Some(&1)).then_some(parts)
        };
        let (types, strings) = header().ok_or(BtfError::Header)?;
        let mut btf = Self { types, strings, starts: Vec::new() };
        let mut at = 0;
        while at < types.len() {
            let damaged = BtfError::Type { type_id: btf.count() + 1 };
            btf.starts.push(u32::try_from(at).map_err(|_| damaged.clone())?);
            let one = btf.read(at).ok_or(damaged.clone())?;
            at = one.rest.checked_add(extra(one).ok_or(damaged.clone())?).ok_or(damaged)?;
        }
        Ok(btf)
    }

    /// Where a member stands in its structure, in bytes. Members of anonymous structures within count as its own.
    pub fn offset(&self, structure: &'static str, member: &'static str) -> Result<u32, BtfError> {
        let found = self.structures(structure).find_map(|it| self.find(it, member, DEPTH));
        found.ok_or(BtfError::Missing { structure, member })
    }

    /// How large a structure is, in bytes.
    pub fn size(&self, structure: &'static str) -> Result<u32, BtfError> {
        let found = self.structures(structure).map(|it| it.size).find(|size| *size > 0);
        found.ok_or(BtfError::Missing { structure, member: "size" })
    }

    fn count(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }

    fn structures(&self, name: &str) -> impl Iterator<Item = Type> {
        let all = self.starts.iter().filter_map(|at| self.read(*at as usize));
        all.filter(move |it| it.kind == STRUCT && self.is_called(it.name, name))
    }

    /// In bytes, unless it is a bit field.
    fn find(&self, structure: Type, member: &str, depth: u32) -> Option<u32> {
        let mut seen = BTreeSet::new();
        for index in 0..structure.members as usize {
            let at = structure.rest + index * 12;
            let (name, type_id, place) = (self.word(at)?, self.word(at + 4)?, self.word(at + 8)?);
            let (bits, width) = if structure.has_bit_fields {
                (place & 0xff_ffff, place >> 24)
            } else {
                (place, 0)
            };
            if self.is_called(name, member) {
                return (width == 0 && bits % 8 == 0).then_some(bits / 8);
            }
            // Each kind of part is looked into once, so that damage cannot make this long.
            if self.is_called(name, "") && depth > 0 && seen.insert(type_id) {
                let within = self.type_of(type_id).filter(|it| [STRUCT, UNION].contains(&it.kind));
                let within = within.and_then(|it| self.find(it, member, depth - 1));
                if let Some(further) = within {
                    return (bits / 8).checked_add(further);
                }
            }
        }
        None
    }

    fn type_of(&self, type_id: u32) -> Option<Type> {
        self.read(*self.starts.get(type_id.checked_sub(1)? as usize)? as usize)
    }

    fn read(&self, at: usize) -> Option<Type> {
        let (name, info, size) = (self.word(at)?, self.word(at + 4)?, self.word(at + 8)?);
        Some(Type {
            name,
            kind: info >> 24 & 0x1f,
            members: info & 0xffff,
            has_bit_fields: info >> 31 == 1,
            size,
            rest: at + 12,
        })
    }

    fn word(&self, at: usize) -> Option<u32> {
        read_u32(self.types, at)
    }

    fn is_called(&self, name: u32, wanted: &str) -> bool {
        let rest = self.strings.get(name as usize..).unwrap_or_default();
        rest.get(wanted.len()) == Some(&0) && rest.starts_with(wanted.as_bytes())
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// How many bytes follow the first words of a type; nothing for a kind that is not known.
fn extra(of: Type) -> Option<usize> {
    let members = of.members as usize;
    Some(match of.kind {
        // Pointers, forward declarations, typedefs, volatile, const, restrict, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Enumerations, prototypes.
        6 | 13 => members * 8,
        // Structures, unions, sections of data, enumerations of 64 bits.
        4 | 5 | 15 | 19 => members * 12,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
