//! References of pods to values from outside: what is refused, and what is added to a pod so that its node can fetch them.
//!
//! A variable whose whole value is `waybill{<class>/<key>}` gets its value below the container runtime. The kubelet knows
//! nothing of that and would put the reference itself wherever `$(NAME)` stands, so such pods are refused, with the reason.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    stock::{AskedReference, Reference},
};
use waybill_core::env::expand;

use super::session::RUNTIME_CLASS;

/// The volume by which the kubelet brings the token of the pod to our agent.
pub(super) const VOLUME: &str = "waybill-values";

/// The driver that our agent is.
pub(super) const DRIVER: &str = "values.csi.waybill.dev";

/// Where the volume is mounted; a kubelet passes over volumes that nothing mounts. There is nothing to see in it.
const MOUNT_PATH: &str = "/run/waybill-values";

/// The attribute of the volume that lists references by container: JSON of name, class and key each.
const ATTRIBUTE: &str = "references";

/// The lists of containers that may have references.
const LISTS: [&str; 2] = ["initContainers", "containers"];

/// Containers that are added to a running pod, which gets no volume any more.
const EPHEMERAL: &str = "ephemeralContainers";

/// What a pod refers to, by container in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct References {
    by_container: BTreeMap<String, Vec<AskedReference>>,
}

impl References {
    /// Reads the references of a pod's `spec`, or says all that is wrong with them.
    pub(super) fn of(spec: &Value) -> Result<Self, ErrorList> {
        let mut found = Self::default();
        let mut errors = ErrorList::new();
        for list in LISTS.into_iter().chain([EPHEMERAL]) {
            for (at, container) in items(spec, list).iter().enumerate() {
                let path = FieldPath::new("spec").child(list).index(at);
                let references = of_container(container, &path, &mut errors);
                if references.is_empty() {
                    continue;
                }
                if list == EPHEMERAL {
                    errors.push(FieldError::forbidden(path.child("env"), NOT_EPHEMERAL));
                }
                found.by_container.insert(text(container, "name").to_owned(), references);
            }
        }
        if !found.is_empty() {
            errors.extend(check_pod(spec));
        }
        if errors.is_empty() { Ok(found) } else { Err(errors) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_container.is_empty()
    }

    /// Each class and key that is referred to, once.
    pub(super) fn keys(&self) -> BTreeSet<(&str, &str)> {
        let all = self.by_container.values().flatten();
        all.map(|reference| (&*reference.class, &*reference.key)).collect()
    }

    fn volume(&self) -> Value {
        let listed = serde_json::to_string(&self.by_container).unwrap_or_default();
        json!({"name": VOLUME, "csi": {
            "driver": DRIVER, "readOnly": true, "volumeAttributes": {ATTRIBUTE: listed}}})
    }
}

const NOT_EPHEMERAL: &str =
    "a reference cannot work in an ephemeral container: a running pod gets no further volume";

const COMPOSED: &str = "this variable is a reference, and the kubelet would put the reference itself here; let the program \
    read the variable";

const INSIDE: &str =
    "a reference must be the whole value of a variable; write waybill{{ for a literal";

/// The references of one container; what is wrong with it is added to `errors`.
fn of_container(
    container: &Value,
    path: &FieldPath,
    errors: &mut ErrorList,
) -> Vec<AskedReference> {
    let env = items(container, "env");
    let mut found = Vec::new();
    let mut others = words(container, path);
    for (at, variable) in env.iter().enumerate() {
        let value = text(variable, "value");
        let path = path.child("env").index(at).child("value");
        match Reference::parse(value) {
            Ok(Some(reference)) => {
                found.push(AskedReference::new(text(variable, "name"), &reference));
            }
            Ok(None) => others.push((path, value)),
            Err(error) => errors.push(FieldError::forbidden(path, error.to_string())),
        }
    }
    let names: BTreeSet<&str> = found.iter().map(|reference| &*reference.name).collect();
    for (path, word) in others {
        if refers_to(word, &names) {
            errors.push(FieldError::forbidden(path, COMPOSED));
        } else if holds_reference(word) {
            errors.push(FieldError::forbidden(path, INSIDE));
        }
    }
    found
}

/// Every text of a container but its variables in which the kubelet replaces `$(NAME)`, with its place.
fn words<'a>(container: &'a Value, path: &FieldPath) -> Vec<(FieldPath, &'a str)> {
    let mut found = Vec::new();
    let mut list = |path: &FieldPath, words: &'a [Value]| {
        for (at, word) in words.iter().enumerate() {
            found.push((path.index(at), word.as_str().unwrap_or_default()));
        }
    };
    for field in ["command", "args"] {
        list(&path.child(field), items(container, field));
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(exec) = container.get(probe).and_then(|probe| probe.get("exec")) {
            list(&path.child(probe).child("exec").child("command"), items(exec, "command"));
        }
    }
    for (at, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = path.child("volumeMounts").index(at).child("subPathExpr");
        found.push((path, text(mount, "subPathExpr")));
    }
    found
}

