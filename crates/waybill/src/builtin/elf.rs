//! As much of ELF as says whether a program is static: the path of its loader.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

use anyhow::{Context, Result, bail};

/// `PT_INTERP`.
const INTERPRETER: u64 = 3;

/// The loader that a program asks for; `None` if it is static.
pub(super) fn interpreter(program: &[u8]) -> Result<Option<PathBuf>> {
    if program.get(..4) != Some(b"\x7fELF") {
        bail!("this is no program of Linux");
    }
    let file = File { bytes: program, wide: program.get(4) == Some(&2) };
    if program.get(5) != Some(&1) {
        bail!("this program is for a machine of another byte order");
    }
    let (table, size, count) = if file.wide {
        (file.number(32, 8)?, file.number(54, 2)?, file.number(56, 2)?)
    } else {
        (file.number(28, 4)?, file.number(42, 2)?, file.number(44, 2)?)
    };
    for index in 0..count {
        let header =
            index.checked_mul(size).and_then(|it| it.checked_add(table)).context(BROKEN)?;
        if file.number(header, 4)? != INTERPRETER {
            continue;
        }
        let (offset, length) = if file.wide {
            (file.number(header + 8, 8)?, file.number(header + 32, 8)?)
        } else {
            (file.number(header + 4, 4)?, file.number(header + 16, 4)?)
        };
        let path = file.slice(offset, length)?;
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        return Ok(Some(PathBuf::from(OsStr::from_bytes(path))));
    }
    Ok(None)
}

const BROKEN: &str = "this program's headers are broken";

struct File<'a> {
    bytes: &'a [u8],
    /// Whether it is for 64 bits.
    wide: bool,
}

impl File<'_> {
    fn slice(&self, at: u64, length: u64) -> Result<&[u8]> {
        let at = usize::try_from(at).context(BROKEN)?;
        let length = usize::try_from(length).context(BROKEN)?;
        let end = at.checked_add(length).context(BROKEN)?;
        self.bytes.get(at..end).context(BROKEN)
    }

    fn number(&self, at: u64, length: u64) -> Result<u64> {
        let bytes = self.slice(at, length)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header for 64 bits and one program header, of type `kind`, that points at `/lib/ld`.
    fn program(kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64] = kind;
        bytes[64 + 8] = 120;
        bytes[64 + 32] = 8;
        bytes.extend(b"/lib/ld\0");
        bytes
    }

    #[test]
    fn a_dynamic_program_names_its_loader_and_a_static_one_none() {
        assert_eq!(interpreter(&program(3)).unwrap(), Some("/lib/ld".into()));
        assert_eq!(interpreter(&program(1)).unwrap(), None);
    }

    #[test]
    fn what_is_broken_is_refused() {
        let whole = program(3);
        for length in 0..whole.len() {
            assert!(interpreter(&whole[..length]).is_err(), "{length}");
        }
        let mut far = program(3);
        far[64 + 15] = 0xff;
        assert!(interpreter(&far).is_err());
        assert!(interpreter(b"#!/bin/sh\n").is_err());
    }
}
