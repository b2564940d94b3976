//! Environments as blocks of bytes: `NAME=value` and a NUL for each variable, as they lie before `execve` and
//! as they travel between our processes. Every block is wiped when it is dropped.

use waybill_core::{
    env::{
        merge::{EnvVar, Environment, Tier},
        name::{EnvName, NameRules},
        origin::Origin,
        value::EnvValue,
    },
    id::AuditId,
};
use zeroize::Zeroizing;

/// A wiped block of strings.
pub(super) type Block = Zeroizing<Vec<u8>>;

/// Puts strings and variables one after the other.
pub(super) fn block_of(strings: &[Vec<u8>], variables: &[&[(EnvName, EnvValue)]]) -> Block {
    let variables = || variables.iter().copied().flatten();
    // The right size from the start, so that no copy is left behind by growth.
    let size = strings.iter().map(|string| string.len() + 1).sum::<usize>()
        + variables().map(|(name, value)| name.as_bytes().len() + value.len() + 2).sum::<usize>();
    let mut block = Zeroizing::new(Vec::with_capacity(size));
    for string in strings {
        block.extend_from_slice(string);
        block.push(0);
    }
    for (name, value) in variables() {
        push(&mut block, name, value);
    }
    block
}

/// The environment of an exec session: what the runtime adds, over what the caller asked for, over the container's own
/// (EXEC-04, EXEC-05, EXEC-06). `None` if a string is no variable.
pub(super) fn merge<'a>(
    baseline: &[u8],
    caller: impl Iterator<Item = &'a [u8]>,
    runtime: impl Iterator<Item = &'a [u8]>,
) -> Option<Block> {
    let mut environment = Environment::new();
    for string in strings(baseline) {
        environment.set(Tier::Baseline, variable(string, Origin::Literal)?);
    }
    for string in caller {
        environment.set(Tier::Caller, variable(string, Origin::Caller)?);
    }
    for string in runtime {
        environment.set(Tier::Runtime, variable(string, Origin::Runtime)?);
    }
    let size = environment
        .iter()
        .map(|entry| entry.name().as_bytes().len() + entry.value().len() + 2)
        .sum();
    let mut block = Zeroizing::new(Vec::with_capacity(size));
    for entry in environment.iter() {
        push(&mut block, entry.name(), entry.value());
    }
    Some(block)
}

/// The audit ID that the API server put among the caller's variables.
pub(super) fn audit_id(caller: &[(EnvName, EnvValue)]) -> Option<AuditId> {
    let name = AUDIT_ID_VARIABLE.as_bytes();
    let (_, value) = caller.iter().rev().find(|(other, _)| other.as_bytes() == name)?;
    AuditId::parse(str::from_utf8(value.expose()).ok()?).ok()
}

/// By which the API server tells a session who asked for it (KEP-6035).
const AUDIT_ID_VARIABLE: &str = "KUBERNETES_EXEC_AUDIT_ID";

/// The strings of a block, without their NUL.
pub(super) fn strings(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    block.split_inclusive(|&byte| byte == 0).filter_map(|string| string.strip_suffix(&[0]))
}

/// The first `count` strings of a block, and what follows them. `None` if there are fewer.
pub(super) fn split(block: &[u8], count: usize) -> Option<(&[u8], &[u8])> {
    let mut end = 0_usize;
    for string in block.split_inclusive(|&byte| byte == 0).take(count) {
        end = end.saturating_add(string.strip_suffix(&[0])?.len()).saturating_add(1);
    }
    let (first, rest) = block.split_at_checked(end)?;
    (strings(first).count() == count).then_some((first, rest))
}

/// The value of a variable in a block.
pub(super) fn value_of<'a>(block: &'a [u8], name: &str) -> Option<&'a [u8]> {
    strings(block).find_map(|string| string.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The name of a variable.
pub(super) fn name_of(string: &[u8]) -> Option<EnvName> {
    let end = string.iter().position(|&byte| byte == b'=')?;
    EnvName::parse_bytes(string.get(..end)?, NameRules::Kernel).ok()
}

fn variable(string: &[u8], origin: Origin) -> Option<EnvVar> {
    let name = name_of(string)?;
    let value = string.get(name.as_bytes().len() + 1..)?;
    Some(EnvVar { name, value: EnvValue::secret(value.to_vec()).ok()?, origin })
}

fn push(block: &mut Block, name: &EnvName, value: &EnvValue) {
    block.extend_from_slice(name.as_bytes());
    block.push(b'=');
    block.extend_from_slice(value.expose());
    block.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(EnvName, EnvValue)> {
        pairs
            .iter()
            .map(|(name, value)| {
                let name = EnvName::parse(name, NameRules::Kernel).unwrap();
                (name, EnvValue::plain(value.as_bytes()).unwrap())
            })
            .collect()
    }

    fn merged(baseline: &str, caller: &[&str], runtime: &[&str]) -> String {
        let caller = caller.iter().map(|string| string.as_bytes());
        let runtime = runtime.iter().map(|string| string.as_bytes());
        let block = merge(baseline.as_bytes(), caller, runtime).unwrap();
        String::from_utf8(block.to_vec()).unwrap()
    }

    #[test]
    fn blocks_hold_strings_and_then_variables() {
        let (first, second) = (variables(&[("A", "1"), ("B", "")]), variables(&[("C", "x=y")]));
        let block = block_of(&[b"ls".to_vec(), Vec::new()], &[&first, &second]);
        assert_eq!(*block, b"ls\0\0A=1\0B=\0C=x=y\0");
        assert_eq!(block.len(), block.capacity());
        assert_eq!(value_of(&block, "C"), Some(&b"x=y"[..]));
        assert_eq!(value_of(&block, "l"), None);
    }

    /// EXEC-04, EXEC-05, EXEC-06, EXEC-07
    #[test]
    fn the_runtime_wins_over_the_caller_and_the_caller_over_the_container() {
        let env = merged("A=a\0B=b\0", &["B=1", "C=1", "B=2", "D="], &["C=runtime"]);
        assert_eq!(env, "A=a\0B=2\0C=runtime\0D=\0");
    }

    /// EXEC-03, EXEC-09
    #[test]
    fn nothing_is_expanded_and_nothing_asked_changes_nothing() {
        assert_eq!(merged("A=$(B)\0B=${A}\0", &[], &[]), "A=$(B)\0B=${A}\0");
        assert_eq!(merged("FOO=bar\0", &["BAZ=$FOO"], &[]), "FOO=bar\0BAZ=$FOO\0");
    }

    #[test]
    fn a_block_is_split_after_its_first_strings() {
        let block = b"ls\0\0A=1\0";
        assert_eq!(split(block, 2), Some((&b"ls\0\0"[..], &b"A=1\0"[..])));
        assert_eq!(split(block, 0), Some((&b""[..], &block[..])));
        assert_eq!(split(block, 3), Some((&block[..], &b""[..])));
        assert_eq!(split(block, 4), None);
        assert_eq!(split(b"ls", 1), None);
    }

    #[test]
    fn a_string_that_is_no_variable_is_refused() {
        assert!(merge(b"NONE\0", [].into_iter(), [].into_iter()).is_none());
        assert!(merge(b"=x\0", [].into_iter(), [].into_iter()).is_none());
    }
}
