//! Reads everything that the kernel counts for a cgroup, from whichever hierarchy counts it. What cannot be read is not counted by
//! this kernel, or has just gone.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Cgroup, stats, tree::directories_below};
use crate::engine::{
    clock,
    counters::{
        Counters, CpuCounters, HugePages, IoCounters, MemoryCounters, PressureCounters,
        ProcessCounters,
    },
};

impl Cgroup {
    pub(in crate::engine) fn counters(&self) -> io::Result<Counters> {
        let (usage_ns, memory, threads, threads_limit) = self.usage()?;
        let read_at = clock::now();
        let held = held_by(&self.members());
        Ok(Counters {
            read_at,
            cpu: CpuCounters { usage_ns, ..self.cpu_counters() },
            memory,
            memory_details: self.memory_counters(),
            out_of_memory: self.out_of_memory_kills(),
            io: self.io_counters(),
            pressure: self.pressure(),
            huge_pages: self.huge_pages(),
            processes: ProcessCounters { threads, threads_limit, ..held },
        })
    }

    fn of(&self, controller: &str) -> Option<PathBuf> {
        self.hierarchies.legacy_with(controller).map(|root| root.join(&self.path))
    }

    fn cpu_counters(&self) -> CpuCounters {
        let unified = self.unified().join("cpu.stat");
        let micro = |name| stats::field(&unified, name).unwrap_or_default().saturating_mul(1000);
        let (user_ns, system_ns) = match self.of("cpuacct") {
            Some(at) => {
                let read = |name: &str| stats::number(&at.join(name)).unwrap_or_default();
                (read("cpuacct.usage_user"), read("cpuacct.usage_sys"))
            }
            None => (micro("user_usec"), micro("system_usec")),
        };
        let (quota, throttled_ns) = match self.of("cpu") {
            Some(at) => {
                let file = at.join("cpu.stat");
                let throttled = stats::field(&file, "throttled_time").unwrap_or_default();
                (file, throttled)
            }
            None => (unified.clone(), micro("throttled_usec")),
        };
        let count = |name| stats::field(&quota, name).unwrap_or_default();
        CpuCounters {
            usage_ns: 0,
            user_ns,
            system_ns,
            periods: count("nr_periods"),
            throttled_periods: count("nr_throttled"),
            throttled_ns,
        }
    }

    fn memory_counters(&self) -> MemoryCounters {
        match self.of("memory") {
            Some(at) => {
                let field = |name| stats::field(&at.join("memory.stat"), name).ok();
                let number = |name: &str| stats::number(&at.join(name)).ok();
                MemoryCounters {
                    cache: field("total_cache"),
                    mapped_file: field("total_mapped_file"),
                    kernel: number("memory.kmem.usage_in_bytes"),
                    peak: number("memory.max_usage_in_bytes"),
                    limit_hits: number("memory.failcnt"),
                }
            }
            None => {
                let at = self.unified();
                let field = |name| stats::field(&at.join("memory.stat"), name).ok();
                MemoryCounters {
                    cache: field("file"),
                    mapped_file: field("file_mapped"),
                    kernel: field("kernel"),
                    peak: stats::number(&at.join("memory.peak")).ok(),
                    limit_hits: stats::field(&at.join("memory.events"), "max").ok(),
                }
            }
        }
    }

    fn io_counters(&self) -> Vec<IoCounters> {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        match self.of("blkio") {
            Some(at) => legacy_io(
                &read(at.join("blkio.throttle.io_service_bytes_recursive")),
                &read(at.join("blkio.throttle.io_serviced_recursive")),
            ),
            None => unified_io(&read(self.unified().join("io.stat"))),
        }
    }

