//! The life of a container after it was made.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use tracing::info;
use waybill_core::chain::Chain;
use waybill_proto::cri::{
    ContainerEventType, ContainerFilter, ContainerState, ContainerStatus, ContainerStatusResponse,
    UpdateContainerResourcesRequest,
};

use super::{
    Cri,
    convert::{self, Standing},
    error::{CriError, Result},
    filter,
    record::{self, ContainerRecord, StartError},
    spec,
};
use crate::engine::{EngineError, State, seconds};

/// What cannot be killed within this time hangs in the kernel.
const KILL_LIMIT: Duration = Duration::from_secs(60);

impl Cri {
    pub(super) async fn start_container(self: Arc<Self>, id: String) -> Result<()> {
        let container = self.store.container(&id)?;
        let _starting = container.lifecycle.lock().await;
        let id = container.record().id;
        let standing = self.standing(&container.record());
        if standing.state != ContainerState::ContainerCreated {
            return Err(CriError::state(format!(
                "container {id:?} is {}; only one that was created and not yet started can start",
                shown(&standing)
            )));
        }
        if let Err(error) = self.engine.start(&id).await {
            let error = CriError::from(error);
            // What runs is no failure, whatever became of the answer.
            if matches!(self.engine.state(&id), Ok(State::Running { .. })) {
                return Err(error);
            }
            let failed = StartError { at: self.now(), message: Chain(&error).to_string() };
            self.change_container(&container, |record| record.start_error = Some(failed))?;
            self.tell(&id, ContainerEventType::ContainerStoppedEvent);
            return Err(error);
        }
        info!(container = id, "container is started");
        self.tell(&id, ContainerEventType::ContainerStartedEvent);
        Ok(())
    }

