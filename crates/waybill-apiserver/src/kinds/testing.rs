//! How the tests of all kinds ask their questions.

use serde_json::Value;
use waybill_api::{field::ErrorList, gates::FeatureGates, pod::EnvOptions};

use super::{Context, Kind};

/// Every gate on, no option.
pub(super) fn context() -> Context {
    Context { gates: FeatureGates::all_on(), env: EnvOptions::default() }
}

/// `object` is created; each of `expected` is how an error begins.
#[track_caller]
pub(super) fn check_create(kind: &dyn Kind, object: &Value, expected: &[&str]) {
    let mut object = object.clone();
    kind.default(&mut object);
    kind.prepare_create(&mut object, &context());
    check_errors(&kind.validate_create(&object, &context()), expected);
}

/// `new` replaces `old`; each of `expected` is how an error begins.
#[track_caller]
pub(super) fn check_update(kind: &dyn Kind, new: &Value, old: &Value, expected: &[&str]) {
    let (mut new, mut old) = (new.clone(), old.clone());
    kind.default(&mut old);
    kind.prepare_create(&mut old, &context());
    kind.default(&mut new);
    kind.prepare_update(&mut new, &old, &context());
    new["metadata"]["resourceVersion"] = "1".into();
    check_errors(&kind.validate_update(&new, &old, &context()), expected);
}

#[track_caller]
pub(super) fn check_errors(errors: &ErrorList, expected: &[&str]) {
    let found: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

/// `object` after its defaults; they must not change a second time.
#[track_caller]
pub(super) fn defaulted(kind: &dyn Kind, object: &Value) -> Value {
    let mut once = object.clone();
    kind.default(&mut once);
    let mut twice = once.clone();
    kind.default(&mut twice);
    assert_eq!(once, twice, "defaulting twice");
    once
}
