//! Which variables a caller may send.
//!
//! The rules are those of a container's `env` where they apply. Nothing is repaired or dropped: a
//! request with a fault is refused with all its faults (EXEC-34). Which variables are dangerous is
//! not decided here; `PATH` and `LD_PRELOAD` pass, and RBAC and admission decide (EXEC-35).

use std::collections::HashSet;

use waybill_core::env::{
    limits::{EXEC_BYTES, EXEC_ENTRIES},
    name::{EnvNameError, NameRules},
    value::EnvValueError,
};

use super::{ExecVar, PodExecOptions, RESERVED_NAMES};
use crate::field::{ErrorList, FieldError, FieldPath};

/// What the feature gates make of `env` in a caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecEnvRules {
    /// `ExecEnvVar` is off.
    Disabled,
    /// `ExecEnvVar` is on.
    Enabled {
        /// Relaxed or strict, as for the containers of a pod (OP-7).
        names: NameRules,
    },
}

/// Everything that is wrong with the variables of a request (EXEC-25, EXEC-27 to EXEC-35).
///
/// The API server's own variables are no part of `options`, so they count for nothing (EXEC-32).
pub fn validate(options: &PodExecOptions, rules: ExecEnvRules) -> ErrorList {
    let names = match rules {
        ExecEnvRules::Disabled if options.env.is_empty() => return ErrorList::new(),
        ExecEnvRules::Disabled => return vec![FieldError::forbidden(env_path(), GATE_OFF)],
        ExecEnvRules::Enabled { names } => names,
    };
    let mut errors = list_faults(&options.env);
    let mut seen = HashSet::new();
    for (index, variable) in options.env.iter().enumerate() {
        let path = env_path().index(index);
        let name = variable.name();
        errors.extend(name_faults(name, names, &path.child("name")));
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(path.child("name"), name));
        }
        errors.extend(value_fault(variable, path.child("value")));
        if variable.has_value_from() {
            errors.push(FieldError::forbidden(path.child("valueFrom"), LITERALS_ONLY));
        }
    }
    errors
}

/// The text of OP-10.
const GATE_OFF: &str = "ExecEnvVar feature gate is not enabled";

const LITERALS_ONLY: &str = "may not be used in exec requests, only literal values";

/// Stands in errors where Kubernetes would print the value.
const VALUE_HIDDEN: &str = "<value hidden>";

fn env_path() -> FieldPath {
    FieldPath::new("env")
}

/// The limits of the list as a whole.
fn list_faults(env: &[ExecVar]) -> ErrorList {
    let mut errors = ErrorList::new();
    if env.len() > EXEC_ENTRIES {
        errors.push(FieldError::too_many(env_path(), env.len(), EXEC_ENTRIES));
    }
    let bytes: usize =
        env.iter().map(|variable| variable.name().len() + variable.value().len()).sum();
    if bytes > EXEC_BYTES {
        errors.push(FieldError::too_long(env_path(), EXEC_BYTES));
    }
    errors
}

fn name_faults(name: &str, rules: NameRules, path: &FieldPath) -> ErrorList {
    let mut errors: ErrorList = rules
        .faults(name.as_bytes())
        .into_iter()
        .map(|fault| match fault {
            EnvNameError::Empty => FieldError::required(path.clone(), ""),
            fault => FieldError::invalid(path.clone(), name, fault.to_string()),
        })
        .collect();
    let reserved = RESERVED_NAMES.iter().find(|reserved| reserved.eq_ignore_ascii_case(name));
    errors.extend(reserved.map(|reserved| {
        FieldError::forbidden(path.clone(), format!("{reserved} is reserved by the API server"))
    }));
    errors
}

