//! Sessions with a pod, as far as exec, attach and port-forward are one: who may open one, which container is meant, and
//! where its node is.

use http::{Method, Request};
use hyper::body::Incoming;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use waybill_api::{exec::SessionKind, gates::KubeVersion, status::Status};
use waybill_core::id::AuditId;
use waybill_stream::long_target;

use crate::{
    admission::{Attributes, Operation, WriteOptions},
    api::{Api, Context, Handled},
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

/// What a client says about a session of one kind.
pub(super) trait SessionOptions: Serialize + DeserializeOwned {
    fn read(query: &str) -> Result<Self, Status>;

    /// What the pod's node is asked for.
    fn target(self, api: &Api, asked: &AskedSession<'_>) -> Result<NodeTarget, Status>;
}

/// A session that was admitted.
pub(super) struct AskedSession<'a> {
    pub(super) route: &'a ResourceRoute,
    pub(super) audit_id: &'a AuditId,
    pod: &'a Value,
}

impl AskedSession<'_> {
    pub(super) fn pod_path(&self) -> PodPath<'_> {
        pod_path(self.route)
    }

    /// The container that is meant.
    pub(super) fn container(&self, wanted: &str) -> Result<String, Status> {
        container(self.pod, wanted)
    }

    /// What to ask the node for, with the token of the session.
    pub(super) fn signed(
        &self,
        api: &Api,
        kind: SessionKind,
        container: &str,
        target: NodeTarget,
    ) -> Result<NodeTarget, Status> {
        let (pod, uid) = (self.pod_path(), node_uid(self.pod));
        let place = SessionPlace { kind, pod, uid, container };
        let token = api.session_signer.sign(&place, &target, self.audit_id, (api.clock)());
        Ok(target.with_session(token.map_err(|error| Status::internal(error.to_string()))?))
    }
}

/// The answer to options that cannot be read.
pub(super) fn refused(error: impl std::error::Error) -> Status {
    Status::bad_request(error.to_string())
}

/// Where a kubelet listens if its node does not say.
const KUBELET_PORT: u16 = 10_250;

impl Api {
    /// Opens a session with the node of a pod.
    pub(super) async fn session<O: SessionOptions>(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        self.authorize_upgrade(route, &mut context)?;
        let options = O::read(long_target::query(&request))?;
        let options = self.admit_connect(route, &mut context, options).await?;
        let pod = self.reader.get(&route.with_subresource(""))?.content();
        let asked = AskedSession { route, audit_id: context.audit.id(), pod: &pod };
        let target = options.target(self, &asked)?;
        let node = self.pod_node_address(&pod)?;
        Ok(Handled::Session(self.proxy.upgrade(request, &node, &target).await))
    }

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
    fn authorize_upgrade(
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
fn node_uid(pod: &Value) -> &str {
    let mirrored = at(pod, "/metadata/annotations/kubernetes.io~1config.mirror").as_str();
    mirrored.unwrap_or_else(|| text(pod, "/metadata/uid"))
}
