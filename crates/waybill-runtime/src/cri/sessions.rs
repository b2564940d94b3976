//! Our own service for sessions: who runs what, without the values of their variables, and who was attached.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use tonic::{Request, Response, Status};
use waybill_proto::runtime::{
    ContainerCgroups, ListSessionsRequest, ListSessionsResponse, Session, SessionKind,
    sessions_server::Sessions,
};

use super::{Cri, convert};
use crate::engine::{self, AttachRecord, SessionFilter, SessionRecord};

pub(crate) struct SessionService(pub(crate) Arc<Cri>);

#[tonic::async_trait]
impl Sessions for SessionService {
    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let request = request.into_inner();
        let container = match request.container_id.as_str() {
            "" => None,
            id => Some(self.0.store.container(id)?.record().id),
        };
        let since = u64::try_from(request.changed_since).ok().filter(|since| *since > 0);
        let changed_since = since.map(|since| UNIX_EPOCH + Duration::from_nanos(since));
        let filter = SessionFilter { container, running: request.running, changed_since };
        let exec = self.0.engine.sessions(&filter);
        let attach = self.0.engine.attach_sessions(&filter);
        let mut sessions: Vec<_> =
            exec.iter().map(session).chain(attach.iter().map(attach_session)).collect();
        sessions.sort_by_key(|session| session.started_at);
        let containers = self.0.engine.container_cgroups().into_iter().map(cgroups).collect();
        Ok(Response::new(ListSessionsResponse { sessions, containers }))
    }
}

fn session(record: &SessionRecord) -> Session {
    Session {
        id: record.id.clone(),
        container_id: record.container.clone(),
        pid: record.pid,
        started_at: convert::nanoseconds(record.started_at),
        finished_at: record.exit.as_ref().map_or(0, |it| convert::nanoseconds(it.finished_at)),
        exit_code: record.exit.as_ref().map_or(0, |exit| exit.code),
        env_names: record.injected.iter().map(ToString::to_string).collect(),
        audit_id: record.audit_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        cgroup_id: record.cgroup_id,
        kind: SessionKind::Exec.into(),
        stdin: false,
        cgroup_made_at: record.made_at,
        privileged: record.privileged,
    }
}

fn cgroups(cgroups: engine::ContainerCgroups) -> ContainerCgroups {
    ContainerCgroups {
        container_id: cgroups.container,
        pid: cgroups.pid,
        cgroup_id: cgroups.cgroup_id,
        processes_cgroup_id: cgroups.processes_id,
        privileged: cgroups.privileged,
    }
}

fn attach_session(record: &AttachRecord) -> Session {
    Session {
        id: record.id.clone(),
        container_id: record.container.clone(),
        started_at: convert::nanoseconds(record.started_at),
        finished_at: record.ended_at.map_or(0, convert::nanoseconds),
        audit_id: record.audit_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        kind: SessionKind::Attach.into(),
        stdin: record.stdin,
        ..Session::default()
    }
}
