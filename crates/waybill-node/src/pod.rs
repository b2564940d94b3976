//! A pod as the node sees it: the object, the view of its environments, and where it came from.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRule, ContainerStatus, EphemeralContainer, Lifecycle, PodSpec,
    ResourceRequirements, SecurityContext, VolumeMount,
};
use serde::de::Error;
use serde_json::Value;
use sha2::{Digest, Sha256};
use waybill_api::pod::{Container as EnvContainer, ContainerKind, PodEnvSpec};
use waybill_core::id::PodUid;

use crate::deadline;

/// What a spec means that does not say how long stopping may take.
const DEFAULT_GRACE: i64 = 30;

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

    /// The same pod whose containers ask for other resources, by their names.
    pub(crate) fn with_resources(
        &self,
        resources: &BTreeMap<String, ResourceRequirements>,
    ) -> Self {
        let mut pod = self.clone();
        let init = pod.spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut pod.spec.containers) {
            if let Some(resources) = resources.get(&container.name) {
                container.resources = Some(resources.clone());
            }
        }
        pod
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

    pub(crate) fn init(&self) -> impl Iterator<Item = ContainerRef<'_>> {
        self.containers().filter(|container| container.kind == ContainerKind::Init)
    }

    pub(crate) fn regular(&self) -> impl Iterator<Item = ContainerRef<'_>> {
        self.containers().filter(|container| container.kind == ContainerKind::Regular)
    }

    pub(crate) fn ephemeral(&self) -> impl Iterator<Item = ContainerRef<'_>> {
        self.containers().filter(|container| container.kind == ContainerKind::Ephemeral)
    }

    /// One container by its name, which no other container of the pod has.
    pub(crate) fn container(&self, name: &str) -> Option<ContainerRef<'_>> {
        self.containers().find(|container| container.name() == name)
    }

    /// What the API server remembers of a container, in whatever life of the node it was.
    pub(crate) fn container_status(&self, container: ContainerRef<'_>) -> Option<&ContainerStatus> {
        let status = self.object.status.as_ref()?;
        let all = match container.kind {
            ContainerKind::Init => &status.init_container_statuses,
            ContainerKind::Regular => &status.container_statuses,
            ContainerKind::Ephemeral => &status.ephemeral_container_statuses,
        };
        all.iter().flatten().find(|status| status.name == container.name())
    }

    /// When a node first took it, as the API server remembers it.
    pub(crate) fn start_time(&self) -> Option<Timestamp> {
        Some(self.object.status.as_ref()?.start_time.as_ref()?.0)
    }

    /// Whether the API server remembers that its node can never give it what it asks for now.
    pub(crate) fn has_infeasible_resize(&self) -> bool {
        let conditions = self.object.status.iter().flat_map(|status| &status.conditions).flatten();
        conditions.into_iter().any(|condition| {
            condition.type_ == "PodResizePending"
                && condition.status == "True"
                && condition.reason.as_deref() == Some("Infeasible")
        })
    }

    /// Whether the API server remembers that it succeeded or failed, so that it never runs again.
    pub(crate) fn has_ended(&self) -> bool {
        let phase = self.object.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    pub(crate) fn restart_policy(&self) -> RestartPolicy {
        RestartPolicy::parse(self.spec.restart_policy.as_deref())
    }

    /// How long its containers may take to stop: what whoever deleted it said, or else the spec.
    pub(crate) fn grace(&self) -> i64 {
        let asked =
            self.object.metadata.deletion_grace_period_seconds.filter(|_| self.is_deleted());
        let grace = asked.or(self.spec.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE);
        deadline::at_most(grace).max(1)
    }

    /// As messages name it.
    pub(crate) fn shown(&self) -> String {
        format!("{}_{}({})", self.name(), self.namespace(), self.uid)
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

/// When a container that ended starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    Never,
    OnFailure,
}

impl RestartPolicy {
    fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
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

    /// The image as the spec names it.
    pub(crate) fn image(&self) -> &str {
        let image = match self.container {
            ContainerSpec::Ephemeral(container) => &container.image,
            ContainerSpec::Usual(container) => &container.image,
        };
        image.as_deref().unwrap_or_default()
    }

    /// Its own policy, or that of its pod.
    pub(crate) fn restart_policy(&self, pod: &Pod) -> RestartPolicy {
        match self.container {
            ContainerSpec::Ephemeral(_) => RestartPolicy::Never,
            ContainerSpec::Usual(container) if container.restart_policy.is_some() => {
                RestartPolicy::parse(container.restart_policy.as_deref())
            }
            ContainerSpec::Usual(_) => pod.restart_policy(),
        }
    }

    /// Whether it starts again once it has ended with `code`: the first of its rules that fits decides, and then its policy.
    pub(crate) fn restarts_after(&self, pod: &Pod, code: i32) -> bool {
        if self.kind == ContainerKind::Init && !self.is_sidecar() && code == 0 {
            // Init containers end once they succeed, whatever else is said.
            return false;
        }
        let ContainerSpec::Usual(container) = self.container else { return false };
        let mut rules = container.restart_policy_rules.iter().flatten();
        // As with kubelets, rules without a policy beside them do not count; API servers refuse them.
        if container.restart_policy.is_some() && rules.any(|rule| fits(rule, code)) {
            return true;
        }
        match self.restart_policy(pod) {
            RestartPolicy::Always => true,
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => code != 0,
        }
    }

    /// A digest of what cannot change while a container runs. As with kubelets that is the image:
    /// all else is fixed by the API server, or can be changed in place.
    pub(crate) fn spec_hash(&self) -> String {
        let mut digest = Sha256::new();
        for text in [self.name(), "\0", self.image()] {
            digest.update(text);
        }
        let digest = digest.finalize();
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// What it says about who it is and what it may do.
    pub(crate) fn security_context(&self) -> Option<&SecurityContext> {
        match self.container {
            ContainerSpec::Ephemeral(container) => container.security_context.as_ref(),
            ContainerSpec::Usual(container) => container.security_context.as_ref(),
        }
    }

    pub(crate) fn lifecycle(&self) -> Option<&Lifecycle> {
        match self.container {
            ContainerSpec::Ephemeral(container) => container.lifecycle.as_ref(),
            ContainerSpec::Usual(container) => container.lifecycle.as_ref(),
        }
    }

    /// The container in the type that most kinds have, without its environment, which is read elsewhere.
    pub(crate) fn to_container(self) -> Container {
        match self.container {
            ContainerSpec::Usual(container) => {
                Container { env: None, env_from: None, ..container.clone() }
            }
            ContainerSpec::Ephemeral(container) => {
                let EphemeralContainer { name, args, command, image, tty, stdin, .. } =
                    container.clone();
                Container {
                    name,
                    args,
                    command,
                    image,
                    tty,
                    stdin,
                    image_pull_policy: container.image_pull_policy.clone(),
                    lifecycle: container.lifecycle.clone(),
                    resources: container.resources.clone(),
                    security_context: container.security_context.clone(),
                    stdin_once: container.stdin_once,
                    termination_message_path: container.termination_message_path.clone(),
                    termination_message_policy: container.termination_message_policy.clone(),
                    volume_mounts: container.volume_mounts.clone(),
                    working_dir: container.working_dir.clone(),
                    ..Container::default()
                }
            }
        }
    }

    /// The container whose processes an ephemeral one wants to see.
    pub(crate) fn target(&self) -> Option<&str> {
        match self.container {
            ContainerSpec::Ephemeral(container) => {
                container.target_container_name.as_deref().filter(|name| !name.is_empty())
            }
            ContainerSpec::Usual(_) => None,
        }
    }
}

/// The only action is to restart; the node does not take pods with others.
fn fits(rule: &ContainerRestartRule, code: i32) -> bool {
    rule.exit_codes.as_ref().is_some_and(|codes| {
        let named = codes.values.iter().flatten().any(|value| *value == code);
        match codes.operator.as_str() {
            "In" => named,
            "NotIn" => !named,
            _ => false,
        }
    })
}

#[cfg(test)]
pub(crate) mod testing {
    use serde_json::json;

    use super::*;

    /// A pod `p` in `ns` with that spec and one container, unless the spec has some.
    pub(crate) fn pod(spec: Value) -> Pod {
        pod_with(spec, json!({}))
    }

    /// The same with a status.
    pub(crate) fn pod_with(mut spec: Value, status: Value) -> Pod {
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{ "name": "a", "image": "i" }]);
        }
        let mut object = json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "uid-1" } });
        object["spec"] = spec;
        object["status"] = status;
        Pod::from_value(object, PodOrigin::ApiServer).unwrap()
    }
}
