//! Whether the expressions of a policy fit the kinds that it is about, as far as schemas tell.
//!
//! A policy is not refused for what is found, since requests may be of other kinds: its author is told in its status, as
//! upstream does.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::{
    cel::{Expression, ObjectType, Scope, Wanted},
    config::{PolicySpec, read},
};

/// As many kinds are looked at; upstream's limit.
const MOST_KINDS: usize = 10;

/// A kind with what its objects look like.
#[derive(Clone, Debug)]
pub struct CheckedKind {
    /// Its API group; empty for the core group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its name.
    pub kind: String,
    /// What its objects look like.
    pub object: Arc<ObjectType>,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// Where it stands.
    pub field_ref: String,
    /// What is wrong with it, by kind.
    pub warning: String,
}

/// Checks the policy `document` against the kinds that it is about. `find` knows those by group, version and resource, and
/// `params` the type of its parameters, by `apiVersion` and kind.
pub fn check_types(
    document: &Json,
    find: impl Fn(&str, &str, &str) -> Option<CheckedKind>,
    params: impl FnOnce(&str, &str) -> Option<Arc<ObjectType>>,
) -> Result<Vec<ExpressionWarning>, serde_json::Error> {
    let spec: PolicySpec = read(document, "/spec")?;
    let params = spec.param_kind.as_ref().and_then(|kind| params(&kind.api_version, &kind.kind));
    let kinds = kinds(document, find);
    let scopes: Vec<_> =
        kinds.iter().map(|kind| (kind, scope(&spec, kind, params.as_ref()))).collect();
    let mut warnings = Vec::new();
    let mut check = |text: &str, field_ref: String| {
        let issues: Vec<_> =
            scopes.iter().filter_map(|(kind, scope)| issue(text, kind, scope)).collect();
        if !issues.is_empty() {
            warnings.push(ExpressionWarning { field_ref, warning: issues.join("\n") });
        }
    };
    for (place, validation) in spec.validations.iter().enumerate() {
        let path = format!("spec.validations[{place}]");
        check(&validation.expression, format!("{path}.expression"));
        if !validation.message_expression.is_empty() {
            check(&validation.message_expression, format!("{path}.messageExpression"));
        }
    }
    Ok(warnings)
}

/// The names that the expressions of `spec` may use on objects of `kind`.
fn scope(spec: &PolicySpec, kind: &CheckedKind, params: Option<&Arc<ObjectType>>) -> Scope {
    let scope = Scope::request().with_authorizer().with_params(spec.param_kind.is_some());
    let mut scope = scope.with_types(Arc::clone(&kind.object), params.cloned());
    if !spec.variables.is_empty() {
        scope = scope.with_variables();
    }
    for variable in &spec.variables {
        let compiled = Expression::compile(&variable.expression, &scope, Wanted::Any).ok();
        scope.declare(&variable.name, compiled.as_ref());
    }
    scope
}

fn issue(text: &str, kind: &CheckedKind, scope: &Scope) -> Option<String> {
    let error = Expression::compile(text, scope, Wanted::Any).err()?;
    let CheckedKind { group, version, kind, .. } = kind;
    Some(format!("{group}/{version}, Kind={kind}: {}\n", error.issues()))
}

/// The kinds that the policy names; patterns and subresources name none.
fn kinds(
    document: &Json,
    find: impl Fn(&str, &str, &str) -> Option<CheckedKind>,
) -> Vec<CheckedKind> {
    let rules = document.pointer("/spec/matchConstraints/resourceRules").and_then(Json::as_array);
    let mut kinds: Vec<CheckedKind> = Vec::new();
    for rule in rules.into_iter().flatten() {
        let (groups, versions) = (names(rule, "apiGroups"), names(rule, "apiVersions"));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        let resources = names(rule, "resources");
        let resources = resources.iter().filter(|name| !name.contains(['*', '/']));
        for resource in resources {
            let places = groups.iter().flat_map(|group| versions.iter().map(move |it| (group, it)));
            kinds.extend(places.filter_map(|(group, version)| find(group, version, resource)));
        }
    }
    let key = |kind: &CheckedKind| (kind.group.clone(), kind.version.clone(), kind.kind.clone());
    kinds.sort_by_key(key);
    kinds.dedup_by_key(|kind| key(kind));
    kinds.truncate(MOST_KINDS);
    kinds
}

