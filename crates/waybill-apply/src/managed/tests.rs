//! How managers are read, written and merged.

use serde_json::json;

use super::*;

fn entry(manager: &str, time: &str, field: &str) -> Value {
    json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": {field: {}}})
}

#[test]
fn entries_are_read_and_written_in_order() {
    let apply = json!({"manager": "b", "operation": "Apply", "apiVersion": "v1",
        "time": "2026-01-02T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:b": {}},
        "subresource": "status"});
    let (older, newer) =
        (entry("z", "2026-01-01T00:00:00Z", "f:a"), entry("a", "2026-01-03T00:00:00Z", "f:c"));
    let managed = ManagedFields::parse(&json!([newer, apply, older])).unwrap();
    assert_eq!(managed.into_value(), Some(json!([apply, older, newer])));
    let written = ManagedFields::from_written(json!([apply, older]));
    assert_eq!(written.into_value(), Some(json!([apply, older])));
}

/// Finding one among many takes time: thousands in one request held up the whole server.
#[test]
fn a_peer_names_no_more_managers_than_an_object_may_have_and_none_without_a_proper_name() {
    let many = |count: usize| {
        let entries = (0..count).map(|number| entry(&number.to_string(), "", "f:a"));
        ManagedFields::parse(&Value::Array(entries.collect()))
    };
    assert_eq!(many(256).unwrap().entries().len(), 256);
    assert_eq!(many(257).unwrap_err(), ManagedFieldsError::TooMany);
    for name in ["a".repeat(129), "a\u{1b}[2J".to_owned(), "a\nb".to_owned()] {
        let refused = ManagedFields::parse(&json!([entry(&name, "", "f:a")])).unwrap_err();
        assert!(matches!(refused, ManagedFieldsError::Manager { at: 0, .. }), "{name:?}");
    }
    let mut long = entry("a", "", "f:a");
    long["subresource"] = json!("s".repeat(257));
    let refused = ManagedFields::parse(&json!([long])).unwrap_err();
    assert_eq!(refused, ManagedFieldsError::Subresource { at: 0 });
}

#[test]
fn what_cannot_be_read_is_refused() {
    let refused = |entry: Value| ManagedFields::parse(&json!([entry])).unwrap_err();
    let mut wrong = entry("a", "", "f:a");
    wrong["operation"] = json!("Delete");
    assert_eq!(refused(wrong), ManagedFieldsError::Operation);
    let mut wrong = entry("a", "", "f:a");
    wrong["apiVersion"] = json!("");
    assert_eq!(refused(wrong), ManagedFieldsError::ApiVersion);
    let mut wrong = entry("a", "", "f:a");
    wrong["fieldsType"] = json!("FieldsV2");
    assert_eq!(
        refused(wrong).to_string(),
        "invalid fieldsType \"FieldsV2\" in managed fields entry 0"
    );
    assert!(matches!(refused(entry("a", "", "a")), ManagedFieldsError::Fields { at: 0, .. }));
}

#[test]
fn the_oldest_of_many_updaters_become_one() {
    let updaters: Vec<_> = (10..22)
        .map(|n| entry(&format!("m{n}"), &format!("2026-01-{n}T00:00:00Z"), &format!("f:{n}")))
        .collect();
    let mut managed = ManagedFields::parse(&Value::Array(updaters)).unwrap();
    managed.cap_updaters();
    let managed = managed.into_value().unwrap();
    assert_eq!(managed.as_array().unwrap().len(), MAX_UPDATERS);
    assert_eq!(
        managed[0],
        json!({"manager": "ancient-changes", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-12T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:10": {}, "f:11": {}, "f:12": {}}})
    );
    assert_eq!(managed[1]["manager"], "m13");
}

#[test]
fn an_empty_list_or_entry_asks_to_forget() {
    for reset in [json!([]), json!([{}]), json!([{"manager": "", "fieldsV1": null}])] {
        assert!(is_reset(&reset), "{reset}");
    }
    for other in [json!(null), json!([{"manager": "a"}]), json!([{}, {}])] {
        assert!(!is_reset(&other), "{other}");
    }
}

#[test]
fn a_manager_without_a_name_is_called_as_its_user_agent() {
    assert_eq!(manager_of_user_agent("kubectl/v1.32.0 (linux/amd64)"), "kubectl");
    assert_eq!(manager_of_user_agent("a\u{7}b/1"), "ab");
    assert_eq!(manager_of_user_agent(&"é".repeat(100)).len(), MANAGER_MAX_LENGTH);
    assert_eq!(manager_of_user_agent(""), "");
    assert_eq!(check_manager("kube ctl"), Ok(()));
    assert_eq!(check_manager(&"x".repeat(129)), Err(ManagerNameError::TooLong));
    assert_eq!(
        check_manager("ab\u{7}").unwrap_err().to_string(),
        "invalid character U+0007 (at position 2)"
    );
}

#[test]
fn times_alone_are_no_change() {
    let object = |time: &str, data: &str| json!({"metadata": {"name": "a", "managedFields": [entry("m", time, "f:a")]}, "data": data});
    let old = object("2026-01-01T00:00:00Z", "x");
    let mut same = object("2026-01-02T00:00:00Z", "x");
    keep_times(&mut same, &old);
    assert_eq!(same, old);
    let mut other = object("2026-01-02T00:00:00Z", "y");
    keep_times(&mut other, &old);
    assert_eq!(other, object("2026-01-02T00:00:00Z", "y"));
}
