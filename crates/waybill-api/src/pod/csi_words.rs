//! `$(NAME)` in a command or an argument, where `NAME` comes from a CSI driver.
//!
//! The kernel shows the words of a process to every process that may see it, and a value that never
//! touches a disk would stand in `/proc/*/cmdline`. So such a word is refused, unless an annotation of
//! the pod says that this is known. The API server refuses the pod; the node asks again, since pods may
//! come from elsewhere. Probes and hooks are not expanded with fetched values and need no rule.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;
use waybill_core::env::expand::references;

use super::{Container, EnvVar, HiddenText, PodEnvSpec};
use crate::field::{ErrorList, FieldError, FieldPath};

/// The annotation of a pod that allows values from CSI drivers in its commands and arguments: `"true"`.
pub const ALLOW_CSI_WORDS: &str = "waybill.dev/allow-csi-env-in-args";

/// A word of a container that would hold a value from a CSI driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsiWord<'a> {
    /// `command` or `args`.
    pub field: &'static str,
    /// The position of the word in that list.
    pub position: usize,
    /// The variable that the word refers to. Its value comes from a driver, or is made of such values.
    pub variable: &'a str,
}

impl fmt::Display for CsiWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{variable:?} holds a value from a CSI driver, and everybody who may list processes on \
             the node would read it here; let the program read the variable itself (in a shell: \
             \"${variable}\"), or set the annotation {ALLOW_CSI_WORDS}: \"true\" on the pod",
            variable = self.variable
        )
    }
}

/// Whether the `annotations` of a pod allow what [`csi_words`] finds.
pub fn allows_csi_words(annotations: &Value) -> bool {
    annotations.get(ALLOW_CSI_WORDS).and_then(Value::as_str) == Some("true")
}

/// The words of `container` that would hold a value from a CSI driver, in their order, each with the
/// first such variable. Variables that are made of others count as well.
pub fn csi_words(container: &Container) -> Vec<CsiWord<'_>> {
    let tainted = tainted_names(&container.env);
    if tainted.is_empty() {
        return Vec::new();
    }
    let lists = [("command", &container.command), ("args", &container.args)];
    let words = lists.into_iter().flat_map(|(field, words)| {
        words.iter().enumerate().map(move |(position, word)| (field, position, word))
    });
    words
        .filter_map(|(field, position, word)| {
            let variable = first_reference(word, &tainted)?;
            Some(CsiWord { field, position, variable })
        })
        .collect()
}

/// One error for each word of `spec`, which stands at `path`, that would hold a value from a CSI driver.
pub fn csi_word_errors(spec: &PodEnvSpec, path: &FieldPath) -> ErrorList {
    let mut errors = ErrorList::new();
    for (kind, position, container) in spec.all_containers() {
        let path = path.child(kind.field()).index(position);
        for word in csi_words(container) {
            let path = path.child(word.field).index(word.position);
            errors.push(FieldError::forbidden(path, word.to_string()));
        }
    }
    errors
}

/// The variables that hold a fetched value once all of `env` is defined, in its order (OP-38).
fn tainted_names(env: &[EnvVar]) -> BTreeSet<&str> {
    let mut tainted = BTreeSet::new();
    for variable in env {
        if is_fetched(variable) || first_reference(&variable.value, &tainted).is_some() {
            tainted.insert(&*variable.name);
        } else if is_surely_defined(variable) {
            // The later of two definitions counts.
            tainted.remove(&*variable.name);
        }
    }
    tainted
}

fn is_fetched(variable: &EnvVar) -> bool {
    variable.value_from.as_ref().is_some_and(|source| source.csi_secret_ref.is_some())
}

/// Whether the variable replaces an earlier one of its name in every case.
fn is_surely_defined(variable: &EnvVar) -> bool {
    let Some(source) = &variable.value_from else { return true };
    let keys = [&source.config_map_key_ref, &source.secret_key_ref];
    let optional_key = keys.into_iter().flatten().any(|key| key.optional);
    let optional_file = source.file_key_ref.as_ref().is_some_and(|file| file.optional);
    !optional_key && !optional_file
}

