//! Images that nobody uses go when the disk that they lie on fills up, the longest unused first. What is
//! pinned, used by a container, or has only just come stays.
//!
//! The rules are those of kubelets. All is done over CRI; only the size of the disk is asked of the
//! system, for CRI does not tell it.

mod plan;

use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

use rustix::fs::statvfs;
use tokio::{sync::Mutex, time::sleep};
use tonic::Status;
use tracing::{debug, info, warn};
use waybill_proto::cri::{Container, Image};

use self::plan::{Known, Space};
use crate::{
    Clock,
    cri::Runtime,
    event::{Kind, Recorder},
};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(30);

/// When images are removed, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// From this use of the disk on, in percent, images are removed; 100 for never.
    pub high_percent: u8,
    /// Until no more than this is used.
    pub low_percent: u8,
    /// Images that have come later than this ago stay.
    pub least_age: Duration,
}

/// Removes images that nobody uses.
pub(crate) struct ImageCollector {
    pub(crate) runtime: Runtime,
    limits: ImageLimits,
    recorder: Recorder,
    clock: Clock,
    of_volumes: ImageNames,
    known: Mutex<Known>,
}

/// The names of images that pods have as volumes; containers do not tell them.
pub(crate) type ImageNames = Box<dyn Fn() -> BTreeSet<String> + Send + Sync>;

impl ImageCollector {
    pub(crate) fn new(
        runtime: Runtime,
        limits: ImageLimits,
        recorder: Recorder,
        clock: Clock,
        of_volumes: ImageNames,
    ) -> Self {
        Self { runtime, limits, recorder, clock, of_volumes, known: Mutex::default() }
    }

    /// Runs for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut place = None;
        loop {
            match self.look(&mut place).await {
                Ok(()) => {}
                Err(LookError::Runtime(status)) => {
                    debug!(code = ?status.code(), reason = status.message(), "images are not looked at");
                }
                Err(LookError::Disk(error)) => {
                    warn!(%error, "the disk of the images is not looked at");
                }
            }
            sleep(LOOK).await;
        }
    }

    /// Removes all images that nobody uses, apart from those that have only just come.
    pub(crate) async fn remove_unused(&self) -> Result<(), Status> {
        let mut known = self.known.lock().await;
        self.update(&mut known).await?;
        self.free(&mut known, u64::MAX).await;
        Ok(())
    }

    /// `place` is where images lie, once that is known; runtimes may have to think about it.
    async fn look(&self, place: &mut Option<String>) -> Result<(), LookError> {
        let mut known = self.known.lock().await;
        self.update(&mut known).await?;
        if self.limits.high_percent >= 100 {
            return Ok(());
        }
        if place.is_none() {
            *place = self.runtime.image_place().await?;
        }
        let Some(place) = place else { return Ok(()) };
        let Some(wanted) = space(Path::new(place))?.to_free(self.limits) else { return Ok(()) };
        let freed = self.free(&mut known, wanted).await;
        if freed < wanted && known.is_worth_telling((self.clock)()) {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {wanted} \
                 bytes, but only found {freed} bytes eligible to free."
            );
            self.recorder.node(Kind::Warning, "FreeDiskSpaceFailed", &message);
        }
        Ok(())
    }

    async fn update(&self, known: &mut Known) -> Result<(), Status> {
        let (images, containers) =
            tokio::try_join!(self.runtime.list_images(), self.runtime.list(None))?;
        let names = |container: Container| {
            let spec = container.image.unwrap_or_default();
            [container.image_ref, container.image_id, spec.image]
        };
        let mut used: Vec<String> = containers.into_iter().flat_map(names).collect();
        for name in (self.of_volumes)() {
            used.extend(self.runtime.image(&name).await?.map(|found| found.image.id));
        }
        known.update(&images, &used, (self.clock)());
        Ok(())
    }

    /// Removes images until so many bytes are free, or none is left that may go. The bytes that they had.
    async fn free(&self, known: &mut Known, wanted: u64) -> u64 {
        let mut freed: u64 = 0;
        for (id, size) in known.removable(self.limits.least_age, (self.clock)()) {
            if freed >= wanted {
                break;
            }
            match self.runtime.remove_image(&id).await {
                Ok(()) => {
                    info!(image = id, bytes = size, "an image that nobody used was removed");
                    known.forget(&id);
                    freed = freed.saturating_add(size);
                }
                Err(status) => {
                    warn!(image = id, reason = status.message(), "an image cannot be removed");
                }
            }
        }
        freed
    }
}

/// Why nothing is known.
enum LookError {
    Disk(io::Error),
    Runtime(Status),
}

impl From<Status> for LookError {
    fn from(status: Status) -> Self {
        Self::Runtime(status)
    }
}

fn space(place: &Path) -> Result<Space, LookError> {
    let found = statvfs(place).map_err(|error| LookError::Disk(error.into()))?;
    Ok(Space {
        capacity: found.f_blocks.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

/// Whether one of the names by which containers know their images is one of this image.
fn is_used(image: &Image, used: &[String]) -> bool {
    let own = |name: &String| {
        *name == image.id || image.repo_tags.contains(name) || image.repo_digests.contains(name)
    };
    used.iter().any(own)
}