    /// Stop signal, grace, kill. A container that does not run is stopped already.
    pub(super) async fn stop_container(self: Arc<Self>, id: String, grace: i64) -> Result<()> {
        let container = match self.store.container(&id) {
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        let record = container.record();
        match self.engine.state(&record.id) {
            Ok(State::Running { .. }) => {}
            // Nobody can be asked to stop it; it can be killed.
            Ok(State::Silent) => return self.kill(&record.id).await,
            Ok(State::Unknown { .. }) => return Err(self.unknown(&record.id)),
            Ok(State::Created | State::Exited(_)) | Err(_) => return Ok(()),
        }
        let grace = seconds(grace);
        if !grace.is_zero() {
            match self.engine.signal(&record.id, record.stop_signal).await {
                // Nobody can be asked to stop it; it can be killed.
                Err(EngineError::MonitorSilent { .. }) => return self.kill(&record.id).await,
                signalled => signalled?,
            }
            tokio::select! {
                ended = timeout(grace, self.engine.wait(&record.id)) => {
                    if ended.is_err() {
                        info!(container = record.id, "container did not stop in time and is killed");
                    }
                }
                // Nobody is served while a runtime stops, and a grace may be long. The container has its signal; whoever
                // wants it stopped asks the next runtime.
                () = self.stop.cancelled() => return Err(CriError::Stopping),
            }
        }
        self.kill(&record.id).await
    }

    /// Removes a container, killing it if it runs.
    pub(super) async fn remove_container(self: Arc<Self>, id: String) -> Result<()> {
        let container = match self.store.container(&id) {
            Err(error) if error.is_not_found() => return Ok(()),
            found => found?,
        };
        let _removing = container.lifecycle.lock().await;
        let record = container.record();
        if self.store.container(&record.id).is_err() {
            // Somebody was faster.
            return Ok(());
        }
        // What is not understood stays, and nothing may say otherwise to a runtime that does understand it.
        if matches!(self.engine.state(&record.id), Ok(State::Unknown { .. })) {
            return Err(self.unknown(&record.id));
        }
        self.change_container(&container, |record| record.removing = true)?;
        self.kill(&record.id).await?;
        let status = convert::container_status(&record, self.standing(&record));
        self.discard_container(&record.id).await?;
        self.store.remove_container(&record.id);
        self.samples.forget(&record.id);
        info!(container = record.id, "container is removed");
        self.tell_removed(status, &record.sandbox);
        Ok(())
    }

    pub(super) fn list_containers(
        &self,
        filter: &ContainerFilter,
    ) -> Vec<waybill_proto::cri::Container> {
        let records = self.store.containers().into_iter().map(|container| container.record());
        let with_standing = records.map(|record| (self.standing(&record), record));
        let unknown = self.store.unknown_containers().into_iter().map(|it| it.shown.clone());
        with_standing
            .map(|(standing, record)| convert::container(&record, &standing))
            .chain(unknown)
            .filter(|shown| filter::container(filter, shown))
            .collect()
    }

    pub(super) fn container_status(
        &self,
        id: &str,
        verbose: bool,
    ) -> Result<ContainerStatusResponse> {
        let container = match self.store.container(id) {
            Err(error) => match self.store.unknown_container(id) {
                Some(unknown) => return Ok(unknown.status_response()),
                None => return Err(error),
            },
            Ok(container) => container,
        };
        let record = container.record();
        let standing = self.standing(&record);
        let info =
            verbose.then(|| ("info".to_owned(), convert::container_info(&record, &standing)));
        Ok(ContainerStatusResponse {
            status: Some(convert::container_status(&record, standing)),
            info: info.into_iter().collect(),
        })
    }

    /// The status of every container of a sandbox.
    pub(super) fn statuses_in(&self, sandbox: &str) -> Vec<ContainerStatus> {
        let records = self.store.containers_of(sandbox).into_iter().map(|it| it.record());
        let unknown = self.store.unknown_containers().into_iter();
        let unknown = unknown.filter(|it| it.shown.pod_sandbox_id == sandbox);
        records
            .map(|record| convert::container_status(&record, self.standing(&record)))
            .chain(unknown.map(|it| it.status()))
            .collect()
    }

    pub(super) async fn update_container(
        self: Arc<Self>,
        request: UpdateContainerResourcesRequest,
    ) -> Result<()> {
        let container = self.store.container(&request.container_id)?;
        let _updating = container.lifecycle.lock().await;
        if request.windows.is_some() {
            let advice = "this runtime is for Linux";
            return Err(CriError::unsupported("resources for Windows", advice));
        }
        let Some(update) = request.linux else { return Ok(()) };
        let resources = spec::resources(&update, &self.machine)?;
        let id = container.record().id;
        self.engine.update(&id, &resources).await?;
        self.change_container(&container, |record| spec::merge(&mut record.resources, &update))
    }

    pub(super) async fn reopen_log(self: Arc<Self>, id: String) -> Result<()> {
        let id = self.running(&id)?;
        Ok(self.engine.reopen_log(&id).await?)
    }

    /// The whole id of a container that runs.
    pub(super) fn running(&self, id: &str) -> Result<String> {
        let record = self.store.container(id)?.record();
        let standing = self.standing(&record);
        if standing.state != ContainerState::ContainerRunning {
            let reason = format!("container {:?} is {}, not running", record.id, shown(&standing));
            return Err(CriError::state(reason));
        }
        Ok(record.id)
    }

    pub(super) fn standing(&self, record: &ContainerRecord) -> Standing {
        Standing::of(record, self.engine.state(&record.id).ok().as_ref())
    }

    /// Kills all processes of a container and waits until its end is known. One that the engine does
    /// not know, or that has ended, is dead.
    pub(super) async fn kill(&self, id: &str) -> Result<()> {
        match self.engine.kill_all(id).await {
            Ok(()) | Err(EngineError::NotFound { .. } | EngineError::WrongState { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if !matches!(self.engine.state(id), Ok(State::Running { .. } | State::Silent)) {
            return Ok(());
        }
        match timeout(KILL_LIMIT, self.engine.wait_killed(id)).await {
            Ok(Ok(_) | Err(EngineError::NotFound { .. })) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                let reason = format!(
                    "container {id:?} was killed and does not end; its processes \
                                      hang in the kernel"
                );
                Err(CriError::state(reason))
            }
        }
    }

    /// Why a container that the engine does not understand is left as it is.
    fn unknown(&self, id: &str) -> CriError {
        let reason = match self.engine.state(id) {
            Ok(State::Unknown { reason }) => reason,
            _ => String::new(),
        };
        CriError::Unknown { kind: "container", id: id.to_owned(), reason }
    }

    /// Fails if something in a sandbox is not understood: it would die with the sandbox.
    pub(super) fn check_understood(&self, sandbox: &str) -> Result<()> {
        let unknown = self.store.unknown_containers();
        if let Some(unknown) = unknown.iter().find(|it| it.shown.pod_sandbox_id == sandbox) {
            return Err(unknown.error());
        }
        let ids = self.store.containers_of(sandbox).into_iter().map(|it| it.record().id);
        let is_unknown = |id: &String| matches!(self.engine.state(id), Ok(State::Unknown { .. }));
        match ids.into_iter().find(is_unknown) {
            Some(id) => Err(self.unknown(&id)),
            None => Ok(()),
        }
    }

    fn change_container(
        &self,
        container: &super::store::Container,
        change: impl FnOnce(&mut ContainerRecord),
    ) -> Result<()> {
        let directory = self.container_dir(&container.record().id);
        container.change(change, |record| {
            record::write(&directory, record).map_err(CriError::io("write", &directory))
        })
    }
}

fn shown(standing: &Standing) -> &'static str {
    match standing.state {
        ContainerState::ContainerCreated => "created",
        ContainerState::ContainerRunning => "running",
        ContainerState::ContainerExited => "exited",
        ContainerState::ContainerUnknown => "unknown",
    }
}
