//! A namespace may refuse variables of sessions by their names, such as `LD_PRELOAD` (EXEC-35).
//!
//! Sessions are those of exec, and ephemeral containers. The list is an annotation of the namespace:
//! patterns with `*` and `?`, separated by commas, compared without case. Whoever may change the
//! namespace may change the list. A list that is not understood, or not known because there is no such
//! namespace any more, refuses every session with variables: its author meant to refuse something.

use serde_json::Value;
use waybill_api::{pod::Container, status::Status};
use waybill_core::{env::name_pattern::NamePattern, glob::GlobError};

use super::{Admission, Attributes, ephemeral::added_containers};
use crate::{document::at, kinds::pod::PODS};

/// As a JSON pointer.
const DENIED: &str = "/metadata/annotations/waybill.dev~1exec-env-deny";

/// Names that sessions in one namespace may not set.
pub(crate) struct DenyList(Result<Vec<NamePattern>, UnknownList>);

impl DenyList {
    /// The list of `namespace`; nothing if the namespace is not there.
    pub(crate) fn of(namespace: Option<&Value>) -> Self {
        let Some(namespace) = namespace else { return Self(Err(UnknownList::NoNamespace)) };
        let list = at(namespace, DENIED).as_str().unwrap_or_default();
        let patterns = list.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        let patterns = patterns.map(NamePattern::parse).collect::<Result<_, _>>();
        Self(patterns.map_err(UnknownList::Pattern))
    }

    /// Why a session may not have variables of these names; `None` if it may.
    pub(crate) fn refusal<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
        let mut names = names.into_iter().peekable();
        names.peek()?;
        let patterns = match &self.0 {
            Ok(patterns) => patterns,
            Err(unknown) => return Some(unknown.to_string()),
        };
        let is_denied = |name: &&str| patterns.iter().any(|pattern| pattern.matches(name));
        let denied: Vec<&str> = names.filter(is_denied).collect();
        (!denied.is_empty()).then(|| {
            format!(
                "the namespace's annotation waybill.dev/exec-env-deny refuses the variables: {}",
                denied.join(", ")
            )
        })
    }

    /// The same for `envFrom`, whose names are known to begin with these prefixes and no more: what an
    /// object holds when the container starts is not known when it is admitted.
    fn prefix_refusal<'n>(&self, prefixes: impl IntoIterator<Item = &'n str>) -> Option<String> {
        let mut prefixes = prefixes.into_iter().peekable();
        prefixes.peek()?;
        let patterns = match &self.0 {
            Ok(patterns) => patterns,
            Err(unknown) => return Some(unknown.to_string()),
        };
        let prefix = prefixes
            .find(|prefix| patterns.iter().any(|pattern| pattern.may_match_after(prefix)))?;
        Some(format!(
            "the namespace's annotation waybill.dev/exec-env-deny refuses envFrom with prefix \
             {prefix:?}, because it could set a variable on the list; name variables one by one with env"
        ))
    }

    /// What refuses a container that is added to a pod.
    fn container_refusal(&self, container: &Container) -> Option<String> {
        let names = container.env.iter().map(|entry| entry.name.as_str());
        let prefixes = container.env_from.iter().map(|entry| entry.prefix.as_str());
        self.refusal(names).or_else(|| self.prefix_refusal(prefixes))
    }
}

/// Why a list is not known.
#[derive(Debug, thiserror::Error)]
enum UnknownList {
    #[error(
        "its namespace is not there any more, so what it refuses is not known, and no session may \
         have variables (waybill.dev/exec-env-deny)"
    )]
    NoNamespace,
    #[error(
        "the namespace's annotation waybill.dev/exec-env-deny is not understood, so no session there \
         may have variables: {0}"
    )]
    Pattern(GlobError),
}

impl Admission {
    /// Refuses ephemeral containers that are added with variables that the namespace does not want.
    pub(super) fn check_session_env(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        if !attributes.is_part(&PODS, "ephemeralcontainers") {
            return Ok(());
        }
        let added = added_containers(attributes.old, &attributes.object)?;
        let list = self.session_deny_list(attributes.namespace);
        match added.ephemeral_containers.iter().find_map(|it| list.container_refusal(it)) {
            Some(why) => Err(attributes.forbidden(&why)),
            None => Ok(()),
        }
    }

    /// What sessions in `namespace` may not set.
    pub(crate) fn session_deny_list(&self, namespace: &str) -> DenyList {
        DenyList::of(self.objects.namespace(namespace).as_ref())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(list: &str, names: &[&str]) -> Option<String> {
        let namespace = json!({"metadata": {"annotations": {"waybill.dev/exec-env-deny": list}}});
        DenyList::of(Some(&namespace)).refusal(names.iter().copied())
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
        let list = DenyList::of(Some(&json!({"metadata": {}})));
        assert_eq!(list.refusal(["LD_PRELOAD"]), None);
        assert_eq!(list.prefix_refusal([""]), None);
    }

    #[test]
    fn a_list_that_is_not_understood_refuses_all() {
        let told = refused("LD_[A-Z]", &["A"]).unwrap();
        assert!(told.contains("is not understood"), "{told}");
        assert_eq!(refused("LD_[A-Z]", &[]), None);
    }

    #[test]
    fn a_list_that_is_not_known_refuses_all() {
        let list = DenyList::of(None);
        assert!(list.refusal(["A"]).unwrap().contains("namespace is not there"));
        assert!(list.prefix_refusal(["A"]).is_some());
        assert_eq!(list.refusal([]), None);
        assert_eq!(list.prefix_refusal([]), None);
    }
}
