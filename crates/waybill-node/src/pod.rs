//! A pod as the node sees it: the object, the view of its environments, and where it came from.

use std::fmt;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, PodSpec, VolumeMount};
use serde::de::Error;
use serde_json::Value;
use waybill_api::pod::{Container as EnvContainer, ContainerKind, PodEnvSpec};
use waybill_core::id::PodUid;

/// The object as Kubernetes types it.
pub(crate) type PodObject = k8s_openapi::api::core::v1::Pod;

/// One pod. Cheap to share behind an `Arc`, never changed in place: an update is a new one.
#[derive(Clone)]
pub(crate) struct Pod {
    object: PodObject,
    /// Environments are read through the view of the API crate, which knows fields that the types of
    /// Kubernetes do not have yet, and does not print values.
    environment: PodEnvSpec,
    spec: PodSpec,
    uid: PodUid,
    origin: PodOrigin,
}

/// Who told the node of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodOrigin {
    ApiServer,
    /// A file in the directory of static pods, by the index of nothing else: it has no API object of
    /// its own, at most a mirror.
    File,
}

impl Pod {
    /// Reads a pod object. It must have a name, a namespace, a uid that is fit for a file name, and a
    /// spec. Errors do not repeat values.
    pub(crate) fn from_value(object: Value, origin: PodOrigin) -> Result<Self, serde_json::Error> {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let environment = PodEnvSpec::from_value(spec)?;
        let mut object: PodObject = serde_json::from_value(object)?;
        let spec = object.spec.take().ok_or_else(|| Error::custom("the pod has no spec"))?;
        let metadata = &object.metadata;
        for (field, value) in [("name", &metadata.name), ("namespace", &metadata.namespace)] {
            if value.as_deref().unwrap_or_default().is_empty() {
                return Err(Error::custom(format_args!("the pod has no metadata.{field}")));
            }
        }
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let uid = PodUid::parse(uid).map_err(Error::custom)?;
        Ok(Self { object, environment, spec, uid, origin })
    }

    pub(crate) fn uid(&self) -> &PodUid {
        &self.uid
    }

    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.object.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn origin(&self) -> PodOrigin {
        self.origin
    }

    /// Metadata and last known status. The spec is not in it; see [`Pod::spec`].
    pub(crate) fn object(&self) -> &PodObject {
        &self.object
    }

    pub(crate) fn spec(&self) -> &PodSpec {
        &self.spec
    }

    /// What the spec says about the environment of one container.
    pub(crate) fn environment_of(&self, kind: ContainerKind, name: &str) -> Option<&EnvContainer> {
        self.environment
            .all_containers()
            .find(|(found, _, container)| *found == kind && container.name == name)
            .map(|(_, _, container)| container)
    }

    /// The volumes of the pod as the environment sees them.
    pub(crate) fn environments(&self) -> &PodEnvSpec {
        &self.environment
    }

    /// Every container: init containers first, in their order, then regular and ephemeral ones.
    pub(crate) fn containers(&self) -> impl Iterator<Item = ContainerRef<'_>> {
        let init = self.spec.init_containers.iter().flatten();
        let init = init.map(|container| ContainerRef {
            kind: ContainerKind::Init,
            container: ContainerSpec::Usual(container),
        });
        let regular = self.spec.containers.iter().map(|container| ContainerRef {
            kind: ContainerKind::Regular,
            container: ContainerSpec::Usual(container),
        });
        let ephemeral = self.spec.ephemeral_containers.iter().flatten();
        let ephemeral = ephemeral.map(|container| ContainerRef {
            kind: ContainerKind::Ephemeral,
            container: ContainerSpec::Ephemeral(container),
        });
        init.chain(regular).chain(ephemeral)
    }

    /// Whether somebody asked for the pod to go.
    pub(crate) fn is_deleted(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

/// Says which pod it is and not what is in it: specs hold the values of variables.
impl fmt::Debug for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pod({}/{}, {})", self.namespace(), self.name(), self.uid)
    }
}

/// One container of a pod, of any kind.
#[derive(Clone, Copy)]
pub(crate) struct ContainerRef<'p> {
    pub(crate) kind: ContainerKind,
    pub(crate) container: ContainerSpec<'p>,
}

impl fmt::Debug for ContainerRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContainerRef({}, {:?})", self.name(), self.kind)
    }
}

/// Ephemeral containers have a type of their own with the same fields.
#[derive(Clone, Copy)]
pub(crate) enum ContainerSpec<'p> {
    Ephemeral(&'p EphemeralContainer),
    Usual(&'p Container),
}

impl<'p> ContainerRef<'p> {
    pub(crate) fn name(&self) -> &'p str {
        match self.container {
            ContainerSpec::Ephemeral(container) => &container.name,
            ContainerSpec::Usual(container) => &container.name,
        }
    }

    /// What it mounts.
    pub(crate) fn volume_mounts(&self) -> &'p [VolumeMount] {
        let mounts = match self.container {
            ContainerSpec::Ephemeral(container) => container.volume_mounts.as_deref(),
            ContainerSpec::Usual(container) => container.volume_mounts.as_deref(),
        };
        mounts.unwrap_or_default()
    }

    /// Whether it is an init container that runs beside the regular ones.
    pub(crate) fn is_sidecar(&self) -> bool {
        match self.container {
            ContainerSpec::Ephemeral(_) => false,
            ContainerSpec::Usual(container) => {
                self.kind == ContainerKind::Init
                    && container.restart_policy.as_deref() == Some("Always")
            }
        }
    }
}
