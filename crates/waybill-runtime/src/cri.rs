//! The container runtime interface: keeps the records of sandboxes and containers, and turns requests
//! into what the engine and the image store do.
//!
//! Requests that change something run to their end, also when the client goes away. Records and files
//! of sandboxes lie on tmpfs, beside the engine's own, and hold no value of a variable.

mod apparmor;
mod authority;
mod clear;
mod container;
mod convert;
mod create;
mod deadline;
mod error;
mod events;
mod exec;
mod files;
mod filter;
mod image;
mod image_transfer;
mod image_volume;
mod machine;
mod metrics;
mod record;
mod recover;
mod sandbox;
mod sensitive;
mod server;
mod service;
mod sessions;
mod signals;
mod spec;
mod stats;
mod status;
mod store;
mod unknown;
mod volumes;

use std::{path::PathBuf, sync::Arc};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_core::env::{name::EnvName, value::EnvValue};

pub use self::{
    error::CriError,
    server::{Config, OpenFiles, Server, ServerError, UnsetSeccompProfile},
};
use self::{
    error::Result, events::Events, machine::Machine, stats::Samples, status::Network, store::Store,
};
use crate::{
    blocking::{on_a_thread, on_a_thread_or_here},
    engine::Engine,
    image::Images,
    streaming::Streaming,
};

/// Nanoseconds since 1970; a function so that tests decide.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What every request may use.
struct Cri {
    engine: Arc<Engine>,
    images: Images,
    streaming: Arc<Streaming<Arc<Engine>>>,
    store: Store,
    machine: Machine,
    events: Events,
    samples: Samples,
    network: Network,
    /// On tmpfs; ours is what lies in `cri` below it.
    run_dir: PathBuf,
    state_dir: PathBuf,
    /// What every exec session gets, over all others (EXEC-05).
    exec_env: Vec<(String, Vec<u8>)>,
    clock: Clock,
    tasks: TaskTracker,
    /// Cancelled when the runtime stops.
    stop: CancellationToken,
}

impl Cri {
    /// Runs `work` to its end, whatever becomes of who asked for it.
    async fn complete<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.tasks.spawn(work).await.map_err(|_| CriError::Stopping)?
    }

    /// Runs what waits for the disk where that is fine; what frees or tells something.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        on_a_thread_or_here(tracked(&self.tasks, work)).await?
    }

    /// Runs what waits for the disk and makes something, or refuses.
    async fn making<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        on_a_thread(tracked(&self.tasks, work)).await?
    }

    fn now(&self) -> i64 {
        (self.clock)()
    }

    fn sandboxes_dir(&self) -> PathBuf {
        self.run_dir.join("cri/sandboxes")
    }

    fn sandbox_dir(&self, id: &str) -> PathBuf {
        self.sandboxes_dir().join(id)
    }

    fn containers_dir(&self) -> PathBuf {
        self.run_dir.join("cri/containers")
    }

    fn container_dir(&self, id: &str) -> PathBuf {
        self.containers_dir().join(id)
    }

    fn rootfs(&self, container: &str) -> PathBuf {
        self.container_dir(container).join("rootfs")
    }

    /// What the runtime itself adds to an exec session.
    fn runtime_env(&self) -> Result<Vec<(EnvName, EnvValue)>> {
        let pair = |(name, value): &(String, Vec<u8>)| waybill_proto::cri::KeyValue {
            key: name.clone(),
            value: value.clone(),
        };
        Ok(waybill_proto::env::variables(self.exec_env.iter().map(pair).collect())?)
    }
}

/// The same work, which whoever stops the runtime waits for.
fn tracked<T, F: FnOnce() -> T + Send>(
    tasks: &TaskTracker,
    work: F,
) -> impl FnOnce() -> T + Send + use<T, F> {
    let token = tasks.token();
    move || {
        let done = work();
        drop(token);
        done
    }
}