fn first_reference<'a>(text: &HiddenText, names: &BTreeSet<&'a str>) -> Option<&'a str> {
    references(text.expose().as_bytes())
        .filter_map(|name| std::str::from_utf8(name).ok())
        .find_map(|name| names.get(name).copied())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn csi(name: &str) -> Value {
        json!({"name": name, "valueFrom": {"csiSecretRef": {
            "driver": "d", "providerClassName": "c", "key": "k"}}})
    }

    fn text(name: &str, value: &str) -> Value {
        json!({"name": name, "value": value})
    }

    fn optional(name: &str, field: &str) -> Value {
        json!({"name": name, "valueFrom": {field: {"optional": true}}})
    }

    fn view(env: &[Value], command: &[&str], args: &[&str]) -> PodEnvSpec {
        let container = json!({"name": "a", "env": env, "command": command, "args": args});
        PodEnvSpec::from_value(&json!({"containers": [container]})).unwrap()
    }

    /// Positions in `args` that are refused, with the variable that is named.
    #[track_caller]
    fn check_args(env: &[Value], args: &[&str], expected: &[(usize, &str)]) {
        let spec = view(env, &[], args);
        let found = csi_words(&spec.containers[0]);
        assert!(found.iter().all(|word| word.field == "args"));
        let found: Vec<_> = found.iter().map(|word| (word.position, word.variable)).collect();
        assert_eq!(found, expected, "{args:?}");
    }

    /// CSI-62
    #[test]
    fn words_that_refer_to_a_fetched_value_are_found_csi_62() {
        let env = [csi("S"), text("P", "x")];
        check_args(&env, &["a", "--x=$(S)", "$(P)"], &[(1, "S")]);
        check_args(&env, &["$$(S)", "$S", "${S}", "$(T)", "$(S"], &[]);
        check_args(&[], &["$(S)"], &[]);
        let spec = view(&env, &["sh", "$(P)$(S)"], &["$(S)"]);
        let found: Vec<_> =
            csi_words(&spec.containers[0]).iter().map(|word| (word.field, word.position)).collect();
        assert_eq!(found, [("command", 1), ("args", 0)]);
    }

    #[test]
    fn what_is_made_of_fetched_values_counts_as_well() {
        check_args(&[csi("S"), text("P", "x$(S)"), text("Q", "$(P)")], &["$(Q)"], &[(0, "Q")]);
        check_args(&[csi("S"), text("P", "x$$(S)")], &["$(P)"], &[]);
        // A reference to a later variable stays text, and is not expanded again in a word.
        check_args(&[text("P", "$(S)"), csi("S")], &["$(P)"], &[]);
    }

    #[test]
    fn the_last_definition_counts_op_38() {
        check_args(&[csi("S"), text("S", "x")], &["$(S)"], &[]);
        check_args(&[text("S", "x"), csi("S")], &["$(S)"], &[(0, "S")]);
        check_args(&[csi("S"), text("S", "x$(S)")], &["$(S)"], &[(0, "S")]);
        for field in ["configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
            check_args(&[csi("S"), optional("S", field)], &["$(S)"], &[(0, "S")]);
            let sure = json!({"name": "S", "valueFrom": {field: {}}});
            check_args(&[csi("S"), sure], &["$(S)"], &[]);
        }
    }

    #[test]
    fn every_kind_of_container_is_searched_and_the_error_says_what_to_do() {
        let containers = json!([{"env": [csi("S")], "args": ["$(S)"]}]);
        let spec = PodEnvSpec::from_value(&json!({
            "containers": containers, "initContainers": containers,
            "ephemeralContainers": containers}))
        .unwrap();
        let errors = csi_word_errors(&spec, &FieldPath::new("spec"));
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 3);
        assert_eq!(
            told[0],
            "spec.containers[0].args[0]: Forbidden: \"S\" holds a value from a CSI driver, and \
             everybody who may list processes on the node would read it here; let the program read \
             the variable itself (in a shell: \"$S\"), or set the annotation \
             waybill.dev/allow-csi-env-in-args: \"true\" on the pod"
        );
        assert!(told[2].starts_with("spec.ephemeralContainers[0].args[0]: "), "{told:?}");
    }

    #[test]
    fn only_the_word_true_allows() {
        assert!(allows_csi_words(&json!({ALLOW_CSI_WORDS: "true"})));
        for other in
            [json!(null), json!({}), json!({ALLOW_CSI_WORDS: "True"}), json!({"x": "true"})]
        {
            assert!(!allows_csi_words(&other), "{other}");
        }
    }
}
