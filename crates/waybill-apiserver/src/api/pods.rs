//! Subresources: parts of objects, actions on pods, and the way to their nodes.

use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use waybill_api::{
    exec::{ExecEnvRules, PodExecOptions, validate as validate_exec},
    gates::{FeatureGate, KubeVersion},
    status::{Status, StatusDetails, Subject},
};
use waybill_core::env::name::NameRules;

use super::{Api, Context, Handled, write::decode_as};
use crate::{
    cache::ObjectKey,
    http::{Answer, read_body},
    kinds,
    query::DryRun,
    registry::{Resource, find},
    request::{Action, Target},
    rest::{Change, DeleteOptions, Part},
    route::ResourceRoute,
    schema,
};

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
            ("status", _) => self.change(route, Part::Status, context, request).await.map(Into::into),
            ("finalize", _) => self.change(route, Part::Finalize, context, request).await.map(Into::into),
            ("ephemeralcontainers", _) => {
                self.change(route, Part::EphemeralContainers, context, request).await.map(Into::into)
            }
            ("binding", _) => self.bind(route, context, request).await.map(Into::into),
            ("eviction", _) => self.evict(route, context, request).await.map(Into::into),
            ("token", _) => self.token(route, context, request).await.map(Into::into),
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
    ) -> Result<Value, Status> {
        debug_assert!(!route.subresource.is_empty());
        let schema = schema::lookup(group, "v1", kind).ok_or_else(Status::no_such_path)?;
        let body = read_body(request.into_body()).await?;
        decode_as(schema, context, &body).map(|(document, _)| document)
    }

    /// Puts a pod on a node.
    async fn bind(
        &self,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let dry_run = DryRun::parse(context.query.all("dryRun"))?;
        let binding = self.body_of(route, &context, request, "", "Binding").await?;
        self.bind_pod(route, context.user, &binding, dry_run).await?;
        let status = Status::success(StatusDetails::default());
        Ok(Answer { code: StatusCode::CREATED, ..Answer::status(&status) })
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
        let change = Change { route: &pods, user, dry_run };
        let bound = |old: &Value| {
            kinds::bind(old, binding).map_err(|refused| match refused {
                kinds::BindError::Conflict(why) => Status::conflict(pods.status_target(), why),
                kinds::BindError::Invalid(errors) => {
                    Status::invalid(Subject { group: "", kind: "Binding", name: &pods.name }, &errors)
                }
            })
        };
        self.rest.update(change, Part::Status, bound).await.map(drop)
    }

    /// Deletes a pod politely.
    async fn evict(
        &self,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let eviction = self.body_of(route, &context, request, "policy", "Eviction").await?;
        let options = eviction["deleteOptions"].to_string();
        let options = if eviction["deleteOptions"].is_object() { options.as_bytes() } else { b"" };
        let (options, said) = DeleteOptions::parse(options, None)?;
        let asked = DryRun::parse(context.query.all("dryRun"))?;
        let dry_run = if said == DryRun::All { said } else { asked };
        let pods = ResourceRoute { subresource: String::new(), ..clone_route(route) };
        let change = Change { route: &pods, user: context.user, dry_run };
        self.rest.delete(change, &options).await?;
        let status = Status::success(StatusDetails::default());
        Ok(Answer { code: StatusCode::CREATED, ..Answer::status(&status) })
    }

    /// Issues a token of a service account.
    async fn token(
        &self,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let question =
            self.body_of(route, &context, request, "authentication.k8s.io", "TokenRequest").await?;
        let account = self.reader.get(route)?.document();
        let answer = self.tokens.request(
            &account,
            question,
            &|resource, namespace, name| self.lookup(resource, namespace, name),
            (self.clock)(),
        )?;
        Ok(Answer::json(StatusCode::CREATED, answer.to_string().into()))
    }

    fn lookup(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource: &'static Resource = find("", "v1", resource)?;
        let object = self.reader.objects.cache(resource)?.get(&ObjectKey::new(namespace, name))?;
        Some(object.document())
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
        let _ = (pod, request, json!({}), Action::clone, Target::clone);
        Err(Status::no_such_path())
    }

    /// A WebSocket opens with GET; since 1.35 that needs `create` as SPDY always did.
    fn authorize_upgrade(&self, route: &ResourceRoute, context: &Context<'_>) -> Result<(), Status> {
        let since = KubeVersion::parse("1.35").unwrap_or_default();
        if *context.method != Method::GET || self.gates.emulated_version() < since {
            return Ok(());
        }
        let action = Action { verb: "create".to_owned(), target: Target::Resource(route.target()) };
        self.authorize(context.user, &action, context.query)
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