fn names<'a>(rule: &'a Json, field: &str) -> Vec<&'a str> {
    let list = rule.get(field).and_then(Json::as_array);
    list.into_iter().flatten().filter_map(Json::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cel::Declared;

    /// `{metadata: {name}, spec: {replicas: int, paused: bool, names: [string], labels: {string: string}, any}}`.
    fn widget() -> CheckedKind {
        let object = |fields: &[(&str, usize)]| {
            Declared::Object(
                fields.iter().map(|(name, place)| ((*name).to_owned(), *place)).collect(),
            )
        };
        let places = vec![
            object(&[("metadata", 1), ("spec", 2)]),
            object(&[("name", 3)]),
            object(&[("replicas", 4), ("paused", 5), ("names", 6), ("labels", 7), ("any", 8)]),
            Declared::String,
            Declared::Int,
            Declared::Bool,
            Declared::List(3),
            Declared::Map(3),
            Declared::Any,
        ];
        CheckedKind {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Widget".to_owned(),
            object: Arc::new(ObjectType::new("Widget", places, 0)),
        }
    }

    fn warnings(validation: &Json) -> Vec<ExpressionWarning> {
        let policy = json!({"spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["widgets", "*", "widgets/scale"]},
                {"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["others"]},
            ]},
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": [validation],
        }});
        let find = |group: &str, version: &str, resource: &str| {
            let known = (group, version, resource) == ("apps", "v1", "widgets");
            known.then(widget)
        };
        check_types(&policy, find, |_, _| None).unwrap()
    }

    /// Upstream's own case.
    #[test]
    fn an_int_is_no_text() {
        let found = warnings(&json!({
            "expression": "object.spec.replicas > '1'",
            "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas",
        }));
        let [first, second] = &found[..] else { panic!("{found:?}") };
        assert_eq!(first.field_ref, "spec.validations[0].expression");
        let wanted = "apps/v1, Kind=Widget: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'";
        assert!(first.warning.starts_with(wanted), "{}", first.warning);
        assert_eq!(second.field_ref, "spec.validations[0].messageExpression");
        assert!(second.warning.contains("'_+_' applied to '(string, int)'"), "{}", second.warning);
    }

    #[test]
    fn what_fits_is_not_warned_of() {
        for fits in [
            "object.spec.replicas > 1 && !object.spec.paused",
            "has(object.spec.labels) && object.spec.labels['a'] == 'b' && object.spec.labels.c != ''",
            "object.spec.names.all(name, name.startsWith('a')) && object.spec.names[0] == 'x'",
            "object.spec.labels.all(key, key.size() > 0) && 'a' in object.spec.labels",
            "object.spec.any.whatever > 'x' && object.spec.any[0]",
            "oldObject == null || object.metadata.name == oldObject.metadata.name",
            "variables.replicas == 1 && request.operation == 'CREATE'",
            "object.spec.names + ['a'] == [] || object.spec.names.size() > 3",
            "(object.spec.paused ? object.spec.names : ['a']).exists(name, name == 'a')",
            "object.spec.?labels.orValue({}).size() == 0",
        ] {
            assert_eq!(warnings(&json!({"expression": fits})), [], "{fits}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for (wrong, why) in [
            ("object.spec.replica > 1", "undefined field 'replica'"),
            ("has(object.spec.nothing)", "undefined field 'nothing'"),
            ("object.spec.names.all(name, name > 1)", "'_>_' applied to '(string, int)'"),
            ("object.spec.names['a'] == 'b'", "'_[_]' applied to '(list(string), string)'"),
            ("object.metadata['name'] == 'b'", "'_[_]' applied to '(Widget, string)'"),
            ("object.spec.labels.a + 1 == 2", "'_+_' applied to '(string, int)'"),
            ("variables.replicas == 'a'", "'_==_' applied to '(int, string)'"),
            ("object.spec.replicas.all(x, true)", "expression of type 'int' cannot be range"),
            ("object.spec && true", "'_&&_' applied to '(Widget)'"),
            (
                "object.spec.names.name == ''",
                "type 'list(string)' does not support field selection",
            ),
        ] {
            let found = warnings(&json!({"expression": wrong}));
            assert!(found.len() == 1 && found[0].warning.contains(why), "{wrong}: {found:?}");
        }
    }
}
