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
    error::{Located, Place, Reason},
    field::FieldPath,
    file,
    resource::ResourcePath,
};
use crate::objects::ObjectKind;

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
    pub(super) fn new(container: &'p Container, gates: FeatureGates) -> Located<Self> {
        let mut steps = Vec::with_capacity(container.env_from.len() + container.env.len());
        for (position, source) in container.env_from.iter().enumerate() {
            steps.push(Step::All(all_keys(position, source)?));
        }
        for (position, variable) in container.env.iter().enumerate() {
            let name = EnvName::parse(&variable.name, NameRules::Kernel)
                .map_err(|fault| (Place::Env(position), fault.into()))?;
            let place = |reason| (Place::Variable(variable.name.clone()), reason);
            if let Some(source) = source(variable, gates).map_err(place)? {
                steps.push(Step::One(Variable { name, source }));
            }
        }
        Ok(Self { steps })
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

fn all_keys(position: usize, source: &EnvFromSource) -> Located<AllKeys<'_>> {
    let (kind, object) = match (&source.config_map_ref, &source.secret_ref) {
        (Some(object), None) => (ObjectKind::ConfigMap, object),
        (None, Some(object)) => (ObjectKind::Secret, object),
        _ => return Err((Place::EnvFrom(position), Reason::NoSource)),
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
