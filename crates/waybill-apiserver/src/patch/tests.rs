//! What patches do whatever they contain.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kinds::{namespace::NAMESPACES, pod::PODS};

#[track_caller]
fn merged(to: &Value, patch: &Value) -> Value {
    apply(PatchType::Merge, patch.to_string().as_bytes(), to, PODS.patch).unwrap()
}

#[test]
fn the_examples_of_rfc_7386_hold() {
    for (to, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(merged(&to, &patch), result, "{patch} on {to}");
    }
}

#[test]
fn media_types_name_the_kind_of_patch() {
    let kind = |text: &str| PatchType::from_content_type(text).unwrap();
    assert_eq!(kind("application/json-patch+json"), PatchType::Json);
    assert_eq!(kind("Application/Merge-Patch+JSON; charset=utf-8"), PatchType::Merge);
    assert_eq!(kind("application/strategic-merge-patch+json"), PatchType::Strategic);
    assert_eq!(kind("application/apply-patch+yaml"), PatchType::Apply);
    for other in ["application/json", "application/apply-patch+cbor"] {
        let error = PatchType::from_content_type(other).unwrap_err();
        assert_eq!(error.refusal(), Refusal::UnsupportedMediaType, "{other}");
    }
}

#[test]
fn patches_that_cannot_be_read_are_bad_requests() {
    let deep = "[".repeat(200);
    for kind in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
        for patch in ["", "{", "1", "\"x\"", &deep, "\u{0}"] {
            let error = apply(kind, patch.as_bytes(), &json!({}), PODS.patch).unwrap_err();
            assert_eq!(error.refusal(), Refusal::BadRequest, "{kind:?} {patch:?}");
        }
    }
    for kind in [PatchType::Merge, PatchType::Strategic] {
        let error = apply(kind, b"[]", &json!({}), PODS.patch).unwrap_err();
        assert!(matches!(error, PatchError::NotAnObject));
    }
}

/// JSON that meets the words which patches give a meaning to.
pub(super) fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3).prop_map(Value::from),
        prop::sample::select(vec!["a", "b", "delete", "replace", "merge"]).prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "$deleteFromPrimitiveList/finalizers",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "containers",
        "env",
        "finalizers",
        "image",
        "metadata",
        "name",
        "spec",
        "tolerations",
        "volumes",
    ]);
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn objects() -> impl Strategy<Value = Value> {
    (documents(), documents(), documents()).prop_map(
        |(metadata, spec, status)| json!({"metadata": metadata, "spec": spec, "status": status}),
    )
}

proptest! {
    #[test]
    fn an_empty_patch_changes_nothing(object in objects()) {
        for kind in [PatchType::Merge, PatchType::Strategic] {
            prop_assert_eq!(&apply(kind, b"{}", &object, PODS.patch).unwrap(), &object);
        }
        prop_assert_eq!(&apply(PatchType::Json, b"[]", &object, PODS.patch).unwrap(), &object);
    }

    #[test]
    fn a_merge_patch_changes_nothing_the_second_time(object in objects(), patch in objects()) {
        let once = merged(&object, &patch);
        prop_assert_eq!(merged(&once, &patch), once);
    }

    #[test]
    fn no_document_panics(object in documents(), patch in documents()) {
        let patch = patch.to_string();
        for kind in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
            for fields in [PODS.patch, NAMESPACES.patch, schema::ANY] {
                let _ = apply(kind, patch.as_bytes(), &object, fields);
            }
        }
    }

    #[test]
    fn no_bytes_panic(data in any::<Vec<u8>>()) {
        for kind in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
            let _ = apply_bytes(kind, &data, PODS.patch);
            let _ = apply_bytes(kind, &[b"{}\0", data.as_slice()].concat(), PODS.patch);
        }
    }
}
