//! `pods/eviction`: deletes a pod politely.

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
    pub(super) async fn evict(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let (eviction, warnings) =
            self.body_of(&mut context, request, "policy", "Eviction").await?;
        self.writer.evict(context.change(route)?, eviction).await?;
        Ok(done().with_warnings(warnings))
    }
}
