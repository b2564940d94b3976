//! Subresources: parts of objects, actions on pods, and the way to their nodes.

use std::{sync::Arc, time::Duration};

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use waybill_api::{
    exec::{ExecVar, PodExecOptions, SessionKind},
    gates::KubeVersion,
    status::{Status, StatusDetails, Subject},
};
use waybill_stream::long_target;

use super::{Api, Context, Handled, write::decode_as};
use crate::{
    admission::exec_env::DenyList,
    audit::AuditNotes,
    authn::token_request::{Account, TokenRequestError, token_request},
    cache::ObjectKey,
    document::{at, items, put, text, time},
    http::{Answer, read_body},
    kinds,
    proxy::{
        address::NodeAddress,
        exec::ExecPlan,
        options::{PodAttachOptions, PodLogOptions, PodPortForwardOptions},
        session::SessionPlace,
        target::{NodeTarget, PodPath},
    },
    query::DryRun,
    registry::find,
    request::{Action, Target},
    rest::{Change, DeleteOptions, Part},
    route::ResourceRoute,
    schema,
};

/// No token of a service account lives longer.
const LONGEST_TOKEN: Duration = Duration::from_secs(24 * 3600);

/// Where a kubelet listens if its node does not say.
const KUBELET_PORT: u16 = 10_250;

impl Api {
    pub(super) async fn subresource(
        self: &Arc<Self>,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        let subresource =
            route.resource.subresource(&route.subresource).ok_or_else(Status::no_such_path)?;
        let verb = route.verb(context.method, false);
        if route.name.is_empty() || !subresource.verbs.contains(&verb) {
            return Err(Status::method_not_allowed(route.status_target(), verb));
        }
        match (route.subresource.as_str(), verb) {
            ("status" | "ephemeralcontainers", "get") => {
                let object = self.reader.get(route)?;
                let body = super::view(&context)?.object(route.resource, &object, (self.clock)());
                Ok(Answer::json(StatusCode::OK, body).into())
            }
            ("status", _) => {
                self.change(route, Part::Status, context, request).await.map(Into::into)
            }
            ("finalize", _) => {
                self.change(route, Part::Finalize, context, request).await.map(Into::into)
            }
            ("ephemeralcontainers", _) => self
                .change(route, Part::EphemeralContainers, context, request)
                .await
                .map(Into::into),
            ("binding", _) => self.bind(route, context, request).await.map(Into::into),
            ("eviction", _) => self.evict(route, context, request).await.map(Into::into),
            ("token", _) => self.token(route, context, request).await.map(Into::into),
            ("proxy", _) => self.node_path(route, &request).await,
            _ => self.connect(route, context, request).await,
        }
    }

    async fn body_of(
        &self,
        route: &ResourceRoute,
        context: &Context<'_>,
        request: Request<Incoming>,
        group: &str,
        kind: &str,
    ) -> Result<(Value, Vec<String>), Status> {
        debug_assert!(!route.subresource.is_empty());
        let schema = schema::lookup(group, "v1", kind).ok_or_else(Status::no_such_path)?;
        let body = read_body(request.into_body(), self.request_timeout).await?;
        decode_as(schema, context, &body)
    }

    /// Puts a pod on a node.
    async fn bind(
        &self,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let dry_run = DryRun::parse(context.query.all("dryRun"))?;
        let (binding, warnings) = self.body_of(route, &context, request, "", "Binding").await?;
        self.bind_pod(route, context.user, &binding, dry_run).await?;
        let status = Status::success(StatusDetails::default());
        let answer = Answer { code: StatusCode::CREATED, ..Answer::status(&status) };
        Ok(answer.with_warnings(warnings))
    }

    /// The same for callers inside the server.
    pub(crate) async fn bind_pod(
        &self,
        route: &ResourceRoute,
        user: &crate::request::User,
        binding: &Value,
        dry_run: DryRun,
    ) -> Result<(), Status> {
        let pods = ResourceRoute { subresource: String::new(), ..clone_route(route) };
        let errors = kinds::validate_binding(binding);
        if !errors.is_empty() {
            let subject = Subject { group: "", kind: "Binding", name: &pods.name };
            return Err(Status::invalid(subject, &errors));
        }
        let change = Change { route: &pods, user, dry_run, notes: &AuditNotes::default() };
        let now = time((self.clock)());
        let bound = |old: &Value| {
            let mut new = old.clone();
            kinds::bind(&mut new, binding, &now)
                .map_err(|error| Status::conflict(pods.status_target(), error.to_string()))?;
            Ok(new)
        };
        self.rest.update(change, Part::Binding, bound).await.map(drop)
    }

