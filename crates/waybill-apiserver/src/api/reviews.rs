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
    registry::Review,
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn review(
        self: &Arc<Self>,
        route: &ResourceRoute,
        review: Review,
        context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let resource = route.resource;
        let view = super::view(&context, resource)?;
        let schema = resource.schema().ok_or_else(Status::no_such_path)?;
        let body = read_body(request.into_body(), self.request_timeout).await?;
        let (mut question, warnings) = decode_as(schema, &context, &body)?;
        context.audit.request_object(|| question.clone());
        if resource.is_namespaced() {
            set_metadata(&mut question, "namespace", route.namespace.as_str());
        }
        let question =
            self.writer.admit_create(context.change(route)?, question, |_| Ok(())).await?;
        let user = context.user;
        let reply = |error: crate::authz::review::ReviewError| error.status();
        let answered: Value = match review {
            Review::SelfSubject => self_subject_review(user, question, (self.clock)())
                .map_err(|error| Status::bad_request(error.to_string()))?,
            Review::Token => token_review(&self.authenticator.tokens, question, (self.clock)())
                .map_err(|error| Status::bad_request(error.to_string()))?,
            Review::LocalSubjectAccess => {
                local_subject_access_review(&self.authorizer, &route.namespace, question)
                    .map_err(reply)?
            }
            Review::SelfSubjectAccess => {
                self_subject_access_review(&self.authorizer, user, question).map_err(reply)?
            }
            Review::SelfSubjectRules => {
                self_subject_rules_review(&self.authorizer, user, &question).map_err(reply)?
            }
            Review::SubjectAccess => {
                subject_access_review(&self.authorizer, question).map_err(reply)?
            }
        };
        context.audit.response_object(|| answered.clone());
        let body = view.document(resource, answered, (self.clock)());
        Ok(view.answer(StatusCode::CREATED, body).with_warnings(warnings))
    }
}
