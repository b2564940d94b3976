//! What the graph knows after pods come, change and go.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod(name: &str, node: &str, secrets: &[&str]) -> Value {
    let volumes: Vec<_> =
        secrets.iter().map(|secret| json!({"secret": {"secretName": secret}})).collect();
    json!({
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "spec": {"nodeName": node, "volumes": volumes},
    })
}

fn reads(graph: &NodeGraph, node: &str, secret: &str) -> bool {
    graph.refers(node, &Reference::Secret(ObjectName::new("ns", secret)))
}

#[test]
fn a_pod_without_node_gives_nobody_anything() {
    let graph = NodeGraph::default();
    graph.pod_changed(None, Some(&pod("p", "", &["s"])));
    assert!(!reads(&graph, "", "s") && !reads(&graph, "n", "s"));
}

#[test]
fn binding_gives_and_deleting_takes() {
    let graph = NodeGraph::default();
    let (unbound, bound) = (pod("p", "", &["s"]), pod("p", "n", &["s"]));
    graph.pod_changed(None, Some(&unbound));
    graph.pod_changed(Some(&unbound), Some(&bound));
    assert!(reads(&graph, "n", "s") && !reads(&graph, "m", "s"));
    assert!(graph.is_bound("n", &ObjectName::new("ns", "p")));
    graph.pod_changed(Some(&bound), None);
    assert!(!reads(&graph, "n", "s"));
    assert!(!graph.is_bound("n", &ObjectName::new("ns", "p")));
    assert_eq!(*graph.edges(), Edges::default());
}

#[test]
fn a_reference_stays_as_long_as_one_pod_has_it() {
    let graph = NodeGraph::default();
    let (p, q) = (pod("p", "n", &["s", "s"]), pod("q", "n", &["s"]));
    graph.pod_changed(None, Some(&p));
    graph.pod_changed(None, Some(&q));
    graph.pod_changed(Some(&p), None);
    assert!(reads(&graph, "n", "s"));
    graph.pod_changed(Some(&q), None);
    assert!(!reads(&graph, "n", "s"));
}

#[test]
fn a_changed_spec_replaces_what_was_referred_to() {
    let graph = NodeGraph::default();
    let (old, new) = (pod("p", "n", &["s"]), pod("p", "n", &["t"]));
    graph.pod_changed(None, Some(&old));
    graph.pod_changed(Some(&old), Some(&new));
    assert!(!reads(&graph, "n", "s") && reads(&graph, "n", "t"));
}

#[test]
fn a_changed_status_changes_nothing() {
    let graph = NodeGraph::default();
    let old = pod("p", "n", &["s"]);
    graph.pod_changed(None, Some(&old));
    let mut new = old.clone();
    new["status"] = json!({"phase": "Running"});
    graph.pod_changed(Some(&old), Some(&new));
    assert!(reads(&graph, "n", "s"));
}

#[test]
fn an_update_of_a_pod_never_seen_adds_it() {
    let graph = NodeGraph::default();
    let pod = pod("p", "n", &["s"]);
    graph.pod_changed(Some(&pod), Some(&pod));
    assert!(reads(&graph, "n", "s"));
}

proptest! {
    #[test]
    fn a_graph_that_followed_changes_equals_one_made_from_what_is_left(
        changes in prop::collection::vec(
            ("[pqr]", "[nm]?", prop::collection::vec("[stu]", 0..3), any::<bool>()), 0..30),
    ) {
        let graph = NodeGraph::default();
        let mut left: HashMap<String, Value> = HashMap::new();
        for (name, node, secrets, deletes) in changes {
            let secrets: Vec<_> = secrets.iter().map(String::as_str).collect();
            let old = left.remove(&name);
            if deletes {
                graph.pod_changed(old.as_ref(), None);
            } else {
                let new = pod(&name, &node, &secrets);
                graph.pod_changed(old.as_ref(), Some(&new));
                left.insert(name, new);
            }
        }
        let fresh = NodeGraph::default();
        left.values().for_each(|pod| fresh.pod_changed(None, Some(pod)));
        prop_assert_eq!(&*graph.edges(), &*fresh.edges());
    }
}
