//! `PodExecOptions`: what the caller of an exec session asks for.
//!
//! The options travel as a query: from the client to the API server under the names of the API, and
//! from there to the node agent under those of the kubelet. Only admission sees them as JSON, and
//! nothing stores them (EXEC-17). Values of variables are bytes that no `Debug` and no error shows.

mod form;
mod json;
mod query;
mod session;
mod validate;

use std::fmt;

use serde_json::Value;
use waybill_core::{id::AuditId, secret::SecretBytes};

pub use self::{
    query::{EnvParams, ExecQueryError, ExecQueryFault, parse_env_params, parse_node_env_params},
    session::{
        ADDED_CONTAINERS_ANNOTATION, SESSION_HEADER, SESSION_KEYS_PATH, SESSION_KINDS_MEMBER,
        SESSION_SECONDS, SessionClaims, SessionKind,
    },
    validate::{ExecEnvRules, validate},
};

/// The variable that carries the audit ID of the request into the session (EXEC-19).
pub const AUDIT_ID_VARIABLE: &str = "KUBERNETES_EXEC_AUDIT_ID";

/// Its value when the request has no audit ID (EXEC-20).
pub const AUDIT_ID_UNKNOWN: &str = "unknown";

/// Names that the API server keeps for itself, whatever their case (EXEC-33, OP-7).
pub const RESERVED_NAMES: &[&str] = &[AUDIT_ID_VARIABLE];

/// The options of one exec session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodExecOptions {
    /// Whether the client sends the standard input.
    pub stdin: bool,
    /// Whether the client wants the standard output.
    pub stdout: bool,
    /// Whether the client wants the standard error.
    pub stderr: bool,
    /// Whether the process gets a terminal.
    pub tty: bool,
    /// The container; empty means the pod's only or default one.
    pub container: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables for this session, in the caller's order.
    pub env: Vec<ExecVar>,
}

/// One variable of a session, as it was sent; [`validate()`] judges it.
pub struct ExecVar {
    name: String,
    value: SecretBytes,
    /// Only JSON can carry it, and no request may use it (OP-5).
    value_from: Option<Value>,
}

impl ExecVar {
    /// A variable with a literal value.
    pub fn new(name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        let value = SecretBytes::from(value.into());
        Self { name: name.into(), value, value_from: None }
    }

    /// What the API server adds: the request's audit ID, or the placeholder if there is none
    /// (EXEC-19, EXEC-20).
    pub fn audit_id(id: Option<&AuditId>) -> Self {
        Self::new(AUDIT_ID_VARIABLE, id.map_or(AUDIT_ID_UNKNOWN, AuditId::as_str))
    }

    /// Parses `NAME=VALUE`, of which a process can be started: the name is not empty, and there is no
    /// NUL. This is the rule of the command line (EXEC-43, EXEC-44) and of the node agent (EXEC-39).
    pub fn parse(assignment: &[u8]) -> Result<Self, ExecVarError> {
        let variable = Self::split(assignment)?;
        if variable.name.is_empty() {
            return Err(ExecVarError::EmptyName);
        }
        if assignment.contains(&0) {
            return Err(ExecVarError::Nul);
        }
        Ok(variable)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value, which may be empty (EXEC-29).
    pub fn value(&self) -> &SecretBytes {
        &self.value
    }

    /// Whether a `valueFrom` was sent; [`validate()`] refuses it (OP-5).
    pub fn has_value_from(&self) -> bool {
        self.value_from.is_some()
    }

    /// Splits `NAME=VALUE` at the first `=` and leaves the rest to [`validate()`] (EXEC-18).
    fn split(assignment: &[u8]) -> Result<Self, ExecVarError> {
        let mut parts = assignment.splitn(2, |byte| *byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            return Err(ExecVarError::NoEquals);
        };
        let name = str::from_utf8(name).map_err(|_| ExecVarError::NameNotText)?;
        Ok(Self::new(name, value))
    }
}

impl Clone for ExecVar {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            value: SecretBytes::copy_of(self.value.expose()),
            value_from: self.value_from.clone(),
        }
    }
}

impl fmt::Debug for ExecVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecVar({:?}, {} bytes)", self.name, self.value.len())
    }
}

impl PartialEq for ExecVar {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.value.constant_time_eq(other.value.expose())
            && self.value_from == other.value_from
    }
}

impl Eq for ExecVar {}

/// Why bytes are not `NAME=VALUE`. The texts follow the name of a parameter or flag and never show a
/// part of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecVarError {
    /// There is no `=`.
    #[error("must have the form NAME=VALUE")]
    NoEquals,
    /// Nothing stands before the `=`.
    #[error("has an empty name")]
    EmptyName,
    /// The name is not text, which CRI demands of it.
    #[error("has a name that is not UTF-8")]
    NameNotText,
    /// NUL ends a string of the environment, so none can contain it.
    #[error("contains a NUL byte")]
    Nul,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(assignment: &[u8], expected: Result<(&str, &[u8]), ExecVarError>) {
        let found = ExecVar::parse(assignment);
        let parts = found.as_ref().map(|variable| (variable.name(), variable.value().expose()));
        assert_eq!(parts.map_err(|error| *error), expected, "{}", assignment.escape_ascii());
    }

    /// EXEC-18, EXEC-43
    #[test]
    fn assignments_split_at_the_first_equals_sign_exec_18_exec_43() {
        check(b"A=b", Ok(("A", b"b")));
        check(b"A=b=c", Ok(("A", b"b=c")));
        check(b"A==", Ok(("A", b"=")));
        check(b"A=", Ok(("A", b"")));
        check(b"A=\xff\n", Ok(("A", b"\xff\n")));
        check("é=1".as_bytes(), Ok(("é", b"1")));
    }

    /// EXEC-39, EXEC-44
    #[test]
    fn bad_assignments_are_refused_exec_39_exec_44() {
        check(b"A", Err(ExecVarError::NoEquals));
        check(b"", Err(ExecVarError::NoEquals));
        check(b"=x", Err(ExecVarError::EmptyName));
        check(b"=", Err(ExecVarError::EmptyName));
        check(b"A\0=x", Err(ExecVarError::Nul));
        check(b"A=x\0", Err(ExecVarError::Nul));
        check(b"\xff=x", Err(ExecVarError::NameNotText));
    }

    /// EXEC-19, EXEC-20
    #[test]
    fn the_audit_variable_is_always_present_exec_19_exec_20() {
        let id = AuditId::parse("5c1e0f2a").unwrap();
        assert_eq!(
            ExecVar::audit_id(Some(&id)),
            ExecVar::new("KUBERNETES_EXEC_AUDIT_ID", "5c1e0f2a")
        );
        assert_eq!(ExecVar::audit_id(None), ExecVar::new("KUBERNETES_EXEC_AUDIT_ID", "unknown"));
    }

    #[test]
    fn variables_are_equal_when_all_their_parts_are() {
        let variable = ExecVar::new("A", "1");
        assert_eq!(variable, variable.clone());
        assert_ne!(variable, ExecVar::new("B", "1"));
        assert_ne!(variable, ExecVar::new("A", "2"));
    }

    #[test]
    fn debug_output_never_shows_a_value() {
        let env = vec![ExecVar::new("TOKEN", "hunter2")];
        let options = PodExecOptions { env, ..PodExecOptions::default() };
        let text = format!("{options:?}");
        assert!(text.contains("ExecVar(\"TOKEN\", 7 bytes)"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
