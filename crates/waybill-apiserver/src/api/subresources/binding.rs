//! `pods/binding`: puts a pod on a node.

use http::Request;
use hyper::body::Incoming;
use waybill_api::status::Status;

use super::done;
use crate::{
    api::{Api, Context},
    http::Answer,
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn bind(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let (binding, warnings) = self.body_of(&mut context, request, "", "Binding").await?;
        self.writer.bind(context.change(route)?, binding).await?;
        Ok(done().with_warnings(warnings))
    }
}
