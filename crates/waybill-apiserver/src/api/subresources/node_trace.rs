//! `nodes/trace`: what ran in the sessions of a node, from the record that its collector keeps. It only reads, so admission has no word
//! in it; who read is on the audit log like every request.

use http::Request;
use hyper::body::Incoming;
use waybill_api::{status::Status, trace::TraceOptions};
use waybill_stream::long_target;

use crate::{
    api::{Api, Handled},
    proxy::target::NodeTarget,
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn node_trace(
        &self,
        route: &ResourceRoute,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        let options = TraceOptions::from_query(long_target::query(&request))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        self.reader.get(&route.with_subresource(""))?;
        let node = self.node_address(&route.name)?;
        let target = NodeTarget::trace(&options);
        Ok(Handled::PassedOn(self.proxy.get(&node, &target).await))
    }
}
