//! Layers from blobs, each once, several at a time.

use std::{
    fs,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{Store, make_private};
use crate::image::{
    catalog::{Layer, LayerRecord},
    error::{Doing, ImageError, Result},
    layer::{self, Extracted},
};

/// More threads only wait for the disk.
const MOST_THREADS: usize = 4;

impl Store {
    /// Unpacks those of an image's layers that are not, from the lowest. Their blobs are here, and
    /// the caller holds leases for both.
    pub(in crate::image) fn unpack_layers(&self, layers: &[Layer]) -> Result<()> {
        if self.missing(layers).is_empty() {
            return Ok(());
        }
        // Chains form a tree and are locked from its root, so no two can wait for each other.
        let _locks: Vec<_> = self
            .missing(layers)
            .iter()
            .map(|at| layers.get(*at).map(|layer| self.layer_locks.lock(layer.chain)))
            .collect();
        let missing = self.missing(layers);
        let unpacked = self.extract_all(layers, &missing)?;
        for (at, unpacked) in missing.into_iter().zip(unpacked) {
            self.finish_layer(layers, at, &unpacked)?;
        }
        Ok(())
    }

    fn missing(&self, layers: &[Layer]) -> Vec<usize> {
        let state = self.state();
        let is_missing = |layer: &Layer| !state.catalog.layers.contains_key(&layer.chain);
        let numbered = layers.iter().enumerate();
        numbered.filter(|(_, layer)| is_missing(layer)).map(|(at, _)| at).collect()
    }

    fn extract_all(&self, layers: &[Layer], missing: &[usize]) -> Result<Vec<Unpacked>> {
        let next = AtomicUsize::new(0);
        let results: Vec<_> = missing.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let (Some(number), Some(result)) = (missing.get(at), results.get(at)) else {
                    break;
                };
                let Some(layer) = layers.get(*number) else { break };
                let extracted = self.extract(layer);
                *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(extracted);
            }
        };
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        thread::scope(|scope| {
            // The caller's own thread is one of them.
            for _ in 1..missing.len().min(cores).min(MOST_THREADS) {
                scope.spawn(work);
            }
            work();
        });
        let results = results.into_iter().map(|result| {
            let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
            result.unwrap_or_else(|| Err(ImageError::archive("a layer was not unpacked")))
        });
        results.collect()
    }

    fn extract(&self, layer: &Layer) -> Result<Unpacked> {
        let directory = Temporary(self.temporary());
        let target = &directory.0;
        make_private(target)?;
        // What is in the directory is private; the root file system itself is not.
        rustix::fs::chmod(target, rustix::fs::Mode::from_raw_mode(0o755))
            .doing(|| format!("opening up {}", target.display()))?;
        let extracted = layer::extract(self.open_blob(layer.blob)?, target, &self.limits);
        let extracted = extracted.and_then(|extracted| {
            let (expected, found) = (layer.diff, extracted.diff_id);
            if found == expected {
                return Ok(extracted);
            }
            let what = format!("the unpacked layer {}", layer.blob);
            Err(ImageError::Digest { what, expected, found })
        });
        Ok(Unpacked { extracted: extracted?, directory })
    }

    fn finish_layer(&self, layers: &[Layer], at: usize, unpacked: &Unpacked) -> Result<()> {
        let (Some(layer), Some(below)) = (layers.get(at), layers.get(..at)) else { return Ok(()) };
        let below: Vec<_> = below.iter().rev().map(|layer| self.layer_path(layer.chain)).collect();
        let Unpacked { directory: Temporary(path), extracted } = unpacked;
        layer::adopt_directories(path, &extracted.implied, &below)?;
        let target = self.layer_path(layer.chain);
        // One that the catalogue does not know was never finished.
        super::remove_tree(&target)?;
        fs::rename(path, &target).doing(|| format!("making {}", target.display()))?;
        let record = LayerRecord {
            bytes: extracted.bytes,
            inodes: extracted.inodes,
            unsettled: Some(self.boot.clone()),
        };
        let _writer = self.writer();
        self.state().catalog.layers.insert(layer.chain, record);
        Ok(())
    }
}

/// A layer that is not at its place yet.
struct Unpacked {
    directory: Temporary,
    extracted: Extracted,
}

/// A directory that goes away unless it was moved to its place.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What stays goes at the next start.
        let _ = super::remove_tree(&self.0);
    }
}
