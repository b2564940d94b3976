//! What a container's spec asks for, in the order in which it is defined. Pure: nothing is fetched, and
//! whatever can be judged without fetching is judged here.

use std::collections::{BTreeMap, BTreeSet};

use waybill_api::{
    gates::{FeatureGate, FeatureGates},
    pod::{
        Container, CsiSecretSelector, EnvFromSource, EnvVar, EnvVarSource, FileKeySelector,
        HiddenText, KeySelector,
    },
};
use waybill_core::env::name::{EnvName, NameRules};

use super::{
    csi,
    error::{At, Fault, Place, Reason},
    field::FieldPath,
    file,
    resource::ResourcePath,
};
use crate::{csi::CsiVariable, objects::ObjectKind};

/// The definitions of one container, `envFrom` first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan<'p> {
    pub(super) steps: Vec<Step<'p>>,
}

/// One entry of `envFrom` or `env`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'p> {
    All(AllKeys<'p>),
    One(Variable<'p>),
}

/// Every key of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllKeys<'p> {
    /// In `envFrom`.
    pub(super) position: usize,
    pub(super) kind: ObjectKind,
    pub(super) name: &'p str,
    pub(super) prefix: &'p str,
    pub(super) optional: bool,
}

/// One variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Variable<'p> {
    /// Whatever the API server let through; the node has no rule of its own (NAME-11).
    pub(super) name: EnvName,
    pub(super) source: Source<'p>,
}

