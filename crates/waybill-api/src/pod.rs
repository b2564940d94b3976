//! The environment of a pod, as its spec defines it.
//!
//! Objects are JSON documents; [`PodEnvSpec`] is a view of the few fields that decide the variables
//! of its containers. [`drop_disabled_fields`] is applied to the document first, then [`validate()`]
//! judges the view under the [`EnvRules`] that were chosen once for the whole object.

mod csi_words;
mod disabled;
mod embed;
mod env;
mod json;
mod name_use;
mod rules;
mod validate;

use std::collections::{BTreeMap, BTreeSet};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny},
};
use serde_json::Value;

use self::json::{list, object_from, or_default, texts};
pub use self::{
    csi_words::{ALLOW_CSI_WORDS, CsiWord, allows_csi_words, csi_word_errors, csi_words},
    disabled::drop_disabled_fields,
    embed::{pod_spec_path, pod_spec_pointer},
    env::{
        CsiSecretSelector, EnvFromSource, EnvSource, EnvVar, EnvVarSource, FileKeySelector,
        HiddenText, KeySelector, ObjectFieldSelector, ResourceFieldSelector,
    },
    name_use::{NameRole, NameUse, strict_name_findings},
    rules::{EnvOptions, EnvRules},
    validate::{validate, warnings},
};

/// The parts of a pod spec that concern environments; all else is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodEnvSpec {
    /// The containers that run for the life of the pod.
    #[serde(deserialize_with = "list")]
    pub containers: Vec<Container>,
    /// The containers that run before them, sidecars included.
    #[serde(deserialize_with = "list")]
    pub init_containers: Vec<Container>,
    /// The containers that were added for debugging.
    #[serde(deserialize_with = "list")]
    pub ephemeral_containers: Vec<Container>,
    /// The volumes of the pod.
    #[serde(deserialize_with = "list")]
    pub volumes: Vec<Volume>,
}

impl PodEnvSpec {
    /// Takes the view of `spec`, which must be an object. The error never repeats a value.
    pub fn from_value(spec: &Value) -> Result<Self, serde_json::Error> {
        let found = object_from::<Self, serde_json::Error>(spec.clone())?;
        found.ok_or_else(|| Error::custom("found null where a pod spec belongs"))
    }

    /// Every container with its kind and its position in the list of that kind, in the order in
    /// which Kubernetes judges them.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, usize, &Container)> {
        [
            (ContainerKind::Regular, &self.containers),
            (ContainerKind::Init, &self.init_containers),
            (ContainerKind::Ephemeral, &self.ephemeral_containers),
        ]
        .into_iter()
        .flat_map(|(kind, list)| {
            list.iter().enumerate().map(move |(position, container)| (kind, position, container))
        })
    }

    /// Every source of a variable, in all containers.
    pub fn sources(&self) -> impl Iterator<Item = &EnvVarSource> {
        self.all_containers()
            .flat_map(|(_, _, container)| &container.env)
            .filter_map(|variable| variable.value_from.as_ref())
    }

    /// The ephemeral containers that `old` does not have, and nothing else of the spec.
    #[must_use]
    pub fn ephemeral_containers_beyond(self, old: &Self) -> Self {
        let kept: BTreeSet<&str> = old.ephemeral_containers.iter().map(|it| &*it.name).collect();
        let mut added = self.ephemeral_containers;
        added.retain(|container| !kept.contains(&*container.name));
        Self { ephemeral_containers: added, ..Self::default() }
    }

    /// The CSI drivers that fetch variables, as often as they are named.
    pub fn csi_drivers(&self) -> impl Iterator<Item = &str> {
        self.sources().filter_map(|source| Some(&*source.csi_secret_ref.as_ref()?.driver))
    }
}

/// The three lists of containers in a pod spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// In `ephemeralContainers`.
    Ephemeral,
    /// In `initContainers`.
    Init,
    /// In `containers`.
    Regular,
}

impl ContainerKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Ephemeral, Self::Init, Self::Regular];

    /// The field of the pod spec that lists containers of this kind.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeralContainers",
            Self::Init => "initContainers",
            Self::Regular => "containers",
        }
    }
}

