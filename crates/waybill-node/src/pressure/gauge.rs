//! Measuring what is left of memory, disks and process ids. What cannot be read is not short.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{fs::statvfs, system::sysinfo};

use super::{
    judge::{Reading, Readings},
    threshold::Signal,
};

/// The file systems of a node.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Of volumes, logs and other files of pods.
    pub(super) node: PathBuf,
    /// Of images and containers, once the runtime has told it.
    pub(super) images: Option<PathBuf>,
}

impl Places {
    /// Looks now.
    pub(super) fn read(&self) -> Readings {
        let memory = memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        let mut found: Vec<_> =
            memory.map(|reading| (Signal::MemoryAvailable, reading)).into_iter().collect();
        found.extend(processes().map(|reading| (Signal::PidAvailable, reading)));
        let disks = [
            (Some(&self.node), Signal::NodefsAvailable, Signal::NodefsInodesFree),
            (self.images.as_ref(), Signal::ImagefsAvailable, Signal::ImagefsInodesFree),
        ];
        for (place, room, files) in disks {
            let Some(disk) = place.and_then(|place| Disk::read(place).ok()) else { continue };
            found.push((room, disk.room));
            found.extend(disk.files.map(|reading| (files, reading)));
        }
        found.into_iter().collect()
    }

    /// Whether images and containers have another file system than volumes and logs.
    pub(super) fn images_are_apart(&self) -> bool {
        let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
        self.images.as_deref().is_some_and(|images| device(images) != device(&self.node))
    }
}

/// What a file system has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    /// In bytes.
    pub(crate) room: Reading,
    /// Nothing where files are not counted.
    files: Option<Reading>,
}

impl Disk {
    /// The one that `path` is on, or will be.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let path = path.ancestors().find(|path| path.exists()).unwrap_or(path);
        let found = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let files = Reading { available: found.f_favail, capacity: found.f_files };
        Ok(Self {
            room: Reading { available: bytes(found.f_bavail), capacity: bytes(found.f_blocks) },
            files: Some(files).filter(|files| files.capacity > 0),
        })
    }
}

fn memory(meminfo: &str) -> Option<Reading> {
    Some(Reading {
        available: meminfo_bytes(meminfo, "MemAvailable")?,
        capacity: meminfo_bytes(meminfo, "MemTotal")?,
    })
}

/// One line of `/proc/meminfo`.
pub(crate) fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Threads count as processes, for the kernel too.
fn processes() -> Option<Reading> {
    let most = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let capacity = most("/proc/sys/kernel/pid_max")?.min(most("/proc/sys/kernel/threads-max")?);
    let available = capacity.saturating_sub(u64::from(sysinfo().procs));
    Some(Reading { available, capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_kibibytes() {
        let meminfo = "MemTotal:       16314904 kB\nMemAvailable:  1 kB\n";
        let expected = Reading { available: 1024, capacity: 16_314_904 * 1024 };
        assert_eq!(memory(meminfo), Some(expected));
        assert_eq!(meminfo_bytes(meminfo, "Mem"), None);
        assert_eq!(meminfo_bytes("MemTotal: many", "MemTotal"), None);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("not/yet");
        let places = Places { node: missing, images: Some(dir.path().to_owned()) };
        let readings = places.read();
        for signal in [Signal::MemoryAvailable, Signal::NodefsAvailable, Signal::PidAvailable] {
            let reading = readings[&signal];
            assert!(reading.available <= reading.capacity && reading.capacity > 0, "{signal:?}");
        }
        assert!(readings.contains_key(&Signal::ImagefsAvailable));
        assert!(!Places { images: None, ..places }.read().contains_key(&Signal::ImagefsAvailable));
    }

    #[test]
    fn images_are_apart_when_they_have_a_disk_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let places = |images: Option<&str>| Places {
            node: dir.path().to_owned(),
            images: images.map(PathBuf::from),
        };
        assert!(places(Some("/proc")).images_are_apart());
        assert!(!places(dir.path().to_str()).images_are_apart());
        assert!(!places(None).images_are_apart());
    }
}
