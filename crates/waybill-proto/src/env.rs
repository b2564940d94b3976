//! Variables from the wire as core types.

use waybill_core::env::{
    limits::{KernelLimitError, check_kernel_string},
    name::{EnvName, EnvNameError, NameRules},
    value::{EnvValue, EnvValueError},
};

use crate::cri::KeyValue;

/// The variables of a request, in their order. Every value counts as secret, so it is wiped after
/// use; the vectors of the message become that memory.
pub fn variables(pairs: Vec<KeyValue>) -> Result<Vec<(EnvName, EnvValue)>, VariableError> {
    pairs.into_iter().enumerate().map(|(at, pair)| variable(at, pair)).collect()
}

fn variable(at: usize, pair: KeyValue) -> Result<(EnvName, EnvValue), VariableError> {
    let name = EnvName::parse(&pair.key, NameRules::Kernel)
        .map_err(|source| VariableError::Name { at, source })?;
    let value = match EnvValue::secret(pair.value) {
        Ok(value) => value,
        Err(source) => return Err(VariableError::Value { name, source }),
    };
    check_kernel_string(&name, &value)?;
    Ok((name, value))
}

/// Why a pair cannot be a variable. The text holds no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VariableError {
    /// The name is one that no environment can carry.
    #[error("envs[{at}].key")]
    Name {
        /// Position in the request.
        at: usize,
        /// What is wrong with it.
        #[source]
        source: EnvNameError,
    },
    /// The value holds NUL.
    #[error("value of {name}")]
    Value {
        /// Whose value.
        name: EnvName,
        /// What is wrong with it.
        #[source]
        source: EnvValueError,
    },
    /// Name and value together are longer than the kernel takes.
    #[error(transparent)]
    Long(#[from] KernelLimitError),
}

#[cfg(test)]
mod tests {
    use waybill_core::chain::Chain;

    use super::*;

    fn pair(key: &str, value: &[u8]) -> KeyValue {
        KeyValue { key: key.into(), value: value.into() }
    }

    #[track_caller]
    fn refused(pairs: Vec<KeyValue>, expected: &str) {
        assert_eq!(Chain(&variables(pairs).unwrap_err()).to_string(), expected);
    }

    /// EXEC-02: unmodified, whatever the bytes.
    #[test]
    fn every_byte_but_nul_passes_exec_02() {
        let value: Vec<u8> = (1..=u8::MAX).collect();
        let variables = variables(vec![pair("A b:c", &value), pair("EMPTY", b"")]).unwrap();
        assert_eq!(variables[0].0.as_bytes(), b"A b:c");
        assert_eq!(variables[0].1.expose(), value);
        assert!(variables[1].1.is_empty());
    }

    #[test]
    fn what_no_process_can_have_is_refused_by_place_or_name() {
        refused(
            vec![pair("A", b""), pair("", b"x")],
            "envs[1].key: environment variable name must be non-empty",
        );
        refused(
            vec![pair("A=B", b"x")],
            "envs[0].key: an environment variable name cannot contain '=' or NUL",
        );
        refused(
            vec![pair("A", b"x\0")],
            "value of A: an environment variable value cannot contain NUL (found at byte 1)",
        );
        assert!(matches!(
            variables(vec![pair("A", &[b'x'; 200_000])]),
            Err(VariableError::Long(_))
        ));
    }
}
