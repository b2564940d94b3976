//! What is to be done, on paper; the doing of it is in the tests of the server.

use super::*;

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid of {name}")}})
}

/// A CSINode that has drivers, of which all give variables.
fn csi_node(name: &str, drivers: &[&str]) -> Value {
    let list: Vec<_> = drivers.iter().map(|name| json!({"name": name})).collect();
    json!({
        "metadata": {
            "name": name,
            "annotations": {ENV_DRIVERS: drivers.join(",")},
            "ownerReferences": [{"kind": "Node", "name": name, "uid": format!("uid of {name}")}]},
        "spec": {"drivers": list},
    })
}

/// A CSIDriver that was made here and has been stored.
fn stored(name: &str) -> Value {
    let mut driver = driver(name);
    driver["metadata"]["generation"] = json!(1);
    driver
}

/// OP-43
#[test]
fn a_driver_that_registers_has_an_object_until_no_node_has_it_op_43() {
    let nodes = [node("a"), node("b")];
    let both = [csi_node("a", &["d.csi"]), csi_node("b", &["d.csi"])];
    assert_eq!(plan(&nodes, &both, &[]), [Act::Create(driver("d.csi"))]);
    assert_eq!(plan(&nodes, &both, &[stored("d.csi")]), []);
    assert_eq!(plan(&nodes, &both[..1], &[stored("d.csi")]), []);
    let none = [csi_node("a", &[])];
    assert_eq!(plan(&nodes, &none, &[stored("d.csi")]), [Act::Delete(stored("d.csi"))]);
}

/// Drivers of volumes alone are none of ours.
#[test]
fn a_driver_without_variables_gets_no_object() {
    let mut object = csi_node("a", &["d.csi", "e.csi"]);
    object["metadata"]["annotations"][ENV_DRIVERS] = json!("e.csi, other.csi");
    assert_eq!(plan(&[node("a")], &[object], &[]), [Act::Create(driver("e.csi"))]);
}

#[test]
fn what_somebody_made_or_changed_stays() {
    let (mut changed, mut theirs) = (stored("d.csi"), stored("d.csi"));
    changed["metadata"]["generation"] = json!(2);
    theirs["metadata"]["annotations"] = json!({});
    for driver in [changed, theirs] {
        assert_eq!(plan(&[], &[], &[driver]), []);
    }
}

/// OP-43
#[test]
fn a_csi_node_goes_with_its_node_op_43() {
    let gone = csi_node("a", &["d.csi"]);
    assert_eq!(plan(&[node("a")], std::slice::from_ref(&gone), &[stored("d.csi")]), []);
    let acts = [Act::Delete(gone.clone()), Act::Delete(stored("d.csi"))];
    assert_eq!(plan(&[], std::slice::from_ref(&gone), &[stored("d.csi")]), acts);
    // A node of the same name that came later is another one.
    let mut other = node("a");
    other["metadata"]["uid"] = json!("other");
    assert_eq!(plan(&[other], std::slice::from_ref(&gone), &[]), [Act::Delete(gone.clone())]);
    let mut free = gone.clone();
    free["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(plan(&[], &[free], &[stored("d.csi")]), []);
    let mut shared = gone;
    shared["metadata"]["ownerReferences"] =
        json!([{"kind": "Node", "uid": "x"}, {"kind": "ConfigMap", "uid": "y"}]);
    assert_eq!(plan(&[], &[shared], &[stored("d.csi")]), []);
}

#[test]
fn a_node_that_makes_up_names_fills_no_store() {
    let names: Vec<_> = (0..500).map(|number| format!("d{number}.csi")).collect();
    let mut names: Vec<_> = names.iter().map(String::as_str).collect();
    names.extend(["../x", "a/b", ""]);
    let acts = plan(&[node("a")], &[csi_node("a", &names)], &[stored("mine.csi")]);
    let made = acts.iter().filter(|act| matches!(act, Act::Create(_))).count();
    assert_eq!(made, DRIVERS - 1);
    assert!(!format!("{acts:?}").contains("../x"));
}