    /// Deletes a pod politely.
    async fn evict(
        &self,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let (eviction, warnings) =
            self.body_of(route, &context, request, "policy", "Eviction").await?;
        check_place(&eviction, route)?;
        let (options, said) = DeleteOptions::read(at(&eviction, "/deleteOptions"), None)?;
        let asked = DryRun::parse(context.query.all("dryRun"))?;
        let dry_run = if said == DryRun::All { said } else { asked };
        let pods = ResourceRoute { subresource: String::new(), ..clone_route(route) };
        let change =
            Change { route: &pods, user: context.user, dry_run, notes: &AuditNotes::default() };
        self.rest.delete(change, &options).await?;
        let status = Status::success(StatusDetails::default());
        let answer = Answer { code: StatusCode::CREATED, ..Answer::status(&status) };
        Ok(answer.with_warnings(warnings))
    }

    /// Issues a token of a service account.
    async fn token(
        &self,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let dry_run = DryRun::parse(context.query.all("dryRun"))?;
        let (question, mut warnings) =
            self.body_of(route, &context, request, "authentication.k8s.io", "TokenRequest").await?;
        let account = Account { namespace: &route.namespace, name: &route.name };
        let tokens = &self.authenticator.tokens;
        let now = (self.clock)();
        self.rest.admission.restrict_node_token(
            context.user,
            route,
            &question,
            tokens.service_accounts.audiences(),
        )?;
        let answer = token_request(
            &tokens.service_accounts,
            tokens.objects.as_ref(),
            account,
            &question,
            LONGEST_TOKEN,
            now,
        )
        .map_err(|error| token_refusal(&error))?;
        warnings.extend(answer.warning);
        let mut body = answer.body;
        if dry_run == DryRun::All {
            // What was only tried is good for nothing; nobody ever sees the token.
            put(&mut body, "/status/token", "");
        } else {
            context.audit.annotate(
                "authentication.kubernetes.io/issued-credential-id",
                &answer.credential_id,
            );
        }
        let body = body.to_string().into();
        Ok(Answer::json(StatusCode::CREATED, body).with_warnings(warnings))
    }

    /// `exec`, `attach`, `portforward` and `log`: the node of the pod answers.
    async fn connect(
        self: &Arc<Self>,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        let pod_route = ResourceRoute { subresource: String::new(), ..clone_route(route) };
        let pod = self.reader.get(&pod_route)?.document();
        if route.subresource != "log" {
            self.authorize_upgrade(route, &context)?;
        }
        let path = PodPath { namespace: &route.namespace, name: &route.name };
        let query = long_target::query(&request);
        let target = match route.subresource.as_str() {
            "exec" => {
                let options = PodExecOptions::from_query(query)
                    .map_err(|error| Status::bad_request(error.to_string()))?;
                let container = container(&pod, &options.container)?;
                self.admit_exec(route, &options)?;
                let plan = ExecPlan::new(self.gates, options, Some(context.audit.id())).map_err(
                    |errors| {
                        let subject =
                            Subject { group: "", kind: "PodExecOptions", name: &route.name };
                        Status::invalid(subject, &errors)
                    },
                )?;
                self.metrics.count_injection(plan.injection());
                let target = plan.target(path, &container);
                let (kind, uid) = (SessionKind::Exec, node_uid(&pod));
                let place = SessionPlace { kind, pod: path, uid, container: &container };
                self.sign(&place, target, &context)?
            }
            "attach" => {
                let options = PodAttachOptions::from_query(query)
                    .map_err(|error| Status::bad_request(error.to_string()))?;
                let container = container(&pod, &options.container)?;
                let target = NodeTarget::attach(path, &container, &options);
                let (kind, uid) = (SessionKind::Attach, node_uid(&pod));
                let place = SessionPlace { kind, pod: path, uid, container: &container };
                self.sign(&place, target, &context)?
            }
            "portforward" => {
                let options = PodPortForwardOptions::from_query(query)
                    .map_err(|error| Status::bad_request(error.to_string()))?;
                NodeTarget::port_forward(path, &options)
            }
            _ => {
                let options = PodLogOptions::from_query(query)
                    .map_err(|error| Status::bad_request(error.to_string()))?;
                let container = container(&pod, &options.container)?;
                let errors = options.validate();
                if !errors.is_empty() {
                    let subject = Subject { group: "", kind: "PodLogOptions", name: &route.name };
                    return Err(Status::invalid(subject, &errors));
                }
                NodeTarget::container_logs(path, &container, &options)
            }
        };
        let node = self.pod_node_address(&pod)?;
        if route.subresource == "log" {
            return Ok(Handled::Upgraded(self.proxy.stream(&node, &target).await));
        }
        let answer = self.proxy.upgrade(request, &node, &target).await;
        Ok(Handled::Session(answer))
    }

