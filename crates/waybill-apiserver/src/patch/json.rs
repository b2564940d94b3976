//! JSON Patch (RFC 6902), with the limits that keep a small patch from doing great work.
//!
//! Operations are applied one by one to a copy, so a patch that fails half-way leaves no trace.

use json_patch::{Patch, PatchErrorKind, PatchOperation, jsonptr::Pointer};
use serde_json::Value;

use super::PatchError;

/// As many operations as upstream allows.
const MAX_OPERATIONS: usize = 10_000;

/// What copies and moves may carry in one patch: upstream's limit for a request body.
const MAX_CARRIED_BYTES: usize = 3 * 1024 * 1024;

/// What `serde_json` reads back.
const MAX_DEPTH: usize = 127;

/// Applies `patch` to `to`.
pub(super) fn apply(patch: &[u8], to: &Value) -> Result<Value, PatchError> {
    // Of fields that stand twice the last one counts, as everywhere; read directly they would fail.
    let Patch(operations) = serde_json::from_slice::<Value>(patch)
        .and_then(serde_json::from_value)
        .map_err(PatchError::Malformed)?;
    let count = operations.len();
    if count > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations { count, limit: MAX_OPERATIONS });
    }
    let mut result = to.clone();
    let mut carried = 0;
    for (position, operation) in operations.iter().enumerate() {
        carried += check_cost(position, operation, &result, carried)?;
        if is_test_for_absence(operation, &result) {
            continue;
        }
        json_patch::patch_unsafe(&mut result, std::slice::from_ref(operation)).map_err(
            |error| {
                let path = error.path.as_str().to_owned();
                match error.kind {
                    PatchErrorKind::TestFailed => PatchError::Test { path },
                    kind => PatchError::Operation { position, path, kind },
                }
            },
        )?;
    }
    Ok(result)
}

/// Refuses an operation that nests too deeply or carries too much; returns what it carries.
fn check_cost(
    position: usize,
    operation: &PatchOperation,
    object: &Value,
    carried: usize,
) -> Result<usize, PatchError> {
    let at = |from: &Pointer| object.pointer(from.as_str()).unwrap_or(&Value::Null);
    let (placed, carries) = match operation {
        PatchOperation::Add(add) => (&add.value, false),
        PatchOperation::Replace(replace) => (&replace.value, false),
        PatchOperation::Copy(copy) => (at(&copy.from), true),
        // Upstream counts copies only; a move walks as far.
        PatchOperation::Move(moved) => (at(&moved.from), true),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(0),
    };
    let Extent { depth, bytes } = Extent::of(placed);
    if operation.path().count() + depth > MAX_DEPTH {
        let path = operation.path().as_str().to_owned();
        return Err(PatchError::Deep { position, path, limit: MAX_DEPTH });
    }
    match carries {
        false => Ok(0),
        true if carried + bytes > MAX_CARRIED_BYTES => {
            Err(PatchError::CarriesTooMuch { limit: MAX_CARRIED_BYTES })
        }
        true => Ok(bytes),
    }
}

/// Upstream lets `test` with `null` pass where the field is absent.
fn is_test_for_absence(operation: &PatchOperation, object: &Value) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    test.value.is_null() && object.pointer(test.path.as_str()).is_none()
}

/// How deep and how large a value is; its depth is bounded, so this may recurse.
struct Extent {
    depth: usize,
    bytes: usize,
}

impl Extent {
    fn of(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::around(items.iter().map(Self::of)),
            Value::Object(fields) => Self::around(fields.iter().map(|(key, value)| {
                let extent = Self::of(value);
                Self { bytes: extent.bytes + key.len(), ..extent }
            })),
            Value::String(text) => Self { depth: 0, bytes: text.len() + SCALAR_BYTES },
            Value::Bool(_) | Value::Null | Value::Number(_) => {
                Self { depth: 0, bytes: SCALAR_BYTES }
            }
        }
    }

    fn around(children: impl Iterator<Item = Self>) -> Self {
        let around = Self { depth: 1, bytes: SCALAR_BYTES };
        children.fold(around, |around, child| Self {
            depth: around.depth.max(child.depth + 1),
            bytes: around.bytes + child.bytes,
        })
    }
}

