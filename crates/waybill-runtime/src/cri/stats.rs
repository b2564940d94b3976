//! What containers and sandboxes use.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use waybill_proto::cri::{
    ContainerAttributes, ContainerStats, ContainerStatsFilter, CpuUsage, FilesystemIdentifier,
    FilesystemUsage, IoUsage, LinuxPodSandboxStats, MemoryUsage, PodSandboxAttributes,
    PodSandboxStats, PodSandboxStatsFilter, ProcessUsage, PsiData, PsiStats, SwapUsage,
    UInt64Value,
};

use super::{
    Cri, convert,
    error::Result,
    filter,
    record::{ContainerRecord, SandboxRecord},
};
use crate::engine::{Stall, State, Stats};

/// To walk through what a container wrote takes time, so the sum is used for so long; nodes, which evict by it, ask as often.
const LAYER_AGE: i64 = 10_000_000_000;

/// The last numbers of each container: rates are differences, and sums over files are kept a while.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<BTreeMap<String, Sample>>);

#[derive(Clone, Debug, Default)]
struct Sample {
    cpu: Option<(i64, u64)>,
    /// When, bytes, inodes.
    layer: Option<(i64, u64, u64)>,
}

impl Samples {
    pub(crate) fn forget(&self, container: &str) {
        self.with(|samples| samples.remove(container));
    }

    /// Nanoseconds of processor time per second since the last call.
    fn rate(&self, container: &str, at: i64, usage: u64) -> Option<u64> {
        self.with(|samples| {
            let sample = samples.entry(container.to_owned()).or_default();
            let (before, used) = sample.cpu.replace((at, usage))?;
            let elapsed = u64::try_from(at.checked_sub(before)?).ok().filter(|it| *it > 0)?;
            let product = u128::from(usage.checked_sub(used)?) * 1_000_000_000;
            u64::try_from(product / u128::from(elapsed)).ok()
        })
    }

    fn layer(&self, container: &str, now: i64) -> Option<(i64, u64, u64)> {
        let kept = self.with(|samples| samples.get(container)?.layer);
        kept.filter(|(at, ..)| now.saturating_sub(*at) < LAYER_AGE)
    }

    fn keep_layer(&self, container: &str, layer: (i64, u64, u64)) {
        self.with(|samples| samples.entry(container.to_owned()).or_default().layer = Some(layer));
    }

