//! Sizes that a variable, a file or a request may have, in bytes.

use super::{name::EnvName, value::EnvValue};

/// Longest `NAME=value` that Linux takes: `MAX_ARG_STRLEN` less the closing NUL (OP-3).
pub const KERNEL_STRING_BYTES: usize = 131_071;

/// Most bytes of all arguments and variables of a program together that Linux takes, however large the
/// stack may grow: three quarters of `_STK_LIM`. Each string counts as [`kernel_bytes`] says.
pub const KERNEL_TOTAL_BYTES: usize = 6 << 20;

/// Longest path that Linux takes: `PATH_MAX` less the closing NUL.
pub const KERNEL_PATH_BYTES: usize = 4095;

/// Most entries in `PodExecOptions.env` (EXEC-31).
pub const EXEC_ENTRIES: usize = 256;

/// Most bytes over all names and values of `PodExecOptions.env` (EXEC-32, OP-8).
pub const EXEC_BYTES: usize = 32_768;

/// Longest env file (FILE-36).
pub const FILE_BYTES: usize = 65_536;

/// Longest name in an env file, and longest `fileKeyRef.key` (FILE-06, FILE-35).
pub const FILE_NAME_BYTES: usize = 128;

/// Longest value in an env file (FILE-36).
pub const FILE_VALUE_BYTES: usize = 32_768;

/// What a string of `length` bytes counts in the kernel's sum: with its NUL and the pointer to it.
pub const fn kernel_bytes(length: usize) -> usize {
    length.saturating_add(1 + size_of::<u64>())
}

/// Checks that the kernel will take `name=value` as one string of an environment.
pub fn check_kernel_string(name: &EnvName, value: &EnvValue) -> Result<(), KernelLimitError> {
    let length = name.as_bytes().len() + 1 + value.len();
    if length > KERNEL_STRING_BYTES {
        return Err(KernelLimitError { name: name.clone(), length });
    }
    Ok(())
}

/// A variable that `execve` would refuse with a bare `E2BIG`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "environment variable {name} takes {length} bytes as NAME=value, at most \
     {KERNEL_STRING_BYTES} are possible on Linux"
)]
pub struct KernelLimitError {
    name: EnvName,
    length: usize,
}

impl KernelLimitError {
    /// For a value of that length.
    pub(super) fn new(name: EnvName, value: usize) -> Self {
        let length = name.as_bytes().len().saturating_add(1).saturating_add(value);
        Self { name, length }
    }
}

#[cfg(test)]
mod tests {
    use std::{string::ToString, vec};

    use super::*;
    use crate::env::name::NameRules;

    /// OP-3, NAME-13: a clear error one byte above the kernel's limit, none at it.
    #[test]
    fn the_kernel_limit_counts_name_equals_sign_and_value_name_13() {
        let name = EnvName::parse("BIG", NameRules::Strict).unwrap();
        let value = |length| EnvValue::plain(vec![b'x'; length]).unwrap();
        assert_eq!(check_kernel_string(&name, &value(131_067)), Ok(()));
        assert_eq!(
            check_kernel_string(&name, &value(131_068)).unwrap_err().to_string(),
            "environment variable BIG takes 131072 bytes as NAME=value, at most 131071 are \
             possible on Linux"
        );
    }
}
