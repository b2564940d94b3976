//! Questions that are answered and forgotten: who am I, may I, is this token good.

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use waybill_api::status::Status;

use super::{Api, Context, write::decode_as};
use crate::{
    authn::review::{self_subject_review, token_review},
    authz::review::{
        local_subject_access_review, self_subject_access_review, self_subject_rules_review,
        subject_access_review,
    },
    document::set_metadata,
    http::{Answer, read_body},
    route::ResourceRoute,
    schema,
};

impl Api {
    pub(super) async fn review(
        self: &Arc<Self>,
        route: &ResourceRoute,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let resource = route.resource;
        let schema = schema::lookup(resource.group, resource.version, resource.kind)
            .ok_or_else(Status::no_such_path)?;
        let body = read_body(request.into_body(), self.request_timeout).await?;
        let (mut question, warnings) = decode_as(schema, &context, &body)?;
        let user = context.user;
        let reply = |error: crate::authz::review::ReviewError| error.status();
        let answered: Value = match resource.plural {
            "selfsubjectreviews" => self_subject_review(user, question, (self.clock)())
                .map_err(|error| Status::bad_request(error.to_string()))?,
            "tokenreviews" => token_review(&self.authenticator.tokens, question, (self.clock)())
                .map_err(|error| Status::bad_request(error.to_string()))?,
            "localsubjectaccessreviews" => {
                set_metadata(&mut question, "namespace", route.namespace.as_str());
                local_subject_access_review(&self.authorizer, &route.namespace, question)
                    .map_err(reply)?
            }
            "selfsubjectaccessreviews" => {
                self_subject_access_review(&self.authorizer, user, question).map_err(reply)?
            }
            "selfsubjectrulesreviews" => {
                self_subject_rules_review(&self.authorizer, user, &question).map_err(reply)?
            }
            "subjectaccessreviews" => {
                subject_access_review(&self.authorizer, question).map_err(reply)?
            }
            _ => return Err(Status::no_such_path()),
        };
        let body = answered.to_string().into();
        Ok(Answer::json(StatusCode::CREATED, body).with_warnings(warnings))
    }
}
