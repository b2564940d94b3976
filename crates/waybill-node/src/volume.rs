//! The volumes of a pod: made before its containers start, kept up to date, and cleared away after it.

use std::path::PathBuf;

use crate::{directories::Directories, pod::Pod};

/// Where a volume is on this machine.
pub(crate) fn host_path(directories: &Directories, pod: &Pod, volume: &str) -> Option<PathBuf> {
    Some(directories.volume(pod.uid(), "empty-dir", volume))
}
