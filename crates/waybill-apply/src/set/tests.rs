//! Sets of fields: their form, and the laws of sets.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures::any_set;

#[expect(clippy::needless_pass_by_value, reason = "cases are written in place")]
fn set(value: Value) -> FieldSet {
    FieldSet::parse(&value).unwrap()
}

fn members(set: &FieldSet) -> Vec<String> {
    let mut found = Vec::new();
    set.each(|path| found.push(element::describe_path(path)));
    found
}

#[test]
fn a_dot_makes_a_path_a_member_beside_those_below_it() {
    let value = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}});
    let found = set(value.clone());
    assert_eq!(members(&found), [".a", ".a.b", ".c.d"]);
    assert!(found.contains(&["f:a"]) && !found.contains(&["f:c"]));
    assert_eq!(found.into_value(), value);
}

#[test]
fn what_is_written_differently_is_read_the_same() {
    let value = json!({
        "f:a": {".": {}},
        r#"k:{"name": "x"}"#: {"f:b": {}},
        r#"k:{"name":"x"}"#: {"f:c": {}},
        "x:later": {"f:d": {}},
        "f:e": {"x:later": {}},
    });
    let expected = json!({
        "f:a": {}, r#"k:{"name":"x"}"#: {"f:b": {}, "f:c": {}}, "f:e": {},
    });
    assert_eq!(set(value).into_value(), expected);
}

#[test]
fn hostile_sets_are_refused_within_bounds() {
    let refused = |value: Value| FieldSet::parse(&value).unwrap_err();
    assert_eq!(refused(json!([])), FieldSetError::NotAnObject);
    assert_eq!(refused(json!({"f:a": 1})), FieldSetError::NotAnObject);
    assert_eq!(refused(json!({"": {}})), FieldSetError::Step(String::new()));
    assert_eq!(refused(json!({"k:{": {}})), FieldSetError::Step("k:{".to_owned()));
    let deep = (0..MAX_DEPTH + 2).fold(json!({}), |inner, _| json!({"f:a": inner}));
    assert_eq!(refused(deep), FieldSetError::TooDeep);
    let large: Tree = (0..=MAX_STEPS).map(|n| (format!("f:{n}"), json!({}))).collect();
    assert_eq!(refused(Value::Object(large)), FieldSetError::TooLarge);
}

#[test]
fn what_was_never_a_set_harms_nobody() {
    let mut odd = FieldSet::from_written(json!({"f:a": 1, "f:b": {"f:c": [1]}}));
    let other = set(json!({"f:a": {"f:x": {}}, "f:b": {"f:c": {"f:y": {}}}}));
    odd.unite(&other);
    odd.subtract(&other);
    assert!(odd.intersection(&other).is_empty());
    assert!(FieldSet::from_written(json!("nothing")).is_empty());
}

#[test]
fn removing_a_path_leaves_what_lies_below_it() {
    let mut found = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
    found.subtract(&set(json!({"f:a": {}, "f:c": {}})));
    assert_eq!(found.into_value(), json!({"f:a": {"f:b": {}}}));
    let mut found = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}));
    found.subtract_deep(&set(json!({"f:a": {}, "f:c": {"f:d": {}}})));
    assert!(found.is_empty());
}

#[test]
fn leaves_have_nothing_below_them() {
    let found = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
    assert_eq!(found.leaves().into_value(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
}

fn united(one: &FieldSet, other: &FieldSet) -> FieldSet {
    let mut set = one.clone();
    set.unite(other);
    set
}

fn without(one: &FieldSet, other: &FieldSet) -> FieldSet {
    let mut set = one.clone();
    set.subtract(other);
    set
}

proptest! {
    #[test]
    fn sets_are_written_and_read_back(a in any_set()) {
        prop_assert_eq!(&FieldSet::parse(&a.clone().into_value()).unwrap(), &a);
    }

    #[test]
    fn union_is_that_of_sets(a in any_set(), b in any_set(), c in any_set()) {
        prop_assert_eq!(united(&a, &b), united(&b, &a));
        prop_assert_eq!(united(&a, &united(&b, &c)), united(&united(&a, &b), &c));
        prop_assert_eq!(&united(&a, &a), &a);
        a.each(|path| assert!(united(&a, &b).contains(path)));
    }

    #[test]
    fn difference_and_intersection_are_those_of_sets(a in any_set(), b in any_set()) {
        let (only, both) = (without(&a, &b), a.intersection(&b));
        prop_assert_eq!(only.len() + both.len(), a.len());
        prop_assert_eq!(&united(&only, &both), &a);
        prop_assert_eq!(&both, &b.intersection(&a));
        prop_assert_eq!(&both, &without(&a, &only));
        prop_assert!(without(&a, &a).is_empty());
        only.each(|path| assert!(a.contains(path) && !b.contains(path)));
    }

    #[test]
    fn leaves_are_members_and_the_ends_of_all_paths(a in any_set()) {
        let leaves = a.leaves();
        leaves.each(|path| assert!(a.contains(path)));
        prop_assert_eq!(leaves.is_empty(), a.is_empty());
        prop_assert_eq!(&leaves.leaves(), &leaves);
    }
}
