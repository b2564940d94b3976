//! What the machine has: processors, memory, disk, and who it is.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    thread::available_parallelism,
};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rustix::{
    fs::statvfs,
    system::{sysinfo, uname},
};

/// Memory that pods cannot have; with less than this left the node is short of it.
const MEMORY_RESERVE: u64 = 100 << 20;

/// Of its disk a node keeps a tenth free, and of its files a twentieth.
const DISK_RESERVE_PERCENT: u64 = 10;
const FILES_RESERVE_PERCENT: u64 = 5;

/// Above this share of process ids a node is short of them.
const PROCESSES_PERCENT: u64 = 95;

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
        let disk = disk(state).map_err(|source| {
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
            disk: disk.bytes,
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

    /// All that pods can have.
    pub(super) fn allocatable(&self, max_pods: u32) -> BTreeMap<String, Quantity> {
        let huge: u64 = self.huge_pages.values().sum();
        let memory = self.memory.saturating_sub(MEMORY_RESERVE).saturating_sub(huge);
        let disk = self.disk - self.disk / 100 * DISK_RESERVE_PERCENT;
        self.resources(max_pods, memory, disk)
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

/// Memory of which there is too little, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// With less than this the machine is short of it.
    pub(crate) least: u64,
    pub(crate) available: u64,
}

impl Shortage {
    /// Looks now. What cannot be read is not short.
    pub(crate) fn of_memory() -> Option<Self> {
        let available = meminfo_bytes(&first_text(&["/proc/meminfo"]), "MemAvailable")?;
        let least = MEMORY_RESERVE;
        (available < least).then_some(Self { least, available })
    }
}

/// What the machine is short of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    pub(super) memory: bool,
    pub(super) disk: bool,
    pub(super) processes: bool,
}

impl Pressure {
    /// Looks now. What cannot be read is not short.
    pub(super) fn read(state: &Path) -> Self {
        let most: Option<u64> = first_text(&["/proc/sys/kernel/pid_max"]).parse().ok();
        Self {
            memory: Shortage::of_memory().is_some(),
            disk: disk(state).is_ok_and(|disk| disk.is_short()),
            processes: most
                .is_some_and(|most| u64::from(sysinfo().procs) > most / 100 * PROCESSES_PERCENT),
        }
    }
}

struct Disk {
    bytes: u64,
    free_bytes: u64,
    files: u64,
    free_files: u64,
}

impl Disk {
    fn is_short(&self) -> bool {
        self.free_bytes < self.bytes / 100 * DISK_RESERVE_PERCENT
            || self.free_files < self.files / 100 * FILES_RESERVE_PERCENT
    }
}

fn disk(path: &Path) -> io::Result<Disk> {
    // What does not exist yet will stand where its parent does.
    let path = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let found = statvfs(path)?;
    Ok(Disk {
        bytes: found.f_blocks.saturating_mul(found.f_frsize),
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        files: found.f_files,
        free_files: found.f_favail,
    })
}

/// The first of the files that can be read, without white space around it, or nothing.
fn first_text(paths: &[&str]) -> String {
    let text = paths.iter().find_map(|path| fs::read_to_string(path).ok());
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
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
    fn memory_is_told_in_kibibytes() {
        let meminfo = "MemTotal:       16314904 kB\nMemAvailable:  1 kB\n";
        assert_eq!(meminfo_bytes(meminfo, "MemTotal"), Some(16_314_904 * 1024));
        assert_eq!(meminfo_bytes(meminfo, "Mem"), None);
        assert_eq!(meminfo_bytes("MemTotal: many", "MemTotal"), None);
    }

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
        let (all, for_pods) = (machine.capacity(110), machine.allocatable(110));
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

    #[test]
    fn a_disk_is_short_of_bytes_or_of_files() {
        let disk =
            |free_bytes, free_files| Disk { bytes: 1000, free_bytes, files: 1000, free_files };
        assert!(!disk(100, 50).is_short());
        assert!(disk(99, 50).is_short());
        assert!(disk(100, 49).is_short());
    }
}
