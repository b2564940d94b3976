//! What the kernel counts for a container, in more detail than [`super::Stats`]. What this kernel does not count is missing.

use std::time::SystemTime;

use super::MemoryStats;

/// Everything that is counted for a container.
#[derive(Clone, Debug)]
pub struct Counters {
    /// When the numbers were read.
    pub read_at: SystemTime,
    /// Processor time.
    pub cpu: CpuCounters,
    /// Memory, as its stats tell it.
    pub memory: MemoryStats,
    /// What stats do not tell about memory.
    pub memory_details: MemoryCounters,
    /// Processes that the kernel killed for want of memory.
    pub out_of_memory: u64,
    /// Per block device.
    pub io: Vec<IoCounters>,
    /// Time that was lost for want of something.
    pub pressure: Vec<PressureCounters>,
    /// Per size of huge pages.
    pub huge_pages: Vec<HugePages>,
    /// Processes, and what they hold.
    pub processes: ProcessCounters,
}

/// Processor time in nanoseconds, and how often there was none left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// All of it.
    pub usage_ns: u64,
    /// Outside the kernel.
    pub user_ns: u64,
    /// Inside the kernel.
    pub system_ns: u64,
    /// Periods in which the quota counted.
    pub periods: u64,
    /// Those in which it was used up.
    pub throttled_periods: u64,
    /// How long processes waited for the next one.
    pub throttled_ns: u64,
}

/// Bytes of memory, and how often the limit was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// Page cache.
    pub cache: Option<u64>,
    /// Mapped files.
    pub mapped_file: Option<u64>,
    /// The kernel's own, on behalf of the container.
    pub kernel: Option<u64>,
    /// The most that was ever used.
    pub peak: Option<u64>,
    /// How often the limit was met.
    pub limit_hits: Option<u64>,
}

/// What went to and from a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Its numbers, `major:minor`.
    pub device: String,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// How often was read.
    pub reads: u64,
    /// How often was written.
    pub writes: u64,
}

/// Microseconds in which some or all processes waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PressureCounters {
    /// For `cpu`, `io` or `memory`.
    pub resource: &'static str,
    /// Some waited.
    pub waiting_us: u64,
    /// All waited.
    pub stalled_us: u64,
}

/// Bytes of huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// As the kernel writes it, such as `2MB`.
    pub size: String,
    /// In use.
    pub usage: u64,
    /// The most that was ever in use, where that is counted.
    pub peak: Option<u64>,
}

/// Processes, and what they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounters {
    /// How many there are.
    pub processes: u64,
    /// Their threads.
    pub threads: u64,
    /// How many threads there may be.
    pub threads_limit: Option<u64>,
    /// Open files, sockets included.
    pub files: u64,
    /// Open sockets.
    pub sockets: u64,
    /// How many files a process may open, by the soft limit of one of them.
    pub files_limit: Option<u64>,
}