/// What any value takes, about, so that empty ones are not free.
const SCALAR_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::patch::Refusal;

    #[track_caller]
    fn check(patch: &Value, expected: &Value) {
        let to = json!({"metadata": {"name": "web", "labels": {"a/b": "1"}}, "list": [1, 2, 3]});
        assert_eq!(&apply(patch.to_string().as_bytes(), &to).unwrap(), expected, "{patch}");
    }

    #[track_caller]
    fn refused(patch: &Value, to: &Value) -> PatchError {
        apply(patch.to_string().as_bytes(), to).unwrap_err()
    }

    #[test]
    fn operations_apply_in_order() {
        check(
            &json!([
                {"op": "test", "path": "/metadata/name", "value": "web"},
                {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"},
                {"op": "add", "path": "/list/-", "value": 4},
                {"op": "remove", "path": "/list/0"},
                {"op": "copy", "from": "/list/0", "path": "/first"},
                {"op": "move", "from": "/metadata/labels", "path": "/labels"},
            ]),
            &json!({"metadata": {"name": "web"}, "labels": {"a/b": "2"}, "list": [2, 3, 4], "first": 2}),
        );
    }

    #[test]
    fn a_test_for_null_holds_where_nothing_is() {
        let to = json!({"list": []});
        let patch = json!([{"op": "test", "path": "/gone", "value": null}]);
        assert_eq!(apply(patch.to_string().as_bytes(), &to).unwrap(), to);
    }

    #[test]
    fn failed_tests_and_wrong_paths_are_unprocessable_and_bad_operations_are_bad_requests() {
        let to = json!({"a": 1});
        let test = refused(&json!([{"op": "test", "path": "/a", "value": 2}]), &to);
        assert!(matches!(test, PatchError::Test { .. }));
        assert_eq!(test.refusal(), Refusal::UnprocessableEntity);
        for patch in [
            json!([{"op": "remove", "path": "/b"}]),
            json!([{"op": "replace", "path": "/b", "value": 1}]),
            json!([{"op": "add", "path": "/b/c", "value": 1}]),
            json!([{"op": "copy", "from": "/b", "path": "/c"}]),
            json!([{"op": "move", "from": "/a", "path": "/a/b"}]),
            json!([{"op": "remove", "path": ""}]),
        ] {
            assert_eq!(refused(&patch, &to).refusal(), Refusal::UnprocessableEntity, "{patch}");
        }
        for patch in [
            json!({}),
            json!([{"op": "add", "path": "/a"}]),
            json!([{"op": "grow", "path": "/a"}]),
            json!([{"op": "remove", "path": "a"}]),
        ] {
            assert_eq!(refused(&patch, &to).refusal(), Refusal::BadRequest, "{patch}");
        }
    }

    #[test]
    fn too_many_operations_are_too_large() {
        let many = vec![json!({"op": "test", "path": "", "value": {}}); MAX_OPERATIONS + 1];
        let error = refused(&Value::Array(many), &json!({}));
        assert_eq!(error.refusal(), Refusal::RequestEntityTooLarge);
        assert_eq!(
            error.to_string(),
            "The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let double = vec![json!({"op": "copy", "from": "", "path": "/list/-"}); 100];
        let error = refused(&Value::Array(double), &json!({"list": ["x".repeat(1000)]}));
        assert!(matches!(error, PatchError::CarriesTooMuch { .. }));
    }

    #[test]
    fn moves_cannot_nest_without_bound() {
        let step = [
            json!({"op": "add", "path": "/b", "value": {}}),
            json!({"op": "move", "from": "/a", "path": "/b/a"}),
            json!({"op": "move", "from": "/b", "path": "/a"}),
        ];
        let patch: Vec<_> = std::iter::repeat_n(step, 3_000).flatten().collect();
        let error = refused(&Value::Array(patch), &json!({"a": {}}));
        assert!(matches!(error, PatchError::Deep { .. }), "{error}");
    }
}