    fn pressure(&self) -> Vec<PressureCounters> {
        let read = |resource: &'static str| {
            let file = self.unified().join(format!("{resource}.pressure"));
            pressure(resource, &fs::read_to_string(file).ok()?)
        };
        ["cpu", "io", "memory"].into_iter().filter_map(read).collect()
    }

    fn huge_pages(&self) -> Vec<HugePages> {
        let (at, usage, peak) = match self.of("hugetlb") {
            Some(at) => (at, "usage_in_bytes", Some("max_usage_in_bytes")),
            None => (self.unified(), "current", None),
        };
        let entries = fs::read_dir(&at).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let sizes = names.filter_map(|name| {
            let size = name.strip_prefix("hugetlb.")?.strip_suffix(usage)?.strip_suffix('.')?;
            (!size.ends_with(".rsvd")).then(|| size.to_owned())
        });
        let mut pages: Vec<_> = sizes
            .filter_map(|size| {
                let number = |name| stats::number(&at.join(format!("hugetlb.{size}.{name}"))).ok();
                Some(HugePages { usage: number(usage)?, peak: peak.and_then(number), size })
            })
            .collect();
        pages.sort_by(|a, b| a.size.cmp(&b.size));
        pages
    }

    /// Its processes and those of its sessions.
    fn members(&self) -> Vec<u32> {
        let directories = directories_below(&self.unified()).unwrap_or_default();
        let members = directories.iter().map(|it| fs::read_to_string(it.join("cgroup.procs")));
        let members = members.map(Result::unwrap_or_default).collect::<String>();
        members.lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

fn unified_io(text: &str) -> Vec<IoCounters> {
    let device = |line: &str| {
        let (device, rest) = line.split_once(' ')?;
        let number = |name: &str| {
            let value = rest.split(' ').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|it| it.parse().ok())
        };
        Some(IoCounters {
            device: device.to_owned(),
            read_bytes: number("rbytes")?,
            written_bytes: number("wbytes")?,
            reads: number("rios")?,
            writes: number("wios")?,
        })
    };
    text.lines().filter_map(device).collect()
}

/// Lines are `8:0 Read 4096`; the last one is a total without a device.
fn legacy_io(bytes: &str, times: &str) -> Vec<IoCounters> {
    let mut all: Vec<IoCounters> = Vec::new();
    for (text, counts_bytes) in [(bytes, true), (times, false)] {
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(device), Some(operation), Some(Ok(value))) =
                (words.next(), words.next(), words.next().map(str::parse))
            else {
                continue;
            };
            let at = match all.iter().position(|it| it.device == device) {
                Some(at) => at,
                None => {
                    all.push(IoCounters { device: device.to_owned(), ..IoCounters::default() });
                    all.len() - 1
                }
            };
            let Some(device) = all.get_mut(at) else { continue };
            match (operation, counts_bytes) {
                ("Read", true) => device.read_bytes = value,
                ("Read", false) => device.reads = value,
                ("Write", true) => device.written_bytes = value,
                ("Write", false) => device.writes = value,
                _ => {}
            }
        }
    }
    all
}

/// Lines are `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn pressure(resource: &'static str, text: &str) -> Option<PressureCounters> {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.rsplit_once("total=")?.1.parse().ok()
    };
    Some(PressureCounters {
        resource,
        waiting_us: total("some")?,
        stalled_us: total("full").unwrap_or_default(),
    })
}

/// One that ends meanwhile counts as far as it got.
fn held_by(members: &[u32]) -> ProcessCounters {
    let mut held = ProcessCounters {
        processes: u64::try_from(members.len()).unwrap_or(u64::MAX),
        ..ProcessCounters::default()
    };
    for pid in members {
        let process = Path::new("/proc").join(pid.to_string());
        for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            held.files = held.files.saturating_add(1);
            if target.to_string_lossy().starts_with("socket:") {
                held.sockets = held.sockets.saturating_add(1);
            }
        }
        if held.files_limit.is_none() {
            let limits = fs::read_to_string(process.join("limits")).unwrap_or_default();
            held.files_limit = open_files(&limits);
        }
    }
    held
}

fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_hierarchies_count_the_same_of_a_device() {
        let expected = [IoCounters {
            device: "8:0".into(),
            read_bytes: 4096,
            written_bytes: 8192,
            reads: 1,
            writes: 2,
        }];
        let unified = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n7:0\n";
        assert_eq!(unified_io(unified), expected);
        let bytes = "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 12288\nTotal 12288\n";
        let times = "8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\nTotal 3\n";
        assert_eq!(legacy_io(bytes, times), expected);
    }

    #[test]
    fn pressure_is_the_total_of_those_who_wait() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        let expected = PressureCounters { resource: "cpu", waiting_us: 12, stalled_us: 5 };
        assert_eq!(pressure("cpu", text), Some(expected));
        assert_eq!(pressure("cpu", ""), None);
    }

    #[test]
    fn this_process_holds_files() {
        let held = held_by(&[std::process::id()]);
        assert!(held.processes == 1 && held.files > 0 && held.files_limit.is_some(), "{held:?}");
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  1024  4096  files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(open_files("Max open files  unlimited  unlimited  files\n"), None);
    }
}
