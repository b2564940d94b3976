//! What a pod refers to, wherever in its spec.

use std::collections::BTreeSet;

use serde_json::Value;

use super::graph::{ObjectName, text};

/// A thing that a pod needs from the API server to run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reference {
    ConfigMap(ObjectName),
    ProviderClass(Box<str>),
    Secret(ObjectName),
    ServiceAccount(ObjectName),
}

/// Everything that `pod` refers to, each once.
pub(super) fn references(pod: &Value) -> Vec<Reference> {
    let mut found = Found { namespace: text(pod, "/metadata/namespace"), names: BTreeSet::new() };
    let Some(spec) = pod.get("spec") else { return Vec::new() };
    found.add(Reference::ServiceAccount, text(spec, "/serviceAccountName"));
    for secret in items(spec, "imagePullSecrets") {
        found.add(Reference::Secret, text(secret, "/name"));
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, list).for_each(|container| found.add_container(container));
    }
    items(spec, "volumes").for_each(|volume| found.add_volume(volume));
    found.names.into_iter().collect()
}

/// What was found so far.
struct Found<'a> {
    namespace: &'a str,
    names: BTreeSet<Reference>,
}

impl Found<'_> {
    fn add_container(&mut self, container: &Value) {
        for source in items(container, "env").filter_map(|variable| variable.get("valueFrom")) {
            self.add(Reference::Secret, text(source, "/secretKeyRef/name"));
            self.add(Reference::ConfigMap, text(source, "/configMapKeyRef/name"));
            let class = text(source, "/csiSecretRef/providerClassName");
            if !class.is_empty() {
                self.names.insert(Reference::ProviderClass(class.into()));
            }
        }
        for source in items(container, "envFrom") {
            self.add(Reference::Secret, text(source, "/secretRef/name"));
            self.add(Reference::ConfigMap, text(source, "/configMapRef/name"));
        }
    }

    fn add_volume(&mut self, volume: &Value) {
        self.add(Reference::Secret, text(volume, "/secret/secretName"));
        self.add(Reference::ConfigMap, text(volume, "/configMap/name"));
        self.add(Reference::Secret, text(volume, "/azureFile/secretName"));
        self.add(Reference::Secret, text(volume, "/csi/nodePublishSecretRef/name"));
        for source in
            volume.pointer("/projected/sources").and_then(Value::as_array).into_iter().flatten()
        {
            self.add(Reference::Secret, text(source, "/secret/name"));
            self.add(Reference::ConfigMap, text(source, "/configMap/name"));
        }
        // The older kinds of volumes all call it `secretRef`.
        for source in volume.as_object().into_iter().flat_map(|fields| fields.values()) {
            self.add(Reference::Secret, text(source, "/secretRef/name"));
        }
    }

    fn add(&mut self, reference: fn(ObjectName) -> Reference, name: &str) {
        if !name.is_empty() {
            self.names.insert(reference(ObjectName::new(self.namespace, name)));
        }
    }
}

fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(name: &str) -> Reference {
        Reference::Secret(ObjectName::new("ns", name))
    }

    fn config_map(name: &str) -> Reference {
        Reference::ConfigMap(ObjectName::new("ns", name))
    }

    #[track_caller]
    fn check(spec: &Value, expected: &[Reference]) {
        let pod = json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": spec});
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(references(&pod), expected, "{pod}");
    }

    #[test]
    fn variables_refer_to_secrets_config_maps_and_classes_in_every_kind_of_container() {
        let container = json!({
            "env": [
                {"name": "A", "value": "plain"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                {"name": "D", "valueFrom": {"csiSecretRef": {"providerClassName": "class"}}},
                {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "envFrom": [{"secretRef": {"name": "s2"}}, {"configMapRef": {"name": "c2"}}],
        });
        let class = Reference::ProviderClass("class".into());
        let all = [secret("s"), secret("s2"), config_map("c"), config_map("c2"), class];
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            check(&json!({list: [container]}), &all);
        }
        check(&json!({"containers": [container, container]}), &all);
    }

    #[test]
    fn volumes_refer_to_secrets_and_config_maps() {
        for (volume, expected) in [
            (json!({"secret": {"secretName": "s"}}), vec![secret("s")]),
            (json!({"configMap": {"name": "c"}}), vec![config_map("c")]),
            (
                json!({"projected": {"sources": [
                    {"secret": {"name": "s"}}, {"configMap": {"name": "c"}},
                    {"serviceAccountToken": {"path": "token"}}, {"downwardAPI": {}},
                ]}}),
                vec![secret("s"), config_map("c")],
            ),
            (json!({"csi": {"nodePublishSecretRef": {"name": "s"}}}), vec![secret("s")]),
            (json!({"azureFile": {"secretName": "s"}}), vec![secret("s")]),
            (json!({"rbd": {"secretRef": {"name": "s"}}}), vec![secret("s")]),
            (json!({"emptyDir": {}}), vec![]),
        ] {
            check(&json!({"volumes": [volume]}), &expected);
        }
    }

    #[test]
    fn the_pod_refers_to_its_account_and_pull_secrets() {
        check(
            &json!({"serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}, {}]}),
            &[Reference::ServiceAccount(ObjectName::new("ns", "sa")), secret("pull")],
        );
    }

    #[test]
    fn a_pod_of_any_shape_is_read_without_harm() {
        for spec in [
            json!(null),
            json!([]),
            json!({"containers": 1, "volumes": "x"}),
            json!({"containers": [null, {"env": [1, {"valueFrom": "x"}]}], "volumes": [[], 1]}),
        ] {
            check(&spec, &[]);
        }
    }
}