/// One container of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// What it runs instead of the image's entry point.
    #[serde(deserialize_with = "texts")]
    pub command: Vec<HiddenText>,
    /// The arguments of that.
    #[serde(deserialize_with = "texts")]
    pub args: Vec<HiddenText>,
    /// Its variables, one by one.
    #[serde(deserialize_with = "list")]
    pub env: Vec<EnvVar>,
    /// Its variables, by whole ConfigMaps and Secrets.
    #[serde(deserialize_with = "list")]
    pub env_from: Vec<EnvFromSource>,
    /// The volumes that it mounts.
    #[serde(deserialize_with = "list")]
    pub volume_mounts: Vec<VolumeMount>,
}

/// A volume that a container mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeMount {
    /// Name of the volume.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// A volume of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// What else is set in it: one field per kind of volume.
    #[serde(flatten, deserialize_with = "set_fields")]
    sources: BTreeSet<String>,
}

impl Volume {
    /// Whether the volume is an `emptyDir`, of whatever medium. One that names no source is made
    /// one by the defaults of the API.
    pub fn is_empty_dir(&self) -> bool {
        self.sources.is_empty() || self.sources.contains("emptyDir")
    }
}

/// The names of the fields that are not null.
fn set_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    let fields = BTreeMap::<String, Option<IgnoredAny>>::deserialize(deserializer)?;
    Ok(fields.into_iter().filter_map(|(name, value)| value.map(|_| name)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(spec: &Value) -> PodEnvSpec {
        PodEnvSpec::from_value(spec).unwrap()
    }

    #[track_caller]
    fn check_refused(spec: &Value, expected: &str) {
        let error = PodEnvSpec::from_value(spec).unwrap_err().to_string();
        assert_eq!(error, expected, "{spec}");
    }

    /// One container with the one variable.
    fn with_variable(variable: &Value) -> Value {
        json!({"containers": [{"name": "c", "env": [variable]}]})
    }

    #[test]
    fn the_view_takes_what_concerns_environments_and_ignores_the_rest() {
        let spec = view(&json!({
            "nodeName": "n",
            "containers": [{
                "name": "app",
                "image": "busybox",
                "env": [
                    {"name": "A", "value": "x"},
                    {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "R", "valueFrom": {"resourceFieldRef": {
                        "containerName": "app", "resource": "limits.cpu", "divisor": "1m"}}},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {
                        "name": "cm", "key": "k", "optional": true}}},
                    {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    {"name": "E", "valueFrom": {"fileKeyRef": {
                        "volumeName": "v", "path": "p", "key": "k", "optional": true}}},
                    {"name": "X", "valueFrom": {"csiSecretRef": {
                        "driver": "d", "providerClassName": "pc", "key": "k",
                        "parameters": {"role": "r"}, "optional": true}}},
                ],
                "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm", "optional": true}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }],
            "initContainers": [{"name": "init"}],
            "ephemeralContainers": [{"name": "debug", "targetContainerName": "app"}],
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        }));
        let app = &spec.containers[0];
        assert_eq!(app.env[0].value.expose(), "x");
        let source = |position: usize| app.env[position].value_from.clone().unwrap();
        assert_eq!(source(1).field_ref.unwrap().api_version, "v1");
        assert_eq!(source(2).resource_field_ref.unwrap().divisor.to_string(), "1m");
        assert!(source(3).config_map_key_ref.unwrap().optional);
        assert!(!source(4).secret_key_ref.unwrap().optional);
        assert_eq!(source(5).file_key_ref.unwrap().volume_name, "v");
        let csi = source(6).csi_secret_ref.unwrap();
        assert_eq!(csi.parameters["role"].expose(), "r");
        assert!(csi.optional);
        assert!(app.env_from[0].config_map_ref.as_ref().unwrap().optional);
        assert_eq!(app.volume_mounts[0].name, "v");
        let kinds: Vec<_> =
            spec.all_containers().map(|(kind, at, c)| (kind, at, &*c.name)).collect();
        assert_eq!(
            kinds,
            [
                (ContainerKind::Regular, 0, "app"),
                (ContainerKind::Init, 0, "init"),
                (ContainerKind::Ephemeral, 0, "debug"),
            ]
        );
    }

    #[test]
    fn null_and_absent_mean_empty() {
        assert_eq!(view(&json!({})), PodEnvSpec::default());
        let nulls = json!({
            "containers": null, "initContainers": null, "ephemeralContainers": null,
            "volumes": null,
        });
        assert_eq!(view(&nulls), PodEnvSpec::default());
        assert_eq!(view(&json!({"containers": [null]})).containers, [Container::default()]);
        let nulls = json!({"containers": [{
            "name": null, "command": null, "args": null, "env": null, "envFrom": null,
            "volumeMounts": null}]});
        assert_eq!(view(&nulls).containers, [Container::default()]);
        let nulls = with_variable(&json!({"name": null, "value": null, "valueFrom": null}));
        assert_eq!(view(&nulls).containers[0].env, [EnvVar::default()]);
        let nulls = with_variable(&json!({"valueFrom": {
            "fieldRef": {"apiVersion": null, "fieldPath": null},
            "resourceFieldRef": {"resource": null, "divisor": null},
            "csiSecretRef": {"parameters": {"a": null}, "optional": null},
            "secretKeyRef": null,
        }}));
        let source = view(&nulls).containers[0].env[0].value_from.clone().unwrap();
        assert_eq!(source.field_ref, Some(ObjectFieldSelector::default()));
        assert!(source.resource_field_ref.unwrap().divisor.is_zero());
        assert!(source.csi_secret_ref.unwrap().parameters["a"].is_empty());
        assert_eq!(source.secret_key_ref, None);
    }

    #[test]
    fn a_volume_is_an_empty_dir_if_it_says_so_or_says_nothing() {
        let is_empty_dir =
            |volume: Value| view(&json!({"volumes": [volume]})).volumes[0].is_empty_dir();
        assert!(is_empty_dir(json!({"name": "v", "emptyDir": {}})));
        assert!(is_empty_dir(json!({"name": "v", "emptyDir": {"medium": "Memory"}})));
        assert!(is_empty_dir(json!({"name": "v"})));
        assert!(is_empty_dir(json!({"name": "v", "emptyDir": null, "secret": null})));
        assert!(!is_empty_dir(json!({"name": "v", "emptyDir": null, "hostPath": {"path": "/"}})));
        assert!(!is_empty_dir(json!({"name": "v", "secret": {}})));
    }

    #[test]
    fn wrong_kinds_are_errors_that_say_where() {
        check_refused(&json!(null), "found null where a pod spec belongs");
        check_refused(&json!([[], [], [], []]), "found a list where an object belongs");
        check_refused(&json!({"containers": {}}), "found an object where a list belongs");
        check_refused(
            &json!({"containers": [{}, 5]}),
            "item 1: found a number where an object belongs",
        );
        check_refused(
            &json!({"containers": [{"env": "X"}]}),
            "item 0: found a string where a list belongs",
        );
        check_refused(
            &with_variable(&json!({"name": {}})),
            "item 0: item 0: invalid type: map, expected a string",
        );
        check_refused(
            &with_variable(&json!({"valueFrom": []})),
            "item 0: item 0: found a list where an object belongs",
        );
    }

    const CANARY: &str = "hunter2";

    /// Whatever a user typed where a value belongs stays out of `Debug` and of errors.
    #[test]
    fn values_are_never_printed() {
        let shown = view(&with_variable(&json!({
            "name": "A",
            "value": CANARY,
            "valueFrom": {"csiSecretRef": {"parameters": {"token": CANARY}}},
        })));
        let shown = format!("{shown:?} {shown:#?}");
        assert!(!shown.contains(CANARY), "{shown}");
        assert!(shown.contains("HiddenText(7 bytes)"), "{shown}");

        for misplaced in [
            with_variable(&json!(CANARY)),
            with_variable(&json!([CANARY, CANARY])),
            with_variable(&json!({"value": [CANARY]})),
            with_variable(&json!({"value": {"a": CANARY}})),
            with_variable(&json!({"valueFrom": CANARY})),
            with_variable(&json!({"valueFrom": {"secretKeyRef": CANARY}})),
            with_variable(&json!({"valueFrom": {"csiSecretRef": {"parameters": {"a": [CANARY]}}}})),
            json!({"containers": [{"env": CANARY}]}),
            json!({"containers": [{"command": CANARY}]}),
            json!({"containers": [{"args": [[CANARY]]}]}),
            json!({"containers": CANARY}),
            json!(CANARY),
        ] {
            let error = PodEnvSpec::from_value(&misplaced).unwrap_err().to_string();
            assert!(!error.contains(CANARY), "{error}");
        }
        let error = PodEnvSpec::from_value(&with_variable(&json!({"value": 271828}))).unwrap_err();
        assert_eq!(error.to_string(), "item 0: item 0: found a number where a string belongs");
    }
}
