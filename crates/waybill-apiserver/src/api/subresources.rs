//! Subresources: parts of objects, actions on them, and the way to the nodes of pods.

mod attach;
mod binding;
mod eviction;
mod exec;
mod log;
mod node_proxy;
mod node_trace;
mod port_forward;
mod session;
mod token;

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use waybill_api::{
    exec::PodExecOptions,
    status::{Status, StatusDetails},
};

use super::{Api, Context, Handled, write::decode_as};
use crate::{
    http::{Answer, read_body},
    proxy::options::{PodAttachOptions, PodPortForwardOptions},
    route::ResourceRoute,
    schema,
    write::Part,
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
        match (subresource.name, verb) {
            ("approval" | "status" | "ephemeralcontainers" | "resize", "get") => {
                let object = self.reader.get(route)?;
                context.audit.response_object(|| object.document());
                let view = super::view(&context, route.resource)?;
                let body = view.object(route.resource, &object, (self.clock)());
                Ok(view.answer(StatusCode::OK, body).into())
            }
            ("status", _) => {
                self.change(route, Part::Status, context, request).await.map(Into::into)
            }
            ("approval", _) => {
                self.change(route, Part::Approval, context, request).await.map(Into::into)
            }
            ("finalize", _) => {
                self.change(route, Part::Finalize, context, request).await.map(Into::into)
            }
            ("resize", _) => {
                self.change(route, Part::Resize, context, request).await.map(Into::into)
            }
            ("ephemeralcontainers", _) => self
                .change(route, Part::EphemeralContainers, context, request)
                .await
                .map(Into::into),
            ("binding", _) => self.bind(route, context, request).await.map(Into::into),
            ("eviction", _) => self.evict(route, context, request).await.map(Into::into),
            ("token", _) => self.token(route, context, request).await.map(Into::into),
            ("proxy", _) => self.node_proxy(route, context, request).await,
            ("trace", _) => self.node_trace(route, request).await,
            ("log", _) => self.log(route, request).await,
            ("exec", _) => self.session::<PodExecOptions>(route, context, request).await,
            ("attach", _) => self.session::<PodAttachOptions>(route, context, request).await,
            ("portforward", _) => {
                self.session::<PodPortForwardOptions>(route, context, request).await
            }
            _ => Err(Status::no_such_path()),
        }
    }

    /// The body of a request, as an object of another kind than the resource's own.
    async fn body_of(
        &self,
        context: &mut Context<'_>,
        request: Request<Incoming>,
        group: &str,
        kind: &str,
    ) -> Result<(Value, Vec<String>), Status> {
        let schema = schema::lookup(group, "v1", kind).ok_or_else(Status::no_such_path)?;
        let body = read_body(request.into_body(), self.request_timeout).await?;
        let (object, warnings) = decode_as(schema, context, &body)?;
        context.audit.request_object(|| object.clone());
        Ok((object, warnings))
    }
}

/// The answer to an action that was carried out.
fn done() -> Answer {
    let status = Status::success(StatusDetails::default());
    Answer { code: StatusCode::CREATED, ..Answer::status(&status) }
}
