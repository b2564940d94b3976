//! Which rule of a policy applies, and which policies are refused.

use super::*;

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(ToString::to_string).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}

/// `verb` on `place`: a path, or `group:resource/subresource`, then `namespace` and `name` behind
/// `@`.
fn action(verb: &str, place: &str) -> Action {
    let target = if place.starts_with('/') {
        Target::Path(place.to_owned())
    } else {
        let (place, object) = place.split_once('@').unwrap_or((place, ""));
        let (namespace, name) = object.split_once('/').unwrap_or((object, ""));
        let (group, resource) = place.split_once(':').unwrap();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let [group, resource, subresource, namespace, name] =
            [group, resource, subresource, namespace, name].map(str::to_owned);
        let version = "v1".to_owned();
        Target::Resource(ResourceTarget { group, version, resource, subresource, namespace, name })
    };
    Action { verb: verb.to_owned(), target }
}

fn policy(rules: &str) -> Policy {
    Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}")).unwrap()
}

/// Whether a rule with these conditions matches what jane of group dev does.
#[track_caller]
fn check(conditions: &str, verb: &str, place: &str, expected: bool) {
    let policy = policy(&format!("- {{level: Metadata, {conditions}}}"));
    let decision = policy.decide(&user("jane", &["dev", "all"]), &action(verb, place));
    assert_eq!(decision.level == Level::Metadata, expected, "{conditions}: {verb} {place}");
}

#[test]
fn users_groups_and_verbs_limit_a_rule() {
    check("", "get", ":pods", true);
    check("users: [jane, joe]", "get", ":pods", true);
    check("users: [joe]", "get", ":pods", false);
    check("userGroups: [ops, dev]", "get", ":pods", true);
    check("userGroups: [ops]", "get", ":pods", false);
    check("users: [jane], userGroups: [ops]", "get", ":pods", false);
    check("verbs: [get]", "get", "/healthz", true);
    check("verbs: [list]", "get", ":pods", false);
}

#[test]
fn resources_are_matched_with_their_subresources() {
    let conditions =
        |resource: &str| format!("resources: [{{group: '', resources: ['{resource}']}}]");
    for (pattern, place, expected) in [
        ("pods", ":pods", true),
        ("pods", ":pods/status", false),
        ("pods/status", ":pods/status", true),
        ("pods/status", ":pods", false),
        ("pods/*", ":pods/exec", true),
        ("pods/*", ":pods", true),
        ("pods/*", ":nodes/status", false),
        ("*/status", ":nodes/status", true),
        ("*/status", ":nodes", false),
        ("*", ":nodes/status", true),
        ("*", "apps:deployments", false),
    ] {
        check(&conditions(pattern), "get", place, expected);
    }
    check("resources: [{group: apps}]", "get", "apps:deployments/scale", true);
    check("resources: [{group: apps}]", "get", "/apps", false);
}

#[test]
fn names_and_namespaces_limit_a_rule_to_resources() {
    let named = "resources: [{resources: [configmaps], resourceNames: [a]}]";
    check(named, "get", ":configmaps@ns/a", true);
    check(named, "get", ":configmaps@ns/b", false);
    check(named, "list", ":configmaps@ns", false);
    check("namespaces: [kube-system]", "get", ":pods@kube-system", true);
    check("namespaces: [kube-system]", "get", ":pods@default", false);
    check("namespaces: ['']", "get", ":nodes", true);
    check("namespaces: ['']", "get", ":pods@default", false);
    check("namespaces: ['']", "get", "/version", false);
}

#[test]
fn paths_may_end_in_a_wildcard() {
    check("nonResourceURLs: ['/healthz*']", "get", "/healthz/ping", true);
    check("nonResourceURLs: ['/healthz']", "get", "/healthz/ping", false);
    check("nonResourceURLs: ['*']", "get", "/x", true);
    check("nonResourceURLs: ['*']", "get", ":pods", false);
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = policy("- {level: None, users: [jane]}\n- {level: Request}");
    assert_eq!(policy.decide(&user("jane", &[]), &action("get", ":pods")).level, Level::None);
    assert_eq!(policy.decide(&user("joe", &[]), &action("get", ":pods")).level, Level::Request);
}

#[test]
fn stages_and_managed_fields_are_omitted_by_policy_and_rule() {
    let file = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
        omitManagedFields: true\nrules:\n\
        - {level: Metadata, users: [jane], omitStages: [Panic], omitManagedFields: false}\n\
        - {level: Metadata}";
    let policy = Policy::parse(file).unwrap();
    let jane = policy.decide(&user("jane", &[]), &action("get", ":pods"));
    assert!(!jane.records(Stage::RequestReceived) && !jane.records(Stage::Panic));
    assert!(jane.records(Stage::ResponseComplete) && !jane.omit_managed_fields);
    let joe = policy.decide(&user("joe", &[]), &action("get", ":pods"));
    assert!(!joe.records(Stage::RequestReceived) && joe.records(Stage::Panic));
    assert!(joe.omit_managed_fields);
}

#[test]
fn no_policy_records_credentials() {
    let policy = policy("- level: RequestResponse");
    for place in [":secrets", ":serviceaccounts/token", "authentication.k8s.io:tokenreviews"] {
        let decision = policy.decide(&user("jane", &[]), &action("create", place));
        assert_eq!(decision.level, Level::Metadata, "{place}");
    }
    let pods = policy.decide(&user("jane", &[]), &action("create", ":pods"));
    assert_eq!(pods.level, Level::RequestResponse);
}

#[test]
fn the_built_in_policy_records_what_matters() {
    let policy = Policy::built_in();
    let node = user("system:node:a", &["system:nodes"]);
    let jane = user("jane", &["dev"]);
    for (user, verb, place, expected) in [
        (&jane, "get", "/healthz", Level::None),
        (&jane, "get", "/api/v1", Level::None),
        (&jane, "create", ":pods@default", Level::Metadata),
        (&jane, "delete", ":pods@default/a", Level::Metadata),
        (&jane, "get", ":pods@default/a", Level::Metadata),
        (&jane, "get", ":pods/exec@default/a", Level::Metadata),
        (&jane, "create", ":pods/attach@default/a", Level::Metadata),
        (&jane, "create", ":pods/portforward@default/a", Level::Metadata),
        (&jane, "update", "coordination.k8s.io:leases@default/a", Level::Metadata),
        (&jane, "create", ":events@default", Level::None),
        (&node, "update", "coordination.k8s.io:leases@kube-node-lease/a", Level::None),
        (&node, "patch", ":pods/status@default/a", Level::None),
        (&node, "watch", ":pods", Level::None),
        (&node, "get", ":secrets@default/a", Level::Metadata),
        (&node, "get", ":pods/exec@default/a", Level::Metadata),
        (&node, "delete", ":pods@default/a", Level::Metadata),
        (&node, "create", "authentication.k8s.io:tokenreviews", Level::Metadata),
    ] {
        let decision = policy.decide(user, &action(verb, place));
        assert_eq!(decision.level, expected, "{} {verb} {place}", user.name);
        assert!(!decision.records(Stage::RequestReceived));
    }
}
