//! What the machine has: processors, memory, disk, and who it is.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    thread::available_parallelism,
};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rustix::system::uname;

use crate::pressure::{Disk, EvictionThresholds, Signal, meminfo_bytes};

/// What does not change while the machine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) processors: usize,
    /// In bytes.
    pub(super) memory: u64,
    pub(super) swap: u64,
    pub(super) disk: u64,
    /// Pages of each size, in bytes.
    pub(super) huge_pages: BTreeMap<String, u64>,
    pub(super) kernel: String,
    pub(super) os_image: String,
    pub(super) machine_id: String,
    pub(super) system_uuid: String,
    pub(super) boot_id: String,
}

/// Why a machine cannot be described.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("/proc/meminfo does not say how much memory there is")]
    Memory,
    #[error("cannot count the processors")]
    Processors(#[source] io::Error),
    #[error("cannot tell the size of the file system of {}", path.display())]
    Disk { path: PathBuf, source: io::Error },
}

impl Machine {
    /// Looks around. `state` is the directory whose file system is the node's.
    pub(super) fn read(state: &Path) -> Result<Self, MachineError> {
        let path = Path::new("/proc/meminfo");
        let meminfo = fs::read_to_string(path)
            .map_err(|source| MachineError::Read { path: path.to_owned(), source })?;
        let memory = meminfo_bytes(&meminfo, "MemTotal").ok_or(MachineError::Memory)?;
        let disk = Disk::read(state).map_err(|source| {
            let path = state.to_owned();
            MachineError::Disk { path, source }
        })?;
        let machine_id = first_text(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
        let system_uuid = first_text(&["/sys/class/dmi/id/product_uuid"]);
        let os_release = first_text(&["/etc/os-release", "/usr/lib/os-release"]);
        Ok(Self {
            processors: available_parallelism().map_err(MachineError::Processors)?.get(),
            memory,
            swap: meminfo_bytes(&meminfo, "SwapTotal").unwrap_or(0),
            disk: disk.room.capacity,
            huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
            kernel: uname().release().to_string_lossy().into_owned(),
            os_image: os_name(&os_release),
            system_uuid: if system_uuid.is_empty() { machine_id.clone() } else { system_uuid },
            machine_id,
            boot_id: first_text(&["/proc/sys/kernel/random/boot_id"]),
        })
    }

    /// All that there is.
    pub(super) fn capacity(&self, max_pods: u32) -> BTreeMap<String, Quantity> {
        self.resources(max_pods, self.memory, self.disk)
    }

    /// All that pods can have without bringing the node under pressure.
    pub(super) fn allocatable(
        &self,
        max_pods: u32,
        thresholds: &EvictionThresholds,
    ) -> BTreeMap<String, Quantity> {
        let rest = |signal, capacity: u64| {
            capacity.saturating_sub(thresholds.least(signal, capacity).unwrap_or(0))
        };
        let huge: u64 = self.huge_pages.values().sum();
        let memory = rest(Signal::MemoryAvailable, self.memory).saturating_sub(huge);
        self.resources(max_pods, memory, rest(Signal::NodefsAvailable, self.disk))
    }

    fn resources(&self, max_pods: u32, memory: u64, disk: u64) -> BTreeMap<String, Quantity> {
        let mut resources = BTreeMap::from([
            ("cpu".to_owned(), Quantity(self.processors.to_string())),
            ("memory".to_owned(), kibibytes(memory)),
            ("ephemeral-storage".to_owned(), kibibytes(disk)),
            ("pods".to_owned(), Quantity(max_pods.to_string())),
        ]);
        resources
            .extend(self.huge_pages.iter().map(|(name, bytes)| (name.clone(), kibibytes(*bytes))));
        resources
    }
}

/// The first of the files that can be read, without white space around it, or nothing.
fn first_text(paths: &[&str]) -> String {
    let text = paths.iter().find_map(|path| fs::read_to_string(path).ok());
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// `hugepages-2Mi` and how much of it there is, for each size that the kernel has.
fn huge_pages(directory: &Path) -> BTreeMap<String, u64> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let kibibytes = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            let kibibytes: u64 = kibibytes.parse().ok()?;
            let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
            let count: u64 = count.trim().parse().ok()?;
            let size = match kibibytes {
                size if size % (1 << 20) == 0 => format!("{}Gi", size >> 20),
                size if size % (1 << 10) == 0 => format!("{}Mi", size >> 10),
                size => format!("{size}Ki"),
            };
            Some((format!("hugepages-{size}"), count.checked_mul(kibibytes)?.checked_mul(1024)?))
        })
        .collect()
}

fn os_name(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches(['"', '\'']).to_owned()
}

fn kibibytes(bytes: u64) -> Quantity {
    match bytes {
        0 => Quantity("0".to_owned()),
        bytes => Quantity(format!("{}Ki", bytes / 1024)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_have_names() {
        assert_eq!(os_name("ID=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        assert_eq!(os_name(""), "Linux");
    }

    #[test]
    fn pods_get_less_than_there_is() {
        let machine = Machine {
            processors: 2,
            memory: 1 << 30,
            swap: 0,
            disk: 1_024_000,
            huge_pages: BTreeMap::from([("hugepages-2Mi".to_owned(), 4 << 20)]),
            kernel: String::new(),
            os_image: String::new(),
            machine_id: String::new(),
            system_uuid: String::new(),
            boot_id: String::new(),
        };
        let quantity = |list: &BTreeMap<String, Quantity>, name: &str| list[name].0.clone();
        let (all, for_pods) =
            (machine.capacity(110), machine.allocatable(110, &EvictionThresholds::default()));
        assert_eq!(quantity(&all, "memory"), "1048576Ki");
        assert_eq!(quantity(&for_pods, "memory"), "942080Ki");
        assert_eq!(quantity(&all, "ephemeral-storage"), "1000Ki");
        assert_eq!(quantity(&for_pods, "ephemeral-storage"), "900Ki");
        for list in [&all, &for_pods] {
            assert_eq!(quantity(list, "cpu"), "2");
            assert_eq!(quantity(list, "pods"), "110");
            assert_eq!(quantity(list, "hugepages-2Mi"), "4096Ki");
        }
    }

    #[test]
    fn this_machine_can_be_described() {
        let machine = Machine::read(Path::new("/")).unwrap();
        assert!(machine.processors > 0 && machine.memory > 0 && machine.disk > 0);
        assert!(!machine.kernel.is_empty() && !machine.boot_id.is_empty());
    }
}