    fn with<T>(&self, use_them: impl FnOnce(&mut BTreeMap<String, Sample>) -> T) -> T {
        use_them(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Cri {
    /// The stats of one container; one that has ended has no processor and memory to tell of.
    pub(super) async fn container_stats(self: &Arc<Self>, id: &str) -> Result<ContainerStats> {
        let record = self.store.container(id)?.record();
        self.stats_of(&record).await
    }

    /// The stats of all containers that run.
    pub(super) async fn list_container_stats(
        self: &Arc<Self>,
        filter: &ContainerStatsFilter,
    ) -> Vec<ContainerStats> {
        let records = self.store.containers().into_iter().map(|container| container.record());
        let records: Vec<_> = records
            .filter(|record| filter::container_stats(filter, record))
            .filter(|record| self.standing(record).pid.is_some())
            .collect();
        self.stats_of_all(&records).await
    }

    pub(super) async fn sandbox_stats(self: &Arc<Self>, id: &str) -> Result<PodSandboxStats> {
        let record = self.store.sandbox(id)?.record();
        Ok(self.stats_of_sandbox(&record).await)
    }

    pub(super) async fn list_sandbox_stats(
        self: &Arc<Self>,
        filter: &PodSandboxStatsFilter,
    ) -> Vec<PodSandboxStats> {
        let mut all = Vec::new();
        for sandbox in self.store.sandboxes() {
            let record = sandbox.record();
            if !record.stopped && filter::sandbox_stats(filter, &record) {
                all.push(self.stats_of_sandbox(&record).await);
            }
        }
        all
    }

    /// A container that goes away meanwhile is left out.
    async fn stats_of_all(self: &Arc<Self>, records: &[ContainerRecord]) -> Vec<ContainerStats> {
        let mut all = Vec::with_capacity(records.len());
        for record in records {
            all.extend(self.stats_of(record).await);
        }
        all
    }

    async fn stats_of(self: &Arc<Self>, record: &ContainerRecord) -> Result<ContainerStats> {
        let runs = matches!(self.engine.state(&record.id), Ok(State::Running { .. }));
        let stats = if runs { Some(self.engine.stats(&record.id).await?) } else { None };
        let rate = stats.as_ref().and_then(|stats| {
            let at = convert::nanoseconds(stats.read_at);
            self.samples.rate(&record.id, at, stats.cpu_usage_ns)
        });
        let attributes = ContainerAttributes {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        };
        Ok(ContainerStats {
            attributes: Some(attributes),
            cpu: stats.as_ref().map(|stats| cpu(stats, rate)),
            memory: stats.as_ref().map(memory),
            writable_layer: Some(self.writable_layer(&record.id).await?),
            swap: stats.as_ref().and_then(swap),
            io: stats.as_ref().and_then(io),
        })
    }

    pub(super) async fn writable_layer(
        self: &Arc<Self>,
        container: &str,
    ) -> Result<FilesystemUsage> {
        let now = self.now();
        let layer = match self.samples.layer(container, now) {
            Some(layer) => layer,
            None => {
                let (cri, id) = (Arc::clone(self), container.to_owned());
                let (bytes, inodes) =
                    self.blocking(move || Ok(cri.images.container_usage(&id)?)).await?;
                self.samples.keep_layer(container, (now, bytes, inodes));
                (now, bytes, inodes)
            }
        };
        let (timestamp, bytes, inodes) = layer;
        Ok(FilesystemUsage {
            timestamp,
            fs_id: Some(FilesystemIdentifier { mountpoint: self.state_dir.display().to_string() }),
            used_bytes: value(bytes),
            inodes_used: value(inodes),
        })
    }

    /// The sum over the sandbox's containers; nothing else runs in it.
    async fn stats_of_sandbox(self: &Arc<Self>, record: &SandboxRecord) -> PodSandboxStats {
        let records: Vec<_> =
            self.store.containers_of(&record.id).iter().map(|it| it.record()).collect();
        let records: Vec<_> =
            records.into_iter().filter(|it| self.standing(it).pid.is_some()).collect();
        let containers = self.stats_of_all(&records).await;
        let mut processes = 0_u64;
        for container in &records {
            let pids = self.engine.stats(&container.id).await.map_or(0, |stats| stats.pids);
            processes = processes.saturating_add(pids);
        }
        let timestamp = self.now();
        let attributes = PodSandboxAttributes {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        };
        let linux = LinuxPodSandboxStats {
            cpu: Some(cpu_sum(&containers, timestamp)),
            memory: Some(memory_sum(&containers, timestamp)),
            // A network of loopback alone carries nothing, and the machine's is not the pod's.
            network: None,
            process: Some(ProcessUsage { timestamp, process_count: value(processes) }),
            containers,
            io: None,
        };
        PodSandboxStats { attributes: Some(attributes), linux: Some(linux) }
    }
}

fn cpu(stats: &Stats, rate: Option<u64>) -> CpuUsage {
    CpuUsage {
        timestamp: convert::nanoseconds(stats.read_at),
        usage_core_nano_seconds: value(stats.cpu_usage_ns),
        usage_nano_cores: rate.and_then(value),
        psi: pressure(stats, "cpu"),
    }
}

fn memory(stats: &Stats) -> MemoryUsage {
    let memory = &stats.memory;
    let available = memory.limit.map(|limit| limit.saturating_sub(memory.working_set));
    MemoryUsage {
        timestamp: convert::nanoseconds(stats.read_at),
        working_set_bytes: value(memory.working_set),
        available_bytes: available.and_then(value),
        usage_bytes: value(memory.usage),
        rss_bytes: value(memory.rss),
        page_faults: value(memory.page_faults),
        major_page_faults: value(memory.major_page_faults),
        psi: pressure(stats, "memory"),
    }
}

fn swap(stats: &Stats) -> Option<SwapUsage> {
    let usage = stats.memory.swap_usage?;
    let available = stats.memory.swap_limit.map(|limit| limit.saturating_sub(usage));
    Some(SwapUsage {
        timestamp: convert::nanoseconds(stats.read_at),
        swap_available_bytes: available.and_then(value),
        swap_usage_bytes: value(usage),
    })
}

fn io(stats: &Stats) -> Option<IoUsage> {
    let psi = Some(pressure(stats, "io")?);
    Some(IoUsage { timestamp: convert::nanoseconds(stats.read_at), psi })
}

fn pressure(stats: &Stats, resource: &str) -> Option<PsiStats> {
    let found = stats.pressure.iter().find(|it| it.resource == resource)?;
    let data = |stall: &Stall| {
        let [avg10, avg60, avg300] = stall.averages;
        Some(PsiData { total: stall.total_us.saturating_mul(1000), avg10, avg60, avg300 })
    };
    Some(PsiStats { full: data(&found.stalled), some: data(&found.waiting) })
}

fn cpu_sum(containers: &[ContainerStats], timestamp: i64) -> CpuUsage {
    let all = || containers.iter().filter_map(|it| it.cpu.as_ref());
    CpuUsage {
        timestamp,
        usage_core_nano_seconds: sum(all().map(|it| it.usage_core_nano_seconds.as_ref())),
        usage_nano_cores: sum(all().map(|it| it.usage_nano_cores.as_ref())),
        psi: None,
    }
}

fn memory_sum(containers: &[ContainerStats], timestamp: i64) -> MemoryUsage {
    let all = || containers.iter().filter_map(|it| it.memory.as_ref());
    MemoryUsage {
        timestamp,
        working_set_bytes: sum(all().map(|it| it.working_set_bytes.as_ref())),
        available_bytes: None,
        usage_bytes: sum(all().map(|it| it.usage_bytes.as_ref())),
        rss_bytes: sum(all().map(|it| it.rss_bytes.as_ref())),
        page_faults: sum(all().map(|it| it.page_faults.as_ref())),
        major_page_faults: sum(all().map(|it| it.major_page_faults.as_ref())),
        psi: None,
    }
}

fn sum<'a>(values: impl Iterator<Item = Option<&'a UInt64Value>>) -> Option<UInt64Value> {
    value(values.flatten().fold(0, |sum, it| sum.saturating_add(it.value)))
}

fn value(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_samples() {
        let samples = Samples::default();
        assert_eq!(samples.rate("c", 1_000_000_000, 5_000), None);
        assert_eq!(samples.rate("c", 3_000_000_000, 1_000_005_000), Some(500_000_000));
        // A clock that was set back, or a counter that began anew, gives none.
        assert_eq!(samples.rate("c", 2_000_000_000, 1_000_005_000), None);
        assert_eq!(samples.rate("c", 4_000_000_000, 0), None);
        samples.forget("c");
        assert_eq!(samples.rate("c", 5_000_000_000, 9), None);
    }

    #[test]
    fn the_size_of_a_layer_is_kept_for_a_while() {
        let samples = Samples::default();
        samples.keep_layer("c", (0, 10, 2));
        assert_eq!(samples.layer("c", LAYER_AGE - 1), Some((0, 10, 2)));
        assert_eq!(samples.layer("c", LAYER_AGE), None);
    }
}