fn refers_to(word: &str, names: &BTreeSet<&str>) -> bool {
    expand::references(word.as_bytes())
        .filter_map(|name| std::str::from_utf8(name).ok())
        .any(|name| names.contains(name))
}

/// Whether somewhere in `text` stands what would be a reference if it stood alone.
fn holds_reference(text: &str) -> bool {
    const OPEN: &str = "waybill{";
    text.match_indices(OPEN).any(|(at, _)| {
        let rest = text.get(at..).unwrap_or_default();
        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
        matches!(Reference::parse(rest.get(..end).unwrap_or_default()), Ok(Some(_)))
    })
}

/// What a pod with references must be.
fn check_pod(spec: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let class = text(spec, "runtimeClassName");
    if !class.is_empty() && class != RUNTIME_CLASS {
        let path = FieldPath::new("spec").child("runtimeClassName");
        let why = format!("references need the RuntimeClass {RUNTIME_CLASS:?}");
        errors.push(FieldError::forbidden(path, why));
    }
    for (at, volume) in items(spec, "volumes").iter().enumerate() {
        if text(volume, "name") == VOLUME && !is_ours(volume) {
            let path = FieldPath::new("spec").child("volumes").index(at).child("name");
            errors.push(FieldError::forbidden(
                path,
                "this name is kept for the volume that references need",
            ));
        }
    }
    errors
}

/// As in a pod that was copied from one that we had changed.
fn is_ours(volume: &Value) -> bool {
    volume.pointer("/csi/driver").and_then(Value::as_str) == Some(DRIVER)
}

/// The change of a new pod, as a JSON patch; empty if there is nothing to change. A pod of a machine's own files stays what
/// it is: its kubelet has started it already.
pub(super) fn patch(pod: &Value, references: &References) -> Vec<Value> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mirrored = pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some();
    let mut patch = Vec::new();
    if mirrored {
        return patch;
    }
    let class = text(spec, "runtimeClassName");
    if class.is_empty() {
        patch.push(add("/spec/runtimeClassName", json!(RUNTIME_CLASS)));
    }
    if class.is_empty() || class == RUNTIME_CLASS {
        patch.extend(confined(spec));
    }
    let kept = items(spec, "volumes").iter().filter(|volume| !is_ours(volume));
    let volumes: Vec<_> =
        kept.cloned().chain((!references.is_empty()).then(|| references.volume())).collect();
    if volumes != items(spec, "volumes") {
        patch.push(add("/spec/volumes", json!(volumes)));
    }
    for list in LISTS {
        for (at, container) in items(spec, list).iter().enumerate() {
            let mounts = mounts(container, references);
            if mounts != items(container, "volumeMounts") {
                patch.push(add(&format!("/spec/{list}/{at}/volumeMounts"), json!(mounts)));
            }
        }
    }
    patch
}

/// A seccomp profile for a pod that says nothing about one. Without, root in a container could mount cgroups again and move processes
/// between sessions.
fn confined(spec: &Value) -> Option<Value> {
    let mut context =
        spec.get("securityContext").and_then(Value::as_object).cloned().unwrap_or_default();
    if context.get("seccompProfile").is_some_and(|profile| !profile.is_null()) {
        return None;
    }
    context.insert("seccompProfile".to_owned(), json!({"type": "RuntimeDefault"}));
    Some(add("/spec/securityContext", Value::Object(context)))
}

