//! What the machine is short of: memory, room on its disks, process ids.
//!
//! Measured by whoever needs to know, and remembered for all: the node's object tells the conditions, pods are admitted
//! by them, and [`crate::worker`] makes room.

mod gauge;
mod judge;
mod threshold;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tonic::Status;

pub use self::threshold::{EvictionThresholds, ThresholdError};
use self::{gauge::Places, judge::Judge};
pub(crate) use self::{
    gauge::{Disk, meminfo_bytes},
    judge::{Conditions, Shortage},
    threshold::Signal,
};
use crate::cri::Runtime;

/// When the node is under pressure, and for how long it says so.
#[derive(Clone, Debug)]
pub struct EvictionLimits {
    /// What must be left.
    pub thresholds: EvictionThresholds,
    /// How long there must be enough of something before its condition ends.
    pub transition_period: Duration,
}

impl Default for EvictionLimits {
    fn default() -> Self {
        let transition_period = Duration::from_mins(5);
        Self { thresholds: EvictionThresholds::default(), transition_period }
    }
}

/// The pressure on a node. Clones share what is known.
#[derive(Clone)]
pub(crate) struct Pressure(Arc<State>);

struct State {
    limits: EvictionLimits,
    places: Mutex<Places>,
    judge: Mutex<Judge>,
}

impl Pressure {
    /// `state` is on the disk of the node's own files.
    pub(crate) fn new(limits: EvictionLimits, state: PathBuf) -> Self {
        let places = Mutex::new(Places { node: state, images: None });
        Self(Arc::new(State { limits, places, judge: Mutex::default() }))
    }

    /// Asks the runtime once where its images lie; until it has told, their disk is not measured.
    pub(crate) async fn find_images(&self, runtime: &Runtime) -> Result<(), Status> {
        if lock(&self.0.places).images.is_none() {
            let place = runtime.image_place().await?;
            lock(&self.0.places).images = place.map(PathBuf::from);
        }
        Ok(())
    }

    /// What must be left.
    pub(crate) fn thresholds(&self) -> &EvictionThresholds {
        &self.0.limits.thresholds
    }

    /// Measures now. What there is too little of, the first to be relieved first.
    pub(crate) fn look(&self) -> Vec<Shortage> {
        let readings = lock(&self.0.places).clone().read();
        lock(&self.0.judge).look(&self.0.limits.thresholds, &readings, Instant::now())
    }

    /// As the last looks have it.
    pub(crate) fn conditions(&self) -> Conditions {
        lock(&self.0.judge).conditions(self.0.limits.transition_period, Instant::now())
    }

    /// Whether images and containers have another disk than volumes and logs.
    pub(crate) fn images_are_apart(&self) -> bool {
        lock(&self.0.places).clone().images_are_apart()
    }
}

/// A panic elsewhere does not make what was measured wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
