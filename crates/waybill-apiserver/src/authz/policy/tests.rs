//! The policy after changes in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::authz::fixtures::{binding, role};

/// One change of one object.
#[derive(Clone, Debug)]
enum Change {
    Put(Value),
    Delete(Value),
}

fn labelled_role() -> impl Strategy<Value = Value> {
    let verbs = prop::collection::vec("[ab]", 0..3);
    ("[xyz]", "[tu]", verbs, any::<bool>()).prop_map(|(name, label, verbs, aggregated)| {
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
        let mut role = role("", &name, &rules);
        role["metadata"]["labels"] = json!({"to": label});
        if aggregated {
            role["aggregationRule"] =
                json!({"clusterRoleSelectors": [{"matchLabels": {"to": label}}]});
        }
        role
    })
}

fn object() -> impl Strategy<Value = Value> {
    let subject = prop_oneof![
        "[pq]".prop_map(|name| format!("User/{name}")),
        "[pq]".prop_map(|name| format!("Group/{name}")),
        "[pq]".prop_map(|name| format!("ServiceAccount/n/{name}")),
        "[pq]".prop_map(|name| format!("ServiceAccount/{name}")),
        "[pq]".prop_map(|name| format!("Robot/{name}")),
    ];
    let subjects = prop::collection::vec(subject, 0..4);
    let binding = ("[nm]?", "[xyz]", "(Role|ClusterRole|Rolle)/[xyz]", subjects).prop_map(
        |(namespace, name, role, subjects)| {
            let subjects: Vec<_> = subjects.iter().map(String::as_str).collect();
            binding(&namespace, &name, &role, &subjects)
        },
    );
    let local = ("[nm]", "[xyz]").prop_map(|(namespace, name)| role(&namespace, &name, &json!([])));
    prop_oneof![labelled_role(), local, binding]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![3 => object().prop_map(Change::Put), 1 => object().prop_map(Change::Delete)]
}

proptest! {
    #[test]
    fn a_policy_that_followed_changes_equals_one_made_from_what_is_left(
        changes in prop::collection::vec(change(), 0..40),
    ) {
        let mut policy = Policy::default();
        let mut left = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(object) => {
                    policy.put(RbacObject::from_value(&object).unwrap());
                    left.insert(RbacKey::of(&object).unwrap().to_string(), object);
                }
                Change::Delete(object) => {
                    let key = RbacKey::of(&object).unwrap();
                    policy.remove(&key);
                    left.remove(&key.to_string());
                }
            }
        }
        let (fresh, errors) = Policy::from_objects(left.values());
        prop_assert!(errors.is_empty());
        prop_assert_eq!(policy, fresh);
    }
}

#[test]
fn a_policy_that_lost_everything_is_empty() {
    let objects = [role("n", "r", &json!([])), binding("n", "b", "Role/r", &["User/u", "Group/g"])];
    let (mut policy, _) = Policy::from_objects(&objects);
    assert_ne!(policy, Policy::default());
    for object in &objects {
        policy.remove(&RbacKey::of(object).unwrap());
    }
    assert_eq!(policy, Policy::default());
}