fn value_fault(variable: &ExecVar, path: FieldPath) -> Option<FieldError> {
    let at = variable.value().expose().iter().position(|byte| *byte == 0)?;
    let fault = EnvValueError::Nul { at };
    Some(FieldError::invalid(path, VALUE_HIDDEN, fault.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RELAXED: ExecEnvRules = ExecEnvRules::Enabled { names: NameRules::Relaxed };
    const STRICT: ExecEnvRules = ExecEnvRules::Enabled { names: NameRules::Strict };

    fn options(env: Vec<ExecVar>) -> PodExecOptions {
        PodExecOptions { env, ..PodExecOptions::default() }
    }

    #[track_caller]
    fn check_env(env: Vec<ExecVar>, rules: ExecEnvRules, expected: &[&str]) {
        let errors = validate(&options(env), rules);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[track_caller]
    fn check(pairs: &[(&str, &str)], rules: ExecEnvRules, expected: &[&str]) {
        let env = pairs.iter().map(|(name, value)| ExecVar::new(*name, *value)).collect();
        check_env(env, rules, expected);
    }

    fn numbered(count: usize) -> Vec<ExecVar> {
        (0..count).map(|number| ExecVar::new(format!("V{number}"), "")).collect()
    }

    /// EXEC-25
    #[test]
    fn env_is_refused_while_the_gate_is_off_exec_25_op_10() {
        let text = "env: Forbidden: ExecEnvVar feature gate is not enabled";
        check(&[("A", "1"), ("", ""), ("A", "\0")], ExecEnvRules::Disabled, &[text]);
        check(&[], ExecEnvRules::Disabled, &[]);
    }

    /// EXEC-29, EXEC-35
    #[test]
    fn dangerous_variables_and_any_value_are_accepted_exec_29_exec_35() {
        check(
            &[("PATH", "/x"), ("LD_PRELOAD", "/evil.so"), ("EMPTY", ""), ("V", "$(A) é\n")],
            STRICT,
            &[],
        );
        check_env(vec![ExecVar::new("BYTES", *b"\xff\x01")], STRICT, &[]);
        check(&[], RELAXED, &[]);
    }

    /// EXEC-27
    #[test]
    fn names_are_required_exec_27() {
        for rules in [RELAXED, STRICT] {
            check(
                &[("", "x"), ("A", ""), ("", "y")],
                rules,
                &["env[0].name: Required value", "env[2].name: Required value"],
            );
        }
    }

    /// EXEC-28
    #[test]
    fn names_follow_the_rule_set_of_the_gate_exec_28_op_7() {
        check(&[("1:a b", "")], RELAXED, &[]);
        let strict = EnvNameError::LeadingDigit;
        check(
            &[("1a", ""), ("..a:", ""), ("..", "")],
            STRICT,
            &[
                &format!("env[0].name: Invalid value: \"1a\": {strict}"),
                &format!("env[1].name: Invalid value: \"..a:\": {strict}"),
                "env[1].name: Invalid value: \"..a:\": must not start with '..'",
                "env[2].name: Invalid value: \"..\": must not be '..'",
            ],
        );
        let relaxed = EnvNameError::RelaxedChar { at: 0 };
        check(
            &[("é", ""), ("A=B", ""), ("A\0", "")],
            RELAXED,
            &[
                &format!("env[0].name: Invalid value: \"é\": {relaxed}"),
                &format!("env[1].name: Invalid value: \"A=B\": {relaxed}"),
                &format!("env[2].name: Invalid value: \"A\\x00\": {relaxed}"),
            ],
        );
    }

    /// EXEC-30
    #[test]
    fn duplicates_are_reported_at_the_later_entry_exec_30() {
        check(
            &[("A", "1"), ("a", "1"), ("A", "1"), ("A", "2")],
            RELAXED,
            &["env[2].name: Duplicate value: \"A\"", "env[3].name: Duplicate value: \"A\""],
        );
    }

    /// EXEC-31
    #[test]
    fn at_most_256_entries_exec_31() {
        check_env(numbered(256), STRICT, &[]);
        check_env(numbered(257), STRICT, &["env: Too many: 257: must have at most 256 items"]);
    }

    /// EXEC-32
    #[test]
    fn at_most_32768_bytes_over_names_and_values_exec_32_op_8() {
        let text = "env: Too long: may not be more than 32768 bytes";
        let value = |length| ExecVar::new("AB", vec![b'v'; length]);
        check_env(vec![value(32_766)], STRICT, &[]);
        check_env(vec![value(32_767)], STRICT, &[text]);
        check_env(vec![value(32_765), ExecVar::new("C", "")], STRICT, &[]);
        check_env(vec![value(32_765), ExecVar::new("C", "d")], STRICT, &[text]);
        check_env(vec![ExecVar::new("N".repeat(32_768), "")], STRICT, &[]);
        check_env(vec![ExecVar::new("N".repeat(32_769), "")], STRICT, &[text]);
        // Bytes count, not characters and not their percent-encoding.
        check_env(vec![ExecVar::new("A", "é".repeat(16_383))], STRICT, &[]);
        check_env(vec![ExecVar::new("A", "é".repeat(16_384))], STRICT, &[text]);
    }

    /// EXEC-33
    #[test]
    fn reserved_names_are_refused_in_any_case_exec_33_op_7() {
        let text = "Forbidden: KUBERNETES_EXEC_AUDIT_ID is reserved by the API server";
        check(
            &[
                ("KUBERNETES_EXEC_AUDIT_ID", "fake"),
                ("kubernetes_Exec_Audit_ID", "fake"),
                ("KUBERNETES_EXEC_AUDIT_ID2", "fine"),
                ("KUBERNETES_EXEC_AUDIT_I", "fine"),
            ],
            STRICT,
            &[&format!("env[0].name: {text}"), &format!("env[1].name: {text}")],
        );
    }

    #[test]
    fn references_are_refused_op_5() {
        let document = json!({
            "apiVersion": "v1",
            "kind": "PodExecOptions",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
        });
        let options: PodExecOptions = serde_json::from_value(document).unwrap();
        check_env(
            options.env,
            STRICT,
            &["env[1].valueFrom: Forbidden: may not be used in exec requests, only literal values"],
        );
    }

    #[test]
    fn nul_in_a_value_is_refused_without_showing_it() {
        check(
            &[("A", "hunter2\0hunter2")],
            RELAXED,
            &["env[0].value: Invalid value: \"<value hidden>\": an environment variable value \
               cannot contain NUL (found at byte 7)"],
        );
    }

    /// EXEC-34
    #[test]
    fn all_faults_are_reported_together_and_no_value_exec_34() {
        let mut env = numbered(252);
        env.push(ExecVar::new("", "hunter2"));
        env.push(ExecVar::new("é", "hunter2"));
        env.push(ExecVar::new("V0", "hunter2\0"));
        env.push(ExecVar::new("KUBERNETES_EXEC_AUDIT_ID", "hunter2"));
        env.push(ExecVar::new("BIG", "hunter2".repeat(5_000)));
        let errors = validate(&options(env), RELAXED);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let starts = [
            "env: Too many: 257",
            "env: Too long",
            "env[252].name: Required value",
            "env[253].name: Invalid value: \"é\"",
            "env[254].name: Duplicate value: \"V0\"",
            "env[254].value: Invalid value: \"<value hidden>\"",
            "env[255].name: Forbidden",
        ];
        assert_eq!(texts.len(), starts.len(), "{texts:?}");
        for (text, start) in texts.iter().zip(starts) {
            assert!(text.starts_with(start), "{text} / {start}");
        }
        assert!(!texts.concat().contains("hunter2"), "{texts:?}");
    }
}
