//! `pods/log`: what a container has written. It only reads, so admission has no word in it.

use http::Request;
use hyper::body::Incoming;
use waybill_api::status::{Status, Subject};
use waybill_stream::{long_target, websocket::handshake::is_upgrade};

use super::session::{container, pod_path};
use crate::{
    api::{Api, Handled},
    proxy::{options::PodLogOptions, target::NodeTarget},
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn log(
        &self,
        route: &ResourceRoute,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        let pod = self.reader.get(&route.with_subresource(""))?.content();
        let options = PodLogOptions::from_query(long_target::query(&request))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let container = container(&pod, &options.container)?;
        let errors = options.validate();
        if !errors.is_empty() {
            let subject = Subject { group: "", kind: "PodLogOptions", name: &route.name };
            return Err(Status::invalid(subject, &errors));
        }
        let target = NodeTarget::container_logs(pod_path(route), &container, &options);
        let node = self.pod_node_address(&pod)?;
        if is_upgrade(request.headers()) {
            return Ok(Handled::Session(self.proxy.log_socket(request, &node, &target).await));
        }
        Ok(Handled::PassedOn(self.proxy.stream(&node, &target).await))
    }
}
