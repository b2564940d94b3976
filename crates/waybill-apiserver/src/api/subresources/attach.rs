//! `pods/attach`: the streams of a container that runs.

use http::Request;
use hyper::body::Incoming;
use waybill_api::{exec::SessionKind, status::Status};
use waybill_stream::long_target;

use super::session::{container, node_uid, pod_path};
use crate::{
    api::{Api, Context, Handled},
    proxy::{options::PodAttachOptions, session::SessionPlace, target::NodeTarget},
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn attach(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        self.authorize_upgrade(route, &mut context)?;
        let options = PodAttachOptions::from_query(long_target::query(&request))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let options = self.admit_connect(route, &mut context, options).await?;
        let pod = self.reader.get(&route.with_subresource(""))?.content();
        let container = container(&pod, &options.container)?;
        let path = pod_path(route);
        let target = NodeTarget::attach(path, &container, &options);
        let (kind, uid) = (SessionKind::Attach, node_uid(&pod));
        let place = SessionPlace { kind, pod: path, uid, container: &container };
        let target = self.sign(&place, target, &context)?;
        let node = self.pod_node_address(&pod)?;
        Ok(Handled::Session(self.proxy.upgrade(request, &node, &target).await))
    }
}
