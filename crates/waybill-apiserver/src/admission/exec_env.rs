//! A namespace may refuse variables of exec sessions by their names, such as `LD_PRELOAD` (EXEC-35).
//!
//! The list is an annotation of the namespace: patterns with `*` and `?`, separated by commas. Whoever
//! may change the namespace may change the list. A list that is not understood refuses every session
//! with variables, because its author meant to refuse something.

use serde_json::Value;
use waybill_core::glob::Glob;

use crate::document::at;

/// As a JSON pointer.
const DENIED: &str = "/metadata/annotations/waybill.dev~1exec-env-deny";

/// Why a session in `namespace` may not have variables of these names; `None` if it may.
pub(crate) fn refusal<'n>(
    namespace: &Value,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<String> {
    let list = at(namespace, DENIED).as_str()?;
    let mut names = names.into_iter().peekable();
    names.peek()?;
    let patterns = list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
    let patterns: Vec<Glob> = match patterns.map(Glob::parse).collect() {
        Ok(patterns) => patterns,
        Err(error) => {
            return Some(format!(
                "the namespace's annotation waybill.dev/exec-env-deny is not understood, so no \
                 session there may have variables: {error}"
            ));
        }
    };
    let denied: Vec<&str> =
        names.filter(|name| patterns.iter().any(|pattern| pattern.matches(name))).collect();
    (!denied.is_empty()).then(|| {
        format!(
            "the namespace's annotation waybill.dev/exec-env-deny refuses the variables: {}",
            denied.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(list: &str, names: &[&str]) -> Option<String> {
        let namespace = json!({"metadata": {"annotations": {"waybill.dev/exec-env-deny": list}}});
        refusal(&namespace, names.iter().copied())
    }

    /// EXEC-35
    #[test]
    fn names_on_the_list_are_refused_and_all_of_them_told() {
        let told = refused("LD_*, PATH", &["LD_PRELOAD", "A", "PATH"]).unwrap();
        assert!(told.ends_with("refuses the variables: LD_PRELOAD, PATH"), "{told}");
        assert_eq!(refused("LD_*, PATH", &["A", "MY_PATH"]), None);
        assert_eq!(refused("", &["LD_PRELOAD"]), None);
        assert_eq!(refused("**", &[]), None);
    }

    /// EXEC-35: the default is that RBAC alone decides.
    #[test]
    fn without_a_list_every_name_passes() {
        assert_eq!(refusal(&json!({"metadata": {}}), ["LD_PRELOAD"]), None);
    }

    #[test]
    fn a_list_that_is_not_understood_refuses_all() {
        let told = refused("LD_[A-Z]", &["A"]).unwrap();
        assert!(told.contains("is not understood"), "{told}");
        assert_eq!(refused("LD_[A-Z]", &[]), None);
    }
}
