//! `pods/exec`: a program in a container, with variables of its own (KEP-6035).

use waybill_api::{
    exec::{ExecVar, PodExecOptions, SessionKind},
    status::{Status, Subject},
};

use super::session::{AskedSession, SessionOptions, refused};
use crate::{
    api::Api,
    proxy::{exec::ExecPlan, target::NodeTarget},
    route::ResourceRoute,
};

impl SessionOptions for PodExecOptions {
    fn read(query: &str) -> Result<Self, Status> {
        Self::from_query(query).map_err(refused)
    }

    fn target(self, api: &Api, asked: &AskedSession<'_>) -> Result<NodeTarget, Status> {
        let container = asked.container(&self.container)?;
        api.check_exec_env(asked.route, &self)?;
        let plan = ExecPlan::new(api.gates, self, Some(asked.audit_id)).map_err(|errors| {
            let subject = Subject { group: "", kind: "PodExecOptions", name: &asked.route.name };
            Status::invalid(subject, &errors)
        })?;
        api.metrics.count_injection(plan.injection());
        let target = plan.target(asked.pod_path(), &container);
        asked.signed(api, SessionKind::Exec, &container, target)
    }
}

impl Api {
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