/// Where the value of a variable is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source<'p> {
    Csi(&'p CsiSecretSelector),
    Field(FieldPath<'p>),
    File(&'p FileKeySelector),
    Key(ObjectKind, &'p KeySelector),
    Resource(ResourcePath<'p>),
    /// With references to earlier variables.
    Text(&'p HiddenText),
}

/// What has to be fetched before the steps can be taken, each once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs<'p> {
    pub(super) objects: BTreeSet<(ObjectKind, &'p str)>,
    /// Volume and path, with the keys that are wanted.
    pub(super) files: BTreeMap<(&'p str, &'p str), BTreeSet<&'p str>>,
}

impl<'p> Plan<'p> {
    pub(super) fn new(container: &'p Container, gates: FeatureGates) -> Result<Self, Fault> {
        let mut steps = Vec::with_capacity(container.env_from.len() + container.env.len());
        for (position, source) in container.env_from.iter().enumerate() {
            let all = all_keys(position, source).at(|| Place::EnvFrom(position))?;
            steps.push(Step::All(all));
        }
        for (position, variable) in container.env.iter().enumerate() {
            let name = EnvName::parse(&variable.name, NameRules::Kernel);
            let name = name.at(|| Place::Env(position))?;
            let source = source(variable, gates);
            if let Some(source) = source.at(|| Place::Variable(variable.name.clone()))? {
                steps.push(Step::One(Variable { name, source }));
            }
        }
        Ok(Self { steps })
    }

    /// The variables that come from drivers, each with the position of its step.
    pub(super) fn csi_variables(&self) -> Vec<CsiVariable<'_>> {
        let variables = self.steps.iter().enumerate().filter_map(|(position, step)| match step {
            Step::One(Variable { name, source: Source::Csi(selector) }) => {
                // It was text in the pod.
                Some(CsiVariable { position, name: name.as_str()?, selector })
            }
            Step::One(_) | Step::All(_) => None,
        });
        variables.collect()
    }

    pub(super) fn needs(&self) -> Needs<'p> {
        let mut needs = Needs::default();
        for step in &self.steps {
            match step {
                Step::All(all) => {
                    needs.objects.insert((all.kind, all.name));
                }
                Step::One(Variable { source: Source::Key(kind, selector), .. }) => {
                    needs.objects.insert((*kind, &selector.name));
                }
                Step::One(Variable { source: Source::File(selector), .. }) => {
                    let file = (&*selector.volume_name, &*selector.path);
                    needs.files.entry(file).or_default().insert(&selector.key);
                }
                Step::One(_) => {}
            }
        }
        needs
    }
}

fn all_keys(position: usize, source: &EnvFromSource) -> Result<AllKeys<'_>, Reason> {
    let (kind, object) = match (&source.config_map_ref, &source.secret_ref) {
        (Some(object), None) => (ObjectKind::ConfigMap, object),
        (None, Some(object)) => (ObjectKind::Secret, object),
        _ => return Err(Reason::NoSource),
    };
    let (name, optional) = (&*object.name, object.optional);
    Ok(AllKeys { position, kind, name, prefix: &source.prefix, optional })
}

/// Where a variable's value is; none if its feature is off (FILE-25). As in Kubernetes a value that is
/// not empty goes before `valueFrom`.
fn source(variable: &EnvVar, gates: FeatureGates) -> Result<Option<Source<'_>>, Reason> {
    let Some(from) = variable.value_from.as_ref().filter(|_| variable.value.is_empty()) else {
        return Ok(Some(Source::Text(&variable.value)));
    };
    Ok(Some(match from {
        EnvVarSource { field_ref: Some(field), .. } => Source::Field(FieldPath::parse(field)?),
        EnvVarSource { resource_field_ref: Some(resource), .. } => {
            Source::Resource(ResourcePath::parse(resource)?)
        }
        EnvVarSource { config_map_key_ref: Some(key), .. } => {
            Source::Key(ObjectKind::ConfigMap, key)
        }
        EnvVarSource { secret_key_ref: Some(key), .. } => Source::Key(ObjectKind::Secret, key),
        EnvVarSource { file_key_ref: Some(key), .. } => {
            if !gates.enabled(FeatureGate::EnvFiles) {
                return Ok(None);
            }
            file::check_path(key)?;
            Source::File(key)
        }
        EnvVarSource { csi_secret_ref: Some(secret), .. } => {
            csi::check_gate(gates)?;
            Source::Csi(secret)
        }
        _ => return Err(Reason::NoSource),
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use waybill_api::pod::PodEnvSpec;

    use super::*;

    fn container(value: Value) -> Container {
        let mut spec = json!({});
        spec["containers"] = Value::Array(vec![value]);
        PodEnvSpec::from_value(&spec).unwrap().containers.remove(0)
    }

    fn sample() -> Container {
        container(json!({
            "envFrom": [
                {"configMapRef": {"name": "cm", "optional": true}, "prefix": "P_"},
                {"secretRef": {"name": "s"}},
            ],
            "env": [
                {"name": "A", "value": "x"},
                {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "t", "key": "k"}}},
                {"name": "E", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}},
                {"name": "G", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "l"}}},
                {"name": "X", "valueFrom": {"csiSecretRef": {"driver": "d"}}},
            ],
        }))
    }

    #[test]
    fn steps_stand_in_the_order_of_definition_and_needs_are_named_once() {
        let container = sample();
        let plan = Plan::new(&container, FeatureGates::all_on()).unwrap();
        let names: Vec<_> = plan
            .steps
            .iter()
            .map(|step| match step {
                Step::All(all) => format!("{:?} {} {}", all.kind, all.prefix, all.optional),
                Step::One(variable) => variable.name.to_string(),
            })
            .collect();
        assert_eq!(
            names,
            ["ConfigMap P_ true", "Secret  false", "A", "F", "R", "C", "S", "E", "G", "X"]
        );
        let needs = plan.needs();
        let objects =
            [(ObjectKind::ConfigMap, "cm"), (ObjectKind::Secret, "s"), (ObjectKind::Secret, "t")];
        assert_eq!(needs.objects, objects.into());
        assert_eq!(needs.files, [(("v", "p"), ["k", "l"].into())].into());
    }

    #[test]
    fn a_value_goes_before_value_from() {
        let container = container(json!({"env": [
            {"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}));
        let plan = Plan::new(&container, FeatureGates::all_on()).unwrap();
        assert!(matches!(plan.steps[..], [Step::One(Variable { source: Source::Text(_), .. })]));
        assert_eq!(plan.needs(), Needs::default());
    }

    #[test]
    fn env_from_needs_one_source() {
        for entry in [json!({}), json!({"configMapRef": {}, "secretRef": {}})] {
            let container = container(json!({"envFrom": [entry]}));
            assert!(Plan::new(&container, FeatureGates::all_on()).is_err());
        }
    }

    proptest! {
        /// Whatever subset of the definitions a container has, the plan has them in their order.
        #[test]
        fn a_plan_keeps_order_and_number(kept in proptest::collection::vec(any::<bool>(), 8)) {
            let mut container = sample();
            let mut keep = kept.iter();
            container.env.retain(|_| *keep.next().unwrap_or(&true));
            let plan = Plan::new(&container, FeatureGates::all_on()).unwrap();
            let planned: Vec<_> = plan.steps.iter().filter_map(|step| match step {
                Step::All(_) => None,
                Step::One(variable) => variable.name.as_str().map(ToOwned::to_owned),
            }).collect();
            let defined: Vec<_> = container.env.iter().map(|entry| entry.name.clone()).collect();
            prop_assert_eq!(planned, defined);
        }
    }
}
