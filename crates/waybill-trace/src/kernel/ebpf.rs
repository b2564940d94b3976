//! Events from the kernel itself (eBPF): nothing that a container or session runs is missed, unless the kernel has more to tell than
//! we take, and then it counts.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use super::{
    btf::{Btf, BtfError},
    layout::{KernelEvent, LARGEST},
    offsets::Offsets,
    program::{LICENSE, MapDescriptors, exec_program, exit_program},
};
use crate::sys::{
    bpf::{self, MapKind},
    ring::RingMemory,
};

/// Where the kernel describes its structures.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Some thousand events: those of a second in which a machine does nothing but start programs.
const RING: u32 = 2 << 20;

/// As many programs may run in sessions at one time; of those beyond it the end is not told.
const TRACKED: u32 = 16 << 10;

/// As many containers may be passed over; the processes of those beyond it are told, and passed over here.
const IGNORED: u32 = 4 << 10;

/// So much of what the kernel says against a program is kept; it is for us.
const VERIFIER_LOG: usize = 256 << 10;

/// Why there are no events from the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EbpfError {
    /// The kernel does not describe itself.
    #[error("the kernel does not describe its structures in {BTF}")]
    Describe(#[source] io::Error),
    /// It does, and is not as we know it.
    #[error("the kernel has other structures than we know")]
    Structures(#[from] BtfError),
    /// A map could not be made.
    #[error("the kernel makes no map for events")]
    Map(#[source] io::Error),
    /// The program could not be written.
    #[error("the program for {tracepoint} cannot be written")]
    Assemble {
        /// Where it was to run.
        tracepoint: &'static str,
    },
    /// The kernel does not take the program.
    #[error("the kernel refuses the program for {tracepoint}{}", told(.log))]
    Load {
        /// Where it was to run.
        tracepoint: &'static str,
        /// The last line of what it says against it.
        log: String,
        /// What it answered.
        #[source]
        source: io::Error,
    },
    /// It took it, and does not run it.
    #[error("the kernel does not run the program at {tracepoint}")]
    Attach {
        /// Where it was to run.
        tracepoint: &'static str,
        /// What it answered.
        #[source]
        source: io::Error,
    },
}

fn told(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(": {log}") }
}

/// Programs in the kernel, and the ring through which they tell. They end with it.
#[derive(Debug)]
pub struct Ebpf {
    ring: OwnedFd,
    memory: RingMemory,
    lost: OwnedFd,
    ignored: OwnedFd,
    tracked: OwnedFd,
    programs: Vec<OwnedFd>,
    /// Open as long as the programs are to run.
    _attached: Vec<OwnedFd>,
    buffer: Vec<u8>,
}

impl Ebpf {
    /// Writes the programs for the kernel that runs, and has it run them.
    pub fn load() -> Result<Self, EbpfError> {
        let description = fs::read(BTF).map_err(EbpfError::Describe)?;
        let offsets = Offsets::find(&Btf::parse(&description)?)?;
        drop(description);
        let map = |kind, key, value, entries| {
            bpf::create_map(kind, key, value, entries).map_err(EbpfError::Map)
        };
        let ring = map(MapKind::Ring, 0, 0, RING)?;
        let room = u32::try_from(LARGEST).unwrap_or_default();
        let scratch = map(MapKind::PerProcessorArray, 4, room, 1)?;
        let lost = map(MapKind::Array, 4, 8, 1)?;
        let ignored = map(MapKind::Hash, 8, 4, IGNORED)?;
        let tracked = map(MapKind::Hash, 4, 8, TRACKED)?;
        let maps = MapDescriptors {
            ring: ring.as_raw_fd(),
            scratch: scratch.as_raw_fd(),
            lost: lost.as_raw_fd(),
            ignored: ignored.as_raw_fd(),
            tracked: tracked.as_raw_fd(),
        };
        let memory = RingMemory::map(ring.as_fd(), RING).map_err(EbpfError::Map)?;
        let places = [
            (EXEC_TRACEPOINT, c"sched_process_exec", exec_program(&offsets, maps)),
            (EXIT_TRACEPOINT, c"sched_process_exit", exit_program(&offsets, maps)),
        ];
        let (mut programs, mut attached) = (Vec::new(), Vec::new());
        for (tracepoint, name, program) in places {
            let program = program.ok_or(EbpfError::Assemble { tracepoint })?;
            let program = load(tracepoint, &program)?;
            let link = bpf::attach(name, program.as_fd());
            attached.push(link.map_err(|source| EbpfError::Attach { tracepoint, source })?);
            programs.push(program);
        }
        Ok(Self {
            ring,
            memory,
            lost,
            ignored,
            tracked,
            programs,
            _attached: attached,
            buffer: Vec::new(),
        })
    }

    /// Becomes readable when there is something after a time with nothing.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Everything that was told since the last time, in the order in which each processor told it.
    pub fn drain(&mut self, mut take: impl FnMut(KernelEvent)) {
        self.memory.drain(&mut self.buffer, |bytes| {
            if let Some(event) = KernelEvent::parse(bytes) {
                take(event);
            }
        });
    }

    /// How many events were lost since the beginning.
    pub fn lost(&self) -> io::Result<u64> {
        let mut lost = bpf::first_number(self.lost.as_fd())?;
        for program in &self.programs {
            // Kernels that do not count these leave zeros.
            lost = lost.saturating_add(bpf::missed_runs(program.as_fd())?);
        }
        Ok(lost)
    }

    /// Does not tell of this container's own processes any more.
    pub fn ignore(&self, processes_cgroup: u64) -> io::Result<()> {
        bpf::update(self.ignored.as_fd(), processes_cgroup.to_ne_bytes(), 1_u32.to_ne_bytes())
    }

    /// Tells of the end of a process whose beginning was not told; it was made so many nanoseconds after boot.
    pub fn track(&self, pid: u32, began: u64) -> io::Result<()> {
        bpf::update(self.tracked.as_fd(), pid.to_ne_bytes(), began.to_ne_bytes())
    }

    /// Forgets a container that is gone.
    pub fn forget_ignored(&self, processes_cgroup: u64) -> io::Result<()> {
        bpf::delete(self.ignored.as_fd(), processes_cgroup.to_ne_bytes())
    }
}

const EXEC_TRACEPOINT: &str = "sched_process_exec";
const EXIT_TRACEPOINT: &str = "sched_process_exit";

/// A second time with a log, if the kernel refuses.
fn load(tracepoint: &'static str, program: &[[u8; 8]]) -> Result<OwnedFd, EbpfError> {
    let source = match bpf::load_program(tracepoint, program, LICENSE, &mut []) {
        Ok(program) => return Ok(program),
        Err(source) => source,
    };
    let mut log = vec![0; VERIFIER_LOG];
    let again = bpf::load_program(tracepoint, program, LICENSE, &mut log);
    again.map_err(|_| EbpfError::Load { tracepoint, log: last_reason(&log), source })
}

/// The last line that is not about how much was looked at.
fn last_reason(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
    let reason =
        text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed "));
    reason.unwrap_or_default().to_owned()
}