fn mounts(container: &Value, references: &References) -> Vec<Value> {
    let others =
        items(container, "volumeMounts").iter().filter(|mount| text(mount, "name") != VOLUME);
    let ours = json!({"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": true});
    let needs = references.by_container.contains_key(text(container, "name"));
    others.cloned().chain(needs.then_some(ours)).collect()
}

/// Replaces what is there.
fn add(path: &str, value: Value) -> Value {
    let mut operation = Map::new();
    operation.insert("op".to_owned(), json!("add"));
    operation.insert("path".to_owned(), json!(path));
    operation.insert("value".to_owned(), value);
    Value::Object(operation)
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = "waybill{vault/db/password}";

    fn pod(container: &Value) -> Value {
        let mut container = container.clone();
        container["name"] = "c".into();
        json!({"metadata": {"name": "web"}, "spec": {"containers": [container]}})
    }

    /// Texts of all that is wrong; none if nothing is.
    fn faults(pod: &Value) -> Vec<String> {
        let errors = References::of(&pod["spec"]).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn check_refused(container: &Value, path: &str, part: &str) {
        let faults = faults(&pod(container));
        assert!(
            faults.len() == 1 && faults[0].starts_with(&format!("{path}: Forbidden")),
            "{faults:?}"
        );
        assert!(faults[0].contains(part), "{faults:?}");
    }

    fn with(fields: &Value) -> Value {
        let mut container = json!({"env": [{"name": "S", "value": REFERENCE}]});
        let fields = fields.as_object().unwrap().clone();
        container.as_object_mut().unwrap().extend(fields);
        container
    }

    #[test]
    fn a_reference_brings_the_runtime_class_and_a_volume() {
        let pod = pod(&with(&json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})));
        let references = References::of(&pod["spec"]).unwrap();
        assert_eq!(references.keys().into_iter().collect::<Vec<_>>(), [("vault", "db/password")]);
        let listed = "{\"c\":[{\"name\":\"S\",\"class\":\"vault\",\"key\":\"db/password\"}]}";
        assert_eq!(
            json!(patch(&pod, &references)),
            json!([
                {"op": "add", "path": "/spec/runtimeClassName", "value": "waybill"},
                {"op": "add", "path": "/spec/securityContext", "value": {
                    "seccompProfile": {"type": "RuntimeDefault"}}},
                {"op": "add", "path": "/spec/volumes", "value": [{"name": "waybill-values", "csi": {
                    "driver": "values.csi.waybill.dev", "readOnly": true,
                    "volumeAttributes": {"references": listed}}}]},
                {"op": "add", "path": "/spec/containers/0/volumeMounts", "value": [
                    {"name": "v", "mountPath": "/v"},
                    {"name": "waybill-values", "mountPath": "/run/waybill-values", "readOnly": true}]},
            ])
        );
    }

    #[test]
    fn a_pod_without_references_gets_the_runtime_class_and_a_filter_unless_it_says_otherwise() {
        let mut plain = pod(&json!({"env": [{"name": "A", "value": "waybill{{literal}"}]}));
        let none = References::of(&plain["spec"]).unwrap();
        let class = json!({"op": "add", "path": "/spec/runtimeClassName", "value": "waybill"});
        let filter = |context: Value| json!({"op": "add", "path": "/spec/securityContext", "value": context});
        let default = json!({"type": "RuntimeDefault"});
        assert_eq!(
            json!(patch(&plain, &none)),
            json!([class, filter(json!({"seccompProfile": default}))])
        );
        plain["spec"]["securityContext"] = json!({"runAsUser": 7});
        plain["spec"]["runtimeClassName"] = "waybill".into();
        let both = json!({"runAsUser": 7, "seccompProfile": default});
        assert_eq!(json!(patch(&plain, &none)), json!([filter(both)]));
        plain["spec"]["securityContext"]["seccompProfile"] = json!({"type": "Unconfined"});
        assert!(patch(&plain, &none).is_empty(), "the pod says what it wants");
        let mut other = pod(&json!({}));
        other["spec"]["runtimeClassName"] = "kata".into();
        assert!(patch(&other, &none).is_empty(), "it is not ours");
        let mut mirror = pod(&json!({}));
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        assert!(patch(&mirror, &none).is_empty());
    }

    #[test]
    fn a_copy_of_a_changed_pod_is_changed_anew() {
        let pod = pod(&with(&json!({})));
        let references = References::of(&pod["spec"]).unwrap();
        let mut copy = pod.clone();
        copy["spec"]["runtimeClassName"] = "waybill".into();
        copy["spec"]["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        let mut volume = references.volume();
        volume["csi"]["volumeAttributes"] = json!({"references": "what another pod had"});
        copy["spec"]["volumes"] = json!([volume]);
        copy["spec"]["containers"][0]["volumeMounts"] =
            json!(mounts(&pod["spec"]["containers"][0], &references));
        let operations = patch(&copy, &References::of(&copy["spec"]).unwrap());
        assert_eq!(operations.len(), 1);
        assert_eq!(operations[0]["value"], json!([references.volume()]));
    }

    #[test]
    fn compositions_with_a_reference_are_refused_where_the_kubelet_would_make_them() {
        for field in ["command", "args"] {
            let path = format!("spec.containers[0].{field}[1]");
            check_refused(&with(&json!({field: ["x", "--p=$(S)"]})), &path, "let the program");
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            let path = format!("spec.containers[0].{probe}.exec.command[0]");
            check_refused(&with(&json!({probe: {"exec": {"command": ["$(S)"]}}})), &path, "");
        }
        let mount = json!({"volumeMounts": [{"name": "v", "subPathExpr": "a/$(S)"}]});
        check_refused(&with(&mount), "spec.containers[0].volumeMounts[0].subPathExpr", "");
        let env =
            json!({"env": [{"name": "S", "value": REFERENCE}, {"name": "T", "value": "x$(S)"}]});
        check_refused(&env, "spec.containers[0].env[1].value", "let the program");
        for harmless in ["$$(S)", "$S", "$(T)"] {
            assert!(faults(&pod(&with(&json!({"args": [harmless]})))).is_empty(), "{harmless}");
        }
    }

    #[test]
    fn references_where_they_cannot_work_are_refused() {
        let inside = "whole value";
        let env = json!({"env": [{"name": "U", "value": "pg://u:waybill{vault/p}@db"}]});
        check_refused(&env, "spec.containers[0].env[0].value", inside);
        let args = json!({"args": [format!("--p={REFERENCE}")]});
        check_refused(&args, "spec.containers[0].args[0]", inside);
        let half = json!({"env": [{"name": "U", "value": "waybill{vault/p"}]});
        check_refused(&half, "spec.containers[0].env[0].value", "ends with }");
        let mut ephemeral = pod(&json!({}));
        ephemeral["spec"]["ephemeralContainers"] =
            json!([{"name": "d", "env": [{"name": "S", "value": REFERENCE}]}]);
        assert!(faults(&ephemeral)[0].starts_with("spec.ephemeralContainers[0].env: Forbidden"));
        for text in ["waybill{{vault/p}", "waybill", "see waybill{ for more", "{vault/p}"] {
            let env = json!({"env": [{"name": "U", "value": text}], "args": [text]});
            assert!(faults(&pod(&env)).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_pod_with_references_keeps_our_class_and_our_volume_free() {
        let mut other = pod(&with(&json!({})));
        other["spec"]["runtimeClassName"] = "kata".into();
        other["spec"]["volumes"] = json!([{"name": "waybill-values", "emptyDir": {}}]);
        let told = faults(&other);
        assert!(told[0].starts_with("spec.runtimeClassName: Forbidden"), "{told:?}");
        assert!(told[1].starts_with("spec.volumes[0].name: Forbidden"), "{told:?}");
    }
}
