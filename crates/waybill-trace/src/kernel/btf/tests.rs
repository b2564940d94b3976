//! Type information as a kernel writes it, and as it must not.

use super::*;

const INT: u32 = 1;

/// Writes type information: structures with members, and what they are made of.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Writer {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn int(&mut self) {
        let name = self.name("int");
        self.words(&[name, INT << 24, 4, 32]);
    }

    /// Members are names, numbers of types, and what stands in the word for their place.
    fn structure(&mut self, name: &str, kind: u32, bit_fields: bool, members: &[(&str, u32, u32)]) {
        let name = self.name(name);
        let count = u32::try_from(members.len()).unwrap();
        self.words(&[name, kind << 24 | count | u32::from(bit_fields) << 31, 64]);
        for (member, type_id, place) in members {
            let member = self.name(member);
            self.words(&[member, *type_id, *place]);
        }
    }

    fn finish(&self) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let header = [24, 0, length(&self.types), length(&self.types), length(&self.strings)];
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend(header.iter().flat_map(|word: &u32| word.to_le_bytes()));
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }
}

fn example() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.int();
    writer.structure("", UNION, false, &[("inner", 1, 0), ("other", 1, 32)]);
    writer.structure("task_struct", STRUCT, false, &[("tgid", 1, 64), ("", 2, 128)]);
    writer.structure("bits", STRUCT, true, &[("flag", 1, 1 << 24 | 3), ("whole", 1, 96)]);
    writer.finish()
}

#[test]
fn a_member_is_found_also_within_anonymous_parts() {
    let bytes = example();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset("task_struct", "tgid"), Ok(8));
    assert_eq!(btf.offset("task_struct", "other"), Ok(20));
    assert_eq!(btf.offset("bits", "whole"), Ok(12));
    assert_eq!(btf.size("bits"), Ok(64));
}

#[test]
fn what_is_not_there_or_is_a_part_of_a_byte_is_missing() {
    let bytes = example();
    let btf = Btf::parse(&bytes).unwrap();
    let missing = |structure, member| Err(BtfError::Missing { structure, member });
    assert_eq!(btf.offset("task_struct", "tgi"), missing("task_struct", "tgi"));
    assert_eq!(btf.offset("task_struc", "tgid"), missing("task_struc", "tgid"));
    assert_eq!(btf.offset("bits", "flag"), missing("bits", "flag"));
}

/// A structure that contains itself has no end.
#[test]
fn a_part_that_contains_itself_does_not_hang_us() {
    let mut writer = Writer::new();
    writer.structure("", STRUCT, false, &[("", 1, 0), ("", 2, 0)]);
    writer.structure("", STRUCT, false, &[("", 1, 0), ("", 2, 0)]);
    writer.structure("task_struct", STRUCT, false, &[("", 1, 0)]);
    let bytes = writer.finish();
    assert!(Btf::parse(&bytes).unwrap().offset("task_struct", "tgid").is_err());
}

#[test]
fn whatever_is_cut_or_changed_is_an_error_and_not_a_panic() {
    let bytes = example();
    for length in 0..bytes.len() {
        let _ = Btf::parse(&bytes[..length]).map(|btf| btf.offset("task_struct", "other"));
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _ = Btf::parse(&damaged).map(|btf| btf.offset("task_struct", "other"));
        }
    }
    assert_eq!(Btf::parse(b"").unwrap_err(), BtfError::Header);
}

#[test]
fn the_kernel_of_this_machine_is_understood() {
    // Kernels without it exist; collectors there have other sources.
    let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else { return };
    let btf = Btf::parse(&bytes).unwrap();
    assert!(btf.offset("task_struct", "tgid").unwrap() > 0);
    assert!(btf.offset("mm_struct", "arg_start").unwrap() > 0);
}
