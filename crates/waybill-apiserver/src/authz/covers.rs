//! Whether some rules grant all that others do.
//!
//! As `policy_comparator.go` of Kubernetes: the wanted rules are broken down until each part has one
//! verb and one object, and a part is covered when a single owned rule covers it. So `covers` may
//! say no where rules only together grant a part written with a star, never yes wrongly.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{ALL, PolicyRule, covers_path, has, has_or_all};

/// The parts of `wanted` that no rule of `owned` covers, in words; nothing if all are covered.
///
/// Parts that differ only in their verbs are told as one, sorted, as upstream prints them.
pub(super) fn missing(owned: &[PolicyRule], wanted: &[PolicyRule]) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    let mut plain: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for part in wanted.iter().flat_map(parts) {
        if owned.iter().any(|rule| part.is_covered_by(rule)) {
            continue;
        }
        match part {
            Part::Resource { group, resource, name: None, verb } => {
                plain.entry((group, resource)).or_default().push(verb);
            }
            Part::Resource { group, resource, name: Some(name), verb } => {
                texts.insert(format!(
                    "{{APIGroups:[{group:?}], Resources:[{resource:?}], \
                     ResourceNames:[{name:?}], Verbs:[{verb:?}]}}"
                ));
            }
            Part::Path { path, verb } => {
                texts.insert(format!("{{NonResourceURLs:[{path:?}], Verbs:[{verb:?}]}}"));
            }
        }
    }
    texts.extend(plain.into_iter().map(|((group, resource), verbs)| {
        let verbs = go_list(&verbs);
        format!("{{APIGroups:[{group:?}], Resources:[{resource:?}], Verbs:{verbs}}}")
    }));
    texts
}

/// Whether every part of `wanted` is covered by a rule of `owned`.
pub(crate) fn covers(owned: &[PolicyRule], wanted: &[PolicyRule]) -> bool {
    wanted.iter().flat_map(parts).all(|part| owned.iter().any(|rule| part.is_covered_by(rule)))
}

/// A list as Go's `%q` prints it.
pub(super) fn go_list(texts: &[impl AsRef<str>]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{:?}", text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// One verb on one thing.
#[derive(Clone, Copy)]
enum Part<'a> {
    Path {
        path: &'a str,
        verb: &'a str,
    },
    /// Without a name, every object of the resource.
    Resource {
        group: &'a str,
        resource: &'a str,
        name: Option<&'a str>,
        verb: &'a str,
    },
}

impl Part<'_> {
    fn is_covered_by(self, rule: &PolicyRule) -> bool {
        match self {
            Part::Path { path, verb } => {
                has_or_all(&rule.verbs, verb)
                    && rule.non_resource_urls.iter().any(|pattern| covers_path(pattern, path))
            }
            Part::Resource { group, resource, name, verb } => {
                has_or_all(&rule.verbs, verb)
                    && has_or_all(&rule.api_groups, group)
                    && rule.resources.iter().any(|pattern| covers_resource(pattern, resource))
                    && (rule.resource_names.is_empty()
                        || name.is_some_and(|name| has(&rule.resource_names, name)))
            }
        }
    }
}

/// Both may be patterns: `*/exec` covers `pods/exec` and itself, `pods/exec` only itself.
fn covers_resource(pattern: &str, resource: &str) -> bool {
    if pattern == ALL || pattern == resource {
        return true;
    }
    match (pattern.strip_prefix("*/"), resource.split_once('/')) {
        (Some(covered), Some((_, subresource))) => covered == subresource,
        _ => false,
    }
}

