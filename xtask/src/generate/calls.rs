//! The system calls of Linux by name, with their numbers in the four ABIs that our containers can use.
//!
//! The numbers are those of the kernel's headers, as the crate `linux-raw-sys` has them: a new version of it that knows more
//! calls makes this file stale.

use std::{collections::BTreeMap, fmt::Write, fs};

use anyhow::{Context, Result};

use super::{Generated, MANIFEST};
use crate::{metadata, repository::Repository};

const OUTPUT: &str = "crates/waybill-runtime/src/engine/seccomp/calls.txt";
const SOURCE: &str = "linux-raw-sys";
/// As the source calls them, in the order of the columns.
const ABIS: [&str; 4] = ["x86_64", "x86", "aarch64", "arm"];

type Numbers = [Option<u32>; ABIS.len()];

pub(super) fn generated(repository: &Repository) -> Result<Generated> {
    let (version, folder) = metadata::source_of(repository, MANIFEST, SOURCE)?;
    let mut calls = BTreeMap::new();
    for (column, abi) in ABIS.iter().enumerate() {
        let file = folder.join("src").join(abi).join("general.rs");
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        collect(&mut calls, column, &text);
    }
    Ok(Generated { path: OUTPUT.to_owned(), text: table(&version, &calls) })
}

/// Takes the numbers of one ABI from its constants.
fn collect<'a>(calls: &mut BTreeMap<String, Numbers>, column: usize, text: &'a str) {
    let constants = text.lines().filter_map(|line: &'a str| {
        let (name, value) = line.trim().strip_prefix("pub const __")?.split_once(": u32 = ")?;
        // Some calls of ARM are its own and have numbers apart.
        let name = name.strip_prefix("ARM_").unwrap_or(name).strip_prefix("NR_")?;
        // What is in capitals is a limit or a mask.
        let is_call = !name.contains(|letter: char| letter.is_ascii_uppercase());
        is_call.then_some((name, value.trim_end_matches(';').parse().ok()?))
    });
    for (name, number) in constants {
        if let Some(place) = calls.entry(name.to_owned()).or_default().get_mut(column) {
            *place = Some(number);
        }
    }
}

fn table(version: &str, calls: &BTreeMap<String, Numbers>) -> String {
    let mut table = format!(
        "# Written by `cargo xtask gen` from {SOURCE} {version}; do not edit.\n\
         # name x86_64 i386 aarch64 arm\n"
    );
    for (name, numbers) in calls {
        table.push_str(name);
        for number in numbers {
            // Writing to a string cannot fail.
            let _ = match number {
                Some(number) => write!(table, " {number}"),
                None => write!(table, " -"),
            };
        }
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_taken_from_constants_and_what_is_none_is_not() {
        let mut calls = BTreeMap::new();
        collect(&mut calls, 0, "pub const __NR_read: u32 = 0;\npub const __NR_time: u32 = 201;\n");
        collect(
            &mut calls,
            3,
            "pub const __NR_read: u32 = 3;\npub const __NR_SYSCALL_BASE: u32 = 0;\n\
             pub const __ARM_NR_set_tls: u32 = 983045;\npub const _SC_READ: u32 = 7;\n",
        );
        let text = table("1.0", &calls);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines, ["read 0 - - 3", "set_tls - - - 983045", "time 201 - - -"]);
    }
}
