//! `pods/exec`: a program in a container, with variables of its own (KEP-6035).

use http::Request;
use hyper::body::Incoming;
use waybill_api::{
    exec::{ExecVar, PodExecOptions, SessionKind},
    status::{Status, Subject},
};
use waybill_stream::long_target;

use super::session::{container, node_uid, pod_path};
use crate::{
    api::{Api, Context, Handled},
    proxy::{exec::ExecPlan, session::SessionPlace},
    route::ResourceRoute,
};

impl Api {
    pub(super) async fn exec(
        &self,
        route: &ResourceRoute,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Handled, Status> {
        self.authorize_upgrade(route, &mut context)?;
        let options = PodExecOptions::from_query(long_target::query(&request))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let options = self.admit_connect(route, &mut context, options).await?;
        let pod = self.reader.get(&route.with_subresource(""))?.content();
        let container = container(&pod, &options.container)?;
        self.check_exec_env(route, &options)?;
        let plan =
            ExecPlan::new(self.gates, options, Some(context.audit.id())).map_err(|errors| {
                let subject = Subject { group: "", kind: "PodExecOptions", name: &route.name };
                Status::invalid(subject, &errors)
            })?;
        self.metrics.count_injection(plan.injection());
        let path = pod_path(route);
        let target = plan.target(path, &container);
        let (kind, uid) = (SessionKind::Exec, node_uid(&pod));
        let place = SessionPlace { kind, pod: path, uid, container: &container };
        let target = self.sign(&place, target, &context)?;
        let node = self.pod_node_address(&pod)?;
        Ok(Handled::Session(self.proxy.upgrade(request, &node, &target).await))
    }

    /// What the namespace says about the variables of sessions.
    fn check_exec_env(
        &self,
        route: &ResourceRoute,
        options: &PodExecOptions,
    ) -> Result<(), Status> {
        let list = self.writer.admission.session_deny_list(&route.namespace);
        match list.refusal(options.env.iter().map(ExecVar::name)) {
            Some(why) => Err(Status::forbidden(route.status_target(), why)),
            None => Ok(()),
        }
    }
}
