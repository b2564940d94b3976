//! What the runtime and the audit log of this machine tell now.

use std::{collections::BTreeMap, path::Path};

use jiff::Timestamp;

use crate::{
    audit::AuditLog,
    debug::{is_debug_container, join_debug},
    join::{Processes, Trace, join, sort},
    membership::{Membership, judge},
    process::{LiveProcess, read_processes},
    record::TraceSourceError,
    runtime::Runtime,
};

/// Where the parts of the answer come from.
#[derive(Debug)]
pub struct LiveSource {
    audit: AuditLog,
    runtime: Runtime,
}

/// What there is to see at one time.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Sessions, oldest first.
    pub traces: Vec<Trace>,
    /// What processes belong to.
    pub judged: BTreeMap<u32, Membership>,
}

impl LiveSource {
    /// The audit log at a path, and a runtime.
    pub fn new(audit_log: &Path, runtime: Runtime) -> Self {
        Self { audit: AuditLog::at(audit_log), runtime }
    }

    /// The same, with only the last requests of the audit log, at most `limit`.
    pub(crate) fn recent(audit_log: &Path, limit: usize, runtime: Runtime) -> Self {
        Self { audit: AuditLog::recent(audit_log, limit), runtime }
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// A process that seems to be moved is looked at again: between two questions sessions begin and end.
    pub async fn look(&mut self, now: Timestamp) -> Result<View, TraceSourceError> {
        let view = self.look_once(None, now).await?;
        if view.judged.values().any(|it| matches!(it, Membership::Moved(_))) {
            return self.look_once(Some(&view.judged), now).await;
        }
        Ok(view)
    }

    /// Whom `before` does not call moved is not called so now.
    async fn look_once(
        &mut self,
        before: Option<&BTreeMap<u32, Membership>>,
        now: Timestamp,
    ) -> Result<View, TraceSourceError> {
        // First of all: then a session that the runtime does not know has ended.
        let processes =
            read_processes().map_err(|it| TraceSourceError::new("reading /proc", it))?;
        let failed = |error| TraceSourceError::new("asking the runtime", error);
        let (sessions, cgroups) = self.runtime.sessions().await.map_err(failed)?;
        let containers = self.runtime.containers().await.map_err(failed)?;
        // After the sessions: a request is recorded before its session begins.
        let audit = self.audit.refresh();
        audit.map_err(|error| TraceSourceError::new("reading who asked", error))?;
        let requests = self.audit.requests();
        let lives = self.runtime.lives(|place| is_debug_container(requests, place)).await;
        let lives = lives.map_err(failed)?;
        let mut judged = judge(&processes, &sessions, &cgroups);
        if let Some(before) = before {
            let moved = |it: Option<&Membership>| matches!(it, Some(Membership::Moved(_)));
            judged.retain(|pid, it| !moved(Some(it)) || moved(before.get(pid)));
        }
        let processes = Processes::new(&judged, LiveProcess::of);
        let mut traces = join(requests, &sessions, &containers, &processes, now);
        traces.extend(join_debug(requests, &lives, |life| processes.of_container(&life.id)));
        sort(&mut traces);
        Ok(View { traces, judged })
    }
}
