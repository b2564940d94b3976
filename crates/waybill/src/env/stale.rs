//! `waybill env --stale`: containers that run on values which are others at their driver by now.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::Value;
use waybill_client::{Place, Requests};

use super::{Provenance, provenance};
use crate::{Outcome, columns::align, target::pods, terminal::plain};

/// The annotation of pods whose drivers are asked again.
const FOLLOWED: &str = "/metadata/annotations/waybill.dev~1restart-on-rotation";

/// Of a container that its node did not start itself, and of which it has found no record.
const UNKNOWN: &str = "unknown: the node was restarted since, and compares with what it found then";

/// Prints what is stale in one pod, or in all pods of the namespace.
pub(super) async fn run(
    requests: &Requests,
    namespace: &str,
    pod: Option<&str>,
    container: Option<&str>,
) -> Result<Outcome> {
    let mut rows = vec![["POD", "CONTAINER", "NAME", "FROM"].map(str::to_owned).to_vec()];
    for (pod, found) in containers(requests, namespace, pod).await? {
        if container.is_some_and(|wanted| wanted != found) {
            continue;
        }
        // A container that was never made runs on nothing.
        if let Ok(told) = provenance(requests, namespace, &pod, Some(&found)).await {
            rows.extend(stale_rows(&pod, &found, &told));
        }
    }
    let text = if rows.len() == 1 {
        "No container is known to run on old values.\n".to_owned()
    } else {
        align(&rows)
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(Outcome::Success)
}

/// Pods and their containers, where drivers are asked again.
async fn containers(
    requests: &Requests,
    namespace: &str,
    pod: Option<&str>,
) -> Result<Vec<(String, String)>> {
    let place = Place::Namespace(namespace.to_owned());
    let objects = match pod {
        Some(pod) => vec![requests.get(&pods().object_path(&place, pod)).await?],
        None => {
            let mut list = requests.get(&pods().path(&place)).await?;
            match list.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
    };
    Ok(objects.iter().filter(|object| is_followed(object)).flat_map(names).collect())
}

fn is_followed(pod: &Value) -> bool {
    pod.pointer(FOLLOWED).and_then(Value::as_str) == Some("true")
}

fn names(pod: &Value) -> Vec<(String, String)> {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let lists = ["/spec/initContainers", "/spec/containers"];
    let all = lists.into_iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten();
    all.map(|container| (text(pod, "/metadata/name"), text(container, "/name"))).collect()
}

fn stale_rows(pod: &str, container: &str, told: &Provenance) -> Vec<Vec<String>> {
    let text = |variable: &Value, field: &str| {
        plain(variable.get(field).and_then(Value::as_str).unwrap_or_default())
    };
    let stale = told.variables.iter().filter(|it| told.stale.contains(&text(it, "name")));
    let row = |name: String, from: String| vec![pod.to_owned(), container.to_owned(), name, from];
    let mut rows: Vec<_> =
        stale.map(|variable| row(text(variable, "name"), text(variable, "from"))).collect();
    if told.stale_unknown {
        rows.push(row("?".to_owned(), UNKNOWN.to_owned()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_names_pod_container_and_origin() {
        let told: Provenance = serde_json::from_value(json!({
            "variables": [{"name": "A", "from": "CSI d, class c, key k"}, {"name": "B", "from": "x"}],
            "stale": ["A"],
        }))
        .unwrap();
        let rows = stale_rows("web", "app", &told);
        assert_eq!(rows, [["web", "app", "A", "CSI d, class c, key k"]]);
    }

    /// CSI-60
    #[test]
    fn what_nobody_knows_is_said_to_be_unknown_csi_60() {
        let told: Provenance = serde_json::from_value(json!({
            "variables": [{"name": "A", "from": "CSI d, class c, key k"}],
            "staleUnknown": true,
        }))
        .unwrap();
        assert_eq!(stale_rows("web", "app", &told), [["web", "app", "?", UNKNOWN]]);
    }

    #[test]
    fn only_pods_that_are_followed_are_asked_about() {
        let pod = |value: &str| {
            json!({
                "metadata": {
                    "name": "web", "annotations": {"waybill.dev/restart-on-rotation": value}},
                "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]},
            })
        };
        assert!(is_followed(&pod("true")) && !is_followed(&pod("false")));
        let pair = |container: &str| ("web".to_owned(), container.to_owned());
        assert_eq!(names(&pod("true")), [pair("i"), pair("a")]);
    }
}