    /// What to ask the node for, with the token of the session.
    fn sign(
        &self,
        place: &SessionPlace<'_>,
        target: NodeTarget,
        context: &Context<'_>,
    ) -> Result<NodeTarget, Status> {
        let token = self.session_signer.sign(place, &target, context.audit.id(), (self.clock)());
        Ok(target.with_session(token.map_err(|error| Status::internal(error.to_string()))?))
    }

    /// A path of a node that can be read, for those who may read all of it.
    async fn node_path(
        &self,
        route: &ResourceRoute,
        request: &Request<Incoming>,
    ) -> Result<Handled, Status> {
        let node = ResourceRoute { subresource: String::new(), ..clone_route(route) };
        self.reader.get(&node)?;
        let node = self.node_address(&route.name)?;
        let path = request.uri().path();
        // Three segments of ours and the node's name come first: `/api/v1/nodes/NAME/proxy`.
        let path = path.match_indices('/').nth(5).and_then(|(at, _)| path.get(at..));
        let path = path.unwrap_or("/");
        let target = match long_target::query(request) {
            "" => NodeTarget::raw(path),
            query => NodeTarget::raw(&format!("{path}?{query}")),
        };
        Ok(Handled::Upgraded(self.proxy.get(&node, &target).await))
    }

    /// What the namespace says about the variables of sessions.
    fn admit_exec(&self, route: &ResourceRoute, options: &PodExecOptions) -> Result<(), Status> {
        let namespace = self.reader.objects.namespace(&route.namespace);
        let names = options.env.iter().map(ExecVar::name);
        match DenyList::of(namespace.as_ref()).refusal(names) {
            Some(why) => Err(Status::forbidden(route.status_target(), why)),
            None => Ok(()),
        }
    }

    /// Where the kubelet of the pod's node listens.
    fn pod_node_address(&self, pod: &Value) -> Result<NodeAddress, Status> {
        let name = text(pod, "/spec/nodeName");
        if name.is_empty() {
            let pod = text(pod, "/metadata/name");
            return Err(Status::bad_request(format!("pod {pod} does not have a host assigned")));
        }
        self.node_address(name)
    }

    fn node_address(&self, name: &str) -> Result<NodeAddress, Status> {
        let node = find("", "v1", "nodes")
            .and_then(|nodes| self.reader.objects.cache(nodes))
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
        context: &Context<'_>,
    ) -> Result<(), Status> {
        let since = KubeVersion::parse("1.35").unwrap_or_default();
        if *context.method != Method::GET || self.gates.emulated_version() < since {
            return Ok(());
        }
        let action = Action { verb: "create".to_owned(), target: Target::Resource(route.target()) };
        self.authorize(context.user, &action, context.query)
    }
}

/// The container that is meant: the one named, the annotated default, or the only one.
fn container(pod: &Value, wanted: &str) -> Result<String, Status> {
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

fn token_refusal(error: &TokenRequestError) -> Status {
    let text = error.to_string();
    match error {
        TokenRequestError::BoundUid { .. } => Status::conflict_message(text),
        TokenRequestError::Seconds { .. } => Status::unprocessable(text),
        TokenRequestError::NotFound { .. } => Status::not_found_message(text),
        TokenRequestError::Sign(_) => Status::internal(text),
        TokenRequestError::AnotherAccountsPod(_)
        | TokenRequestError::BoundKind(_)
        | TokenRequestError::Mismatch { .. }
        | TokenRequestError::Undecodable => Status::bad_request(text),
    }
}

fn clone_route(route: &ResourceRoute) -> ResourceRoute {
    ResourceRoute {
        resource: route.resource,
        namespace: route.namespace.clone(),
        name: route.name.clone(),
        subresource: route.subresource.clone(),
    }
}

/// Whom an eviction names, and who is evicted, must be the same; the texts are upstream's.
fn check_place(eviction: &Value, route: &ResourceRoute) -> Result<(), Status> {
    let said = |pointer| at(eviction, pointer).as_str().unwrap_or_default();
    if said("/metadata/name") != route.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let namespace = said("/metadata/namespace");
    if !namespace.is_empty() && namespace != route.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
