//! Logs of running containers are kept small: one that has grown too large gets another name, and the
//! runtime begins a new one. Who follows a log reads on in the new file.
//!
//! Names and order are those of kubelets, which log collectors know: `0.log` is written, then comes
//! `0.log.20260801-101530`, and older ones are compressed as `0.log.20260801-101430.gz`.

mod plan;

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use jiff::{Timestamp, tz::TimeZone};
use tokio::time::sleep;
use tonic::Status;
use tracing::{debug, warn};
use waybill_core::id::PodUid;
use waybill_proto::cri::Container;

use self::plan::Plan;
use crate::{
    Clock,
    blocking::blocking,
    cri::{Runtime, labels},
    directories::Directories,
};

/// Between two looks at all logs.
const LOOK: Duration = Duration::from_secs(10);

/// What logs of one container may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// A file that is larger is rotated; none is, if there is no limit.
    pub max_bytes: Option<u64>,
    /// Files of one container, with the one that is written; at least 2.
    pub max_files: usize,
}

/// Keeps the logs of all containers small.
pub(crate) struct Rotation {
    pub(crate) runtime: Runtime,
    pub(crate) directories: Directories,
    pub(crate) limits: LogLimits,
    pub(crate) clock: Clock,
}

impl Rotation {
    /// Runs for ever.
    pub(crate) async fn run(self) {
        let Some(max_bytes) = self.limits.max_bytes else { return };
        loop {
            sleep(LOOK).await;
            if let Err(status) = self.look(max_bytes).await {
                debug!(code = ?status.code(), reason = status.message(), "logs are not looked at");
            }
        }
    }

    async fn look(&self, max_bytes: u64) -> Result<(), Status> {
        for container in self.runtime.list_running().await? {
            let Some(path) = self.log_of(&container) else { continue };
            match fs::metadata(&path) {
                Ok(found) if found.len() <= max_bytes => {}
                Ok(_) => self.rotate(&container.id, path).await,
                // Somebody removed it, and what the container says would be lost.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.reopen_missing(&container.id, &path).await;
                }
                Err(error) => warn!(path = %path.display(), %error, "a log cannot be looked at"),
            }
        }
        Ok(())
    }

    /// Where the log of a container of this node is.
    fn log_of(&self, container: &Container) -> Option<PathBuf> {
        let label = |name: &str| container.labels.get(name);
        let uid = PodUid::parse(label(labels::POD_UID)?).ok()?;
        let (namespace, name) = (label(labels::POD_NAMESPACE)?, label(labels::POD_NAME)?);
        let pod = self.directories.pod_logs(namespace, name, &uid);
        // The runtime may serve others, who keep their logs elsewhere.
        if !pod.is_dir() {
            return None;
        }
        let attempt = container.metadata.as_ref()?.attempt;
        Some(pod.join(Directories::container_log(label(labels::CONTAINER_NAME)?, attempt)))
    }

    async fn reopen_missing(&self, id: &str, path: &Path) {
        if path.parent().is_some_and(Path::is_dir)
            && let Err(status) = self.runtime.reopen_log(id).await
        {
            debug!(path = %path.display(), reason = status.message(), "a log is missing");
        }
    }

    async fn rotate(&self, id: &str, path: PathBuf) {
        if let Err(error) = self.try_to_rotate(id, &path).await {
            warn!(path = %path.display(), %error, "a log cannot be rotated");
        }
    }

    async fn try_to_rotate(&self, id: &str, path: &Path) -> io::Result<()> {
        let (log, max_files) = (path.to_owned(), self.limits.max_files);
        blocking(move || make_room(&log, max_files)).await.map_err(io::Error::other)??;
        let rotated = with_suffix(path, &stamp((self.clock)()));
        if rotated.exists() {
            // Twice within a second; the next look is soon enough.
            return Ok(());
        }
        fs::rename(path, &rotated)?;
        match self.runtime.reopen_log(id).await {
            Ok(()) => Ok(()),
            Err(status) => {
                // The container still writes to the file, so it gets its name back. It may have ended.
                if !path.exists() {
                    fs::rename(&rotated, path)?;
                }
                Err(io::Error::other(status.message().to_owned()))
            }
        }
    }
}

/// Removes the log at `path` and all that it was before.
pub(crate) fn remove_all(path: &Path) {
    // Files that are gone already are as good.
    let _ = fs::remove_file(path);
    for name in rotated(path).unwrap_or_default() {
        let _ = fs::remove_file(path.with_file_name(name));
    }
}

/// Removes and compresses older files, so that there is room for one more.
fn make_room(path: &Path, max_files: usize) -> io::Result<()> {
    let Plan { remove, compress } = plan::plan(rotated(path)?, max_files);
    for name in remove {
        fs::remove_file(path.with_file_name(name))?;
    }
    compress.iter().try_for_each(|name| compress_file(&path.with_file_name(name)))
}

/// The names of a log's older files.
fn rotated(path: &Path) -> io::Result<Vec<String>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
    else {
        return Ok(Vec::new());
    };
    let prefix = format!("{name}.");
    let mut found = Vec::new();
    for entry in parent.read_dir()? {
        if let Ok(name) = entry?.file_name().into_string()
            && name.starts_with(&prefix)
        {
            found.push(name);
        }
    }
    Ok(found)
}

/// Under another name first: whoever is killed leaves the whole file, the compressed one, or both.
fn compress_file(path: &Path) -> io::Result<()> {
    let unfinished = with_suffix(path, plan::UNFINISHED);
    let mut encoder = GzEncoder::new(File::create(&unfinished)?, Compression::default());
    io::copy(&mut BufReader::new(File::open(path)?), &mut encoder)?;
    let mut file = encoder.finish()?;
    file.flush()?;
    file.set_permissions(fs::metadata(path)?.permissions())?;
    fs::rename(unfinished, with_suffix(path, plan::COMPRESSED))?;
    fs::remove_file(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// The time as part of a name, so that names stand in the order of time.
fn stamp(now: Timestamp) -> String {
    now.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn room_is_made_and_nothing_that_is_kept_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("0.log");
        let other = "10.log.20260801-000000";
        for name in ["0.log", "0.log.20260801-000001", "0.log.20260801-000002", other] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        make_room(&log, 3).unwrap();
        assert_eq!(names(directory.path()), ["0.log", "0.log.20260801-000002.gz", other]);
        let packed = File::open(directory.path().join("0.log.20260801-000002.gz")).unwrap();
        let mut text = String::new();
        GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "0.log.20260801-000002");
        remove_all(&log);
        assert_eq!(names(directory.path()), [other]);
    }

    #[test]
    fn names_stand_in_the_order_of_time() {
        let stamp = |text: &str| stamp(text.parse().unwrap());
        assert_eq!(stamp("2026-08-01T09:05:03.9Z"), "20260801-090503");
        assert!(stamp("2026-08-01T23:59:59Z") < stamp("2026-08-02T00:00:00Z"));
    }
}
