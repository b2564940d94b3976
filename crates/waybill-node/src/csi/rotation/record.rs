//! What a node that is started again knows of containers that it did not start itself.
//!
//! The hashes of a container are written beside the pod's volumes, on a file system in memory that goes with
//! the pod, together with the key that they are under. No value can be had from them but by guessing it; who
//! may read them is root, who may read the values themselves in `/proc`. On a disk there is nothing: where
//! no such file system can be mounted, nothing is written (ADR 0038).

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::{debug, warn};
use uuid::Uuid;
use waybill_core::{chain::Chain, env::value::EnvValue, id::PodUid};

use crate::{
    blocking::blocking,
    directories::Directories,
    volume::{has_memory, make_memory},
};

/// A key, one for each container and each start of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key([u8; 32]);

pub(super) type Hash = [u8; 32];

impl Key {
    pub(super) fn random() -> Self {
        let (left, right) = (Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes());
        let mut key = [0; 32];
        key[..16].copy_from_slice(&left);
        key[16..].copy_from_slice(&right);
        Self(key)
    }

    /// Nothing that is seen of the result tells what went in, without the key.
    pub(super) fn hash(&self, parts: &[&[u8]]) -> Hash {
        let mut inner = Sha256::new_with_prefix(self.0);
        for part in parts {
            inner.update(part.len().to_be_bytes());
            inner.update(part);
        }
        let outer = Sha256::new_with_prefix(self.0).chain_update(inner.finalize());
        outer.finalize().into()
    }

    pub(super) fn hash_value(&self, value: &EnvValue) -> Hash {
        self.hash(&[value.expose()])
    }
}

/// The version of records. Those without one are the same; what is newer counts as not known (ADR 0044).
const VERSION: u32 = 1;

/// What a container was made with, as far as it may change.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(default)]
    version: u32,
    pub(super) key: Key,
    pub(super) classes: BTreeMap<String, ClassRecord>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ClassRecord {
    pub(super) interval: Duration,
    pub(super) hashes: BTreeMap<String, Hash>,
}

impl Record {
    pub(super) fn new(key: Key, classes: BTreeMap<String, ClassRecord>) -> Self {
        Self { version: VERSION, key, classes }
    }
}

/// The records of all containers; none are kept without directories.
#[derive(Default)]
pub(super) struct Records(pub(super) Option<Directories>);

impl Records {
    /// Notes what a container is made with. A container does not wait for a disk here, nor fail because of it.
    pub(super) async fn write(&self, pod: &PodUid, container: &str, record: &Record) {
        let Some(directories) = &self.0 else { return };
        let directory = directories.rotation(pod);
        let path = directories.rotation_record(pod, container);
        let Ok(text) = serde_json::to_vec(record) else { return };
        let written = blocking(move || match make_memory(&directory) {
            Ok(()) => write(&path, &text).map_err(|error| error.to_string()),
            Err(fault) => Err(Chain(&fault).to_string()),
        });
        if let Ok(Err(error)) = written.await {
            warn!(container, error, "a restarted node will not know what this container runs on");
            self.remove(pod, container).await;
        }
    }

    /// What is there is not about the container any more.
    pub(super) async fn remove(&self, pod: &PodUid, container: &str) {
        if let Some(directories) = &self.0 {
            let path = directories.rotation_record(pod, container);
            let _ = blocking(move || fs::remove_file(path)).await;
        }
    }

    pub(super) async fn read(&self, pod: &PodUid, container: &str) -> Option<Record> {
        let directories = self.0.as_ref()?;
        let directory = directories.rotation(pod);
        let path = directories.rotation_record(pod, container);
        // Nothing of ours lies on a disk there.
        let read = move || if has_memory(&directory) { fs::read(path).ok() } else { None };
        let text = blocking(read).await.ok().flatten()?;
        let record = serde_json::from_slice::<Record>(&text);
        let record =
            record.inspect_err(|error| debug!(container, %error, "a record cannot be read"));
        record.ok().filter(|record| record.version <= VERSION)
    }
}

/// Under another name first: a node that is killed leaves a whole file or none.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    fs::rename(&new, path)
}
