//! What sessions have in common: who may open one, which container is meant, and where its node is.

use http::Method;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use waybill_api::{gates::KubeVersion, status::Status};

use crate::{
    admission::{Attributes, Operation, WriteOptions},
    api::{Api, Context},
    cache::ObjectKey,
    document::{at, items, text},
    kinds::node::NODES,
    proxy::{
        address::NodeAddress,
        session::SessionPlace,
        target::{NodeTarget, PodPath},
    },
    request::{Action, Target},
    route::ResourceRoute,
};

/// Where a kubelet listens if its node does not say.
const KUBELET_PORT: u16 = 10_250;

impl Api {
    /// Asks admission about a session or a path of a node; returns the options to go on with.
    pub(super) async fn admit_connect<T: Serialize + DeserializeOwned>(
        &self,
        route: &ResourceRoute,
        context: &mut Context<'_>,
        options: T,
    ) -> Result<T, Status> {
        context.audit.request_object(|| serde_json::to_value(&options).unwrap_or_default());
        let mut attributes = Attributes {
            operation: Operation::Connect,
            resource: route.resource,
            subresource: route.resource.subresource(&route.subresource),
            namespace: &route.namespace,
            path_name: &route.name,
            user: context.user,
            dry_run: false,
            options: WriteOptions::default(),
            object: Value::Null,
            old: const { &Value::Null },
            remarks: context.remarks,
        };
        self.writer.admission.connect(&mut attributes, options).await
    }

    /// What to ask the node for, with the token of the session.
    pub(super) fn sign(
        &self,
        place: &SessionPlace<'_>,
        target: NodeTarget,
        context: &Context<'_>,
    ) -> Result<NodeTarget, Status> {
        let token = self.session_signer.sign(place, &target, context.audit.id(), (self.clock)());
        Ok(target.with_session(token.map_err(|error| Status::internal(error.to_string()))?))
    }

    /// Where the kubelet of the pod's node listens.
    pub(super) fn pod_node_address(&self, pod: &Value) -> Result<NodeAddress, Status> {
        let name = text(pod, "/spec/nodeName");
        if name.is_empty() {
            let pod = text(pod, "/metadata/name");
            return Err(Status::bad_request(format!("pod {pod} does not have a host assigned")));
        }
        self.node_address(name)
    }

    pub(super) fn node_address(&self, name: &str) -> Result<NodeAddress, Status> {
        let node = self
            .reader
            .objects
            .cache(&NODES)
            .and_then(|cache| cache.get(&ObjectKey::new("", name)))
            .ok_or_else(|| Status::internal(format!("node {name:?} not found")))?
            .document();
        let addresses = items(&node, "/status/addresses");
        let of_kind = |kind: &str| addresses.iter().find(|address| at(address, "/type") == kind);
        let host = self
            .node_address_types
            .iter()
            .find_map(|kind| of_kind(kind.name())?.get("address")?.as_str())
            .ok_or_else(|| Status::internal(format!("node {name:?} has no address")))?;
        let port = at(&node, "/status/daemonEndpoints/kubeletEndpoint/Port").as_u64();
        let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(KUBELET_PORT);
        NodeAddress::new(name, host, port)
            .map_err(|_| Status::internal(format!("node {name:?} has an address that is none")))
    }

    /// A WebSocket opens with GET; since 1.35 that needs `create` as SPDY always did.
    pub(super) fn authorize_upgrade(
        &self,
        route: &ResourceRoute,
        context: &mut Context<'_>,
    ) -> Result<(), Status> {
        let since = KubeVersion::parse("1.35").unwrap_or_default();
        if *context.method != Method::GET || self.gates.emulated_version() < since {
            return Ok(());
        }
        let action = Action { verb: "create".to_owned(), target: Target::Resource(route.target()) };
        self.authorize(context.user, &action, context.query, context.audit)
    }
}

/// The pod of a session.
pub(super) fn pod_path(route: &ResourceRoute) -> PodPath<'_> {
    PodPath { namespace: &route.namespace, name: &route.name }
}

/// The container that is meant: the one named, the annotated default, or the only one.
pub(super) fn container(pod: &Value, wanted: &str) -> Result<String, Status> {
    let names = |kind: &str| -> Vec<&str> {
        let containers = items(pod, kind);
        containers.iter().filter_map(|container| at(container, "/name").as_str()).collect()
    };
    let pod_name = text(pod, "/metadata/name");
    let regular = names("/spec/containers");
    let all: Vec<&str> =
        [&regular[..], &names("/spec/initContainers"), &names("/spec/ephemeralContainers")]
            .concat();
    if !wanted.is_empty() {
        return if all.contains(&wanted) {
            Ok(wanted.to_owned())
        } else {
            Err(Status::bad_request(format!("container {wanted} is not valid for pod {pod_name}")))
        };
    }
    let default =
        at(pod, "/metadata/annotations/kubectl.kubernetes.io~1default-container").as_str();
    match (default.filter(|name| all.contains(name)), regular.as_slice()) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (None, several) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            several.join(" ")
        ))),
    }
}

/// The uid by which its node knows a pod; that of a static pod is in its mirror.
pub(super) fn node_uid(pod: &Value) -> &str {
    let mirrored = at(pod, "/metadata/annotations/kubernetes.io~1config.mirror").as_str();
    mirrored.unwrap_or_else(|| text(pod, "/metadata/uid"))
}