fn parts(rule: &PolicyRule) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let names: Vec<_> = match rule.resource_names.as_slice() {
        [] => vec![None],
        names => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    for verb in &rule.verbs {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for &name in &names {
                    parts.push(Part::Resource { group, resource, name, verb });
                }
            }
        }
        parts.extend(rule.non_resource_urls.iter().map(|path| Part::Path { path, verb }));
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn rules(rules: Value) -> Vec<PolicyRule> {
        serde_json::from_value(rules).unwrap()
    }

    fn resource(group: &str, resource: &str, verb: &str) -> Value {
        json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]})
    }

    #[track_caller]
    fn check(owned: Value, wanted: Value, covered: bool) {
        let (owned, wanted) = (rules(owned), rules(wanted));
        assert_eq!(covers(&owned, &wanted), covered, "{owned:?} {wanted:?}");
        assert_eq!(missing(&owned, &wanted).is_empty(), covered);
    }

    #[test]
    fn stars_cover_names_and_names_do_not_cover_stars() {
        for (owned, wanted, covered) in [
            (resource("*", "*", "*"), resource("", "pods", "get"), true),
            (resource("*", "*", "*"), resource("*", "*", "*"), true),
            (resource("", "pods", "*"), resource("", "pods", "get"), true),
            (resource("", "pods", "get"), resource("", "pods", "*"), false),
            (resource("", "*", "get"), resource("", "pods/log", "get"), true),
            (resource("", "pods", "get"), resource("", "*", "get"), false),
            (resource("*", "pods", "get"), resource("", "pods", "get"), true),
            (resource("", "pods", "get"), resource("*", "pods", "get"), false),
            (resource("", "*/exec", "get"), resource("", "pods/exec", "get"), true),
            (resource("", "*/exec", "get"), resource("", "pods", "get"), false),
            (resource("", "pods/exec", "get"), resource("", "*/exec", "get"), false),
            (resource("", "pods", "get"), resource("", "pods/exec", "get"), false),
        ] {
            check(json!([owned]), json!([wanted]), covered);
        }
    }

    #[test]
    fn names_cover_names_but_not_all_objects() {
        let named = |names: &[&str]| {
            json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"],
                "resourceNames": names}])
        };
        check(named(&[]), named(&["a"]), true);
        check(named(&["a", "b"]), named(&["b"]), true);
        check(named(&["a"]), named(&["a", "b"]), false);
        check(named(&["a"]), named(&[]), false);
    }

    #[test]
    fn paths_cover_paths_by_prefix() {
        let path = |path: &str| json!([{"nonResourceURLs": [path], "verbs": ["get"]}]);
        check(path("*"), path("/a"), true);
        check(path("/a/*"), path("/a/b"), true);
        check(path("/a/*"), path("/a/b/*"), true);
        check(path("/a/*"), path("/a"), false);
        check(path("/a"), path("/a/*"), false);
        check(path("*"), json!([resource("", "pods", "get")]), false);
    }

    #[test]
    fn several_rules_may_cover_one_together() {
        let owned = json!([resource("", "pods", "get"), resource("", "pods", "list")]);
        let wanted = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
        check(owned, wanted, true);
        check(json!([]), json!([]), true);
        check(json!([]), json!([{"verbs": ["get"]}]), true);
    }

    #[test]
    fn missing_parts_are_told_as_upstream_tells_them() {
        let owned = rules(json!([resource("", "pods", "get")]));
        let wanted = rules(json!([
            {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list", "*"]},
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["use"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]));
        let texts: Vec<_> = missing(&owned, &wanted).into_iter().collect();
        assert_eq!(
            texts,
            [
                r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["use"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "*"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "*"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
            ]
        );
    }

    fn texts(pattern: &'static str) -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(pattern, 0..3)
    }

    fn rule() -> impl Strategy<Value = PolicyRule> {
        (
            texts("a?|\\*"),
            texts("pods|nodes|pods/exec|pods/log|nodes/exec|\\*/exec|\\*"),
            texts("x|y|\\*"),
            texts("/[ab]{0,2}\\*{0,2}|\\*"),
            texts("get|list|\\*"),
        )
            .prop_map(
                |(api_groups, resources, resource_names, non_resource_urls, verbs)| PolicyRule {
                    api_groups,
                    non_resource_urls,
                    resource_names,
                    resources,
                    verbs,
                },
            )
    }

    fn some_rules() -> impl Strategy<Value = Vec<PolicyRule>> {
        prop::collection::vec(rule(), 0..4)
    }

    proptest! {
        #[test]
        fn rules_cover_themselves(rules in some_rules()) {
            prop_assert!(covers(&rules, &rules));
        }

        #[test]
        fn covering_is_transitive(a in some_rules(), b in some_rules(), c in some_rules()) {
            // Supersets make the premises hold often enough to say something.
            let b = [b, c.clone()].concat();
            let a = [a, b.iter().map(widened).collect()].concat();
            prop_assert!(covers(&a, &b) && covers(&b, &c));
            prop_assert!(covers(&a, &c));
        }

        #[test]
        fn unrelated_rules_cover_transitively_too(
            a in some_rules(), b in some_rules(), c in some_rules(),
        ) {
            prop_assert!(!(covers(&a, &b) && covers(&b, &c)) || covers(&a, &c));
        }

        #[test]
        fn what_is_covered_is_allowed(a in some_rules(), b in some_rules(), at in 0..8_usize) {
            use crate::authz::fixtures::{on, path};
            let actions = [
                on("get", "pods"), on("get", "pods:x"), on("list", "pods/exec:x"),
                on("get", "nodes.a/exec:z"), on("list", "nodes.a"), path("get", "/a"),
                path("list", "/ab"), path("get", "/"),
            ];
            let allows = |rules: &[PolicyRule]| rules.iter().any(|rule| rule.allows(&actions[at]));
            prop_assert!(!covers(&a, &b) || !allows(&b) || allows(&a));
        }
    }

    /// A rule that covers `rule` in another way than by being it.
    fn widened(rule: &PolicyRule) -> PolicyRule {
        let mut rule = rule.clone();
        rule.verbs = vec![ALL.to_owned()];
        rule.resource_names.clear();
        rule
    }
}
