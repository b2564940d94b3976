//! `pods/portforward`: connections into a pod.

use http::Request;
use hyper::body::Incoming;
use waybill_api::status::Status;
use waybill_stream::long_target;

use super::session::pod_path;
use crate::{
    api::{Api, Context, Handled},
    proxy::{options::PodPortForwardOptions, target::NodeTarget},
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn port_forward(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        self.authorize_upgrade(route, &mut context)?;
        let options = PodPortForwardOptions::from_query(long_target::query(&request))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let options = self.admit_connect(route, &mut context, options).await?;
        let pod = self.reader.get(&route.with_subresource(""))?.content();
        let target = NodeTarget::port_forward(pod_path(route), &options);
        let node = self.pod_node_address(&pod)?;
        Ok(Handled::Session(self.proxy.upgrade(request, &node, &target).await))
    }
}
