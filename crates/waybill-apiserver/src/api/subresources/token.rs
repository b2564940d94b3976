//! `serviceaccounts/token`: issues a token of a service account.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use waybill_api::status::Status;

use crate::{
    api::{Api, Context},
    http::Answer,
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn token(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let (question, mut warnings) =
            self.body_of(&mut context, request, "authentication.k8s.io", "TokenRequest").await?;
        let tokens = &self.authenticator.tokens;
        let answer = self.writer.issue_token(context.change(route)?, question, tokens).await?;
        warnings.extend(answer.warning);
        let body = answer.body.to_string().into();
        Ok(Answer::json(StatusCode::CREATED, body).with_warnings(warnings))
    }
}
