//! Metrics of pods and containers, for kubelets that serve them on `/metrics/cadvisor`.

mod family;
mod network;

use std::{path::Path, sync::Arc};

use waybill_proto::cri::{
    ContainerMetrics, Metric, MetricDescriptor, NamespaceMode, PodSandboxMetrics, UInt64Value,
};

use self::family::{BASE_LABELS, FAMILIES, Family};
use super::{
    Cri, convert,
    record::{ContainerRecord, SandboxRecord},
};
use crate::engine::Counters;

const NANOSECONDS: u64 = 1_000_000_000;
const MICROSECONDS: u64 = 1_000_000;

pub(super) fn descriptors() -> Vec<MetricDescriptor> {
    FAMILIES.iter().map(Family::descriptor).collect()
}

impl Cri {
    /// The metrics of all sandboxes that are ready, with those of their containers that run.
    pub(super) async fn list_metrics(self: &Arc<Self>) -> Vec<PodSandboxMetrics> {
        let mut all = Vec::new();
        for sandbox in self.store.sandboxes() {
            let record = sandbox.record();
            if !record.stopped {
                all.push(self.metrics_of(&record).await);
            }
        }
        all
    }

    async fn metrics_of(self: &Arc<Self>, sandbox: &SandboxRecord) -> PodSandboxMetrics {
        let mut container_metrics = Vec::new();
        let mut a_process = None;
        for container in self.store.containers_of(&sandbox.id) {
            let record = container.record();
            let standing = self.standing(&record);
            let Some(pid) = standing.pid else { continue };
            // One that goes away meanwhile is left out.
            let Ok(counters) = self.engine.counters(&record.id).await else { continue };
            a_process = Some(pid);
            let mut list = List::new(base_labels(sandbox, Some(&record)), &counters);
            list.add_counters(&counters);
            list.add_limits(&record);
            list.add("container_start_time_seconds", &[], seconds(standing.started_at));
            list.add("container_last_seen", &[], seconds(self.now()));
            if let Ok(layer) = self.writable_layer(&record.id).await {
                let used = layer.used_bytes.map(|it| it.value).unwrap_or_default();
                list.add_file_system(&self.state_dir, used);
            }
            let (container_id, metrics) = (record.id.clone(), list.metrics);
            container_metrics.push(ContainerMetrics { container_id, metrics });
        }
        let mut list =
            List { base: base_labels(sandbox, None), at: self.now(), metrics: Vec::new() };
        // The machine's network is not the pod's.
        let pid =
            a_process.filter(|_| sandbox.namespace_options().network() != NamespaceMode::Node);
        for interface in pid.map(network::of_process).unwrap_or_default() {
            list.add_interface(&interface);
        }
        PodSandboxMetrics {
            pod_sandbox_id: sandbox.id.clone(),
            metrics: list.metrics,
            container_metrics,
        }
    }
}

/// The metrics of one container or sandbox.
struct List {
    base: [String; BASE_LABELS.len()],
    at: i64,
    metrics: Vec<Metric>,
}

impl List {
    fn new(base: [String; BASE_LABELS.len()], counters: &Counters) -> Self {
        Self { base, at: convert::nanoseconds(counters.read_at), metrics: Vec::new() }
    }

    /// Nothing, if there is no value.
    fn add(&mut self, name: &str, labels: &[&str], value: impl Into<Option<u64>>) {
        let (Some(family), Some(value)) = (Family::find(name), value.into()) else { return };
        let labels = labels.iter().map(|&label| label.to_owned());
        self.metrics.push(Metric {
            name: family.name.to_owned(),
            timestamp: self.at,
            metric_type: family.kind.into(),
            label_values: self.base.iter().cloned().chain(labels).collect(),
            value: Some(UInt64Value { value }),
        });
    }

    fn add_counters(&mut self, counters: &Counters) {
        let cpu = &counters.cpu;
        self.add("container_cpu_usage_seconds_total", &["total"], cpu.usage_ns / NANOSECONDS);
        self.add("container_cpu_user_seconds_total", &[], cpu.user_ns / NANOSECONDS);
        self.add("container_cpu_system_seconds_total", &[], cpu.system_ns / NANOSECONDS);
        self.add("container_cpu_cfs_periods_total", &[], cpu.periods);
        self.add("container_cpu_cfs_throttled_periods_total", &[], cpu.throttled_periods);
        let throttled = cpu.throttled_ns / NANOSECONDS;
        self.add("container_cpu_cfs_throttled_seconds_total", &[], throttled);
        self.add_memory(counters);
        for pressure in &counters.pressure {
            let name =
                |what| format!("container_pressure_{}_{what}_seconds_total", pressure.resource);
            self.add(&name("waiting"), &[], pressure.waiting_us / MICROSECONDS);
            self.add(&name("stalled"), &[], pressure.stalled_us / MICROSECONDS);
        }
        for pages in &counters.huge_pages {
            self.add("container_hugetlb_usage_bytes", &[&pages.size], pages.usage);
            self.add("container_hugetlb_max_usage_bytes", &[&pages.size], pages.peak);
        }
        self.add_io(counters);
        let processes = &counters.processes;
        self.add("container_processes", &[], processes.processes);
        self.add("container_threads", &[], processes.threads);
        self.add("container_threads_max", &[], processes.threads_limit.unwrap_or_default());
        self.add("container_file_descriptors", &[], processes.files);
        self.add("container_sockets", &[], processes.sockets);
        self.add("container_ulimits_soft", &["max_open_files"], processes.files_limit);
    }

    fn add_memory(&mut self, counters: &Counters) {
        let (memory, more) = (&counters.memory, &counters.memory_details);
        self.add("container_memory_usage_bytes", &[], memory.usage);
        self.add("container_memory_working_set_bytes", &[], memory.working_set);
        self.add("container_memory_rss", &[], memory.rss);
        self.add("container_memory_swap", &[], memory.swap_usage.unwrap_or_default());
        self.add("container_memory_cache", &[], more.cache);
        self.add("container_memory_mapped_file", &[], more.mapped_file);
        self.add("container_memory_kernel_usage", &[], more.kernel);
        self.add("container_memory_max_usage_bytes", &[], more.peak);
        self.add("container_memory_failcnt", &[], more.limit_hits);
        let faults = "container_memory_failures_total";
        self.add(faults, &["pgfault", "hierarchy"], memory.page_faults);
        self.add(faults, &["pgmajfault", "hierarchy"], memory.major_page_faults);
        self.add("container_oom_events_total", &[], counters.out_of_memory);
    }

    fn add_io(&mut self, counters: &Counters) {
        for io in &counters.io {
            let device = device_name(&io.device);
            self.add("container_fs_reads_bytes_total", &[&device], io.read_bytes);
            self.add("container_fs_reads_total", &[&device], io.reads);
            self.add("container_fs_writes_bytes_total", &[&device], io.written_bytes);
            self.add("container_fs_writes_total", &[&device], io.writes);
            let (major, minor) = io.device.split_once(':').unwrap_or((&io.device, ""));
            let usage = "container_blkio_device_usage_total";
            self.add(usage, &[&device, major, minor, "Read"], io.read_bytes);
            self.add(usage, &[&device, major, minor, "Write"], io.written_bytes);
        }
    }

    /// What was asked for; the kernel may have rounded it.
    fn add_limits(&mut self, record: &ContainerRecord) {
        let resources = &record.resources;
        let number = |value: i64| u64::try_from(value).unwrap_or_default();
        let given = |value: i64| u64::try_from(value).ok().filter(|it| *it > 0);
        self.add("container_spec_cpu_period", &[], given(resources.cpu_period));
        self.add("container_spec_cpu_quota", &[], given(resources.cpu_quota));
        self.add("container_spec_cpu_shares", &[], given(resources.cpu_shares));
        let (memory, swap) =
            (resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes);
        self.add("container_spec_memory_limit_bytes", &[], number(memory));
        self.add("container_spec_memory_swap_limit_bytes", &[], number(swap));
    }

    fn add_file_system(&mut self, path: &Path, used: u64) {
        let Ok(found) = rustix::fs::statvfs(path) else { return };
        let device = rustix::fs::stat(path).map(|stat| {
            let number = stat.st_dev;
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            device_name(&format!("{major}:{minor}"))
        });
        let device = device.unwrap_or_default();
        self.add("container_fs_usage_bytes", &[&device], used);
        let size = found.f_blocks.saturating_mul(found.f_frsize);
        self.add("container_fs_limit_bytes", &[&device], size);
        self.add("container_fs_inodes_total", &[&device], found.f_files);
        self.add("container_fs_inodes_free", &[&device], found.f_ffree);
    }

    fn add_interface(&mut self, interface: &network::Interface) {
        for (way, counts) in [("receive", &interface.received), ("transmit", &interface.sent)] {
            let [bytes, packets, errors, dropped] = *counts;
            let named = [
                ("bytes", bytes),
                ("packets", packets),
                ("errors", errors),
                ("packets_dropped", dropped),
            ];
            for (what, value) in named {
                let name = format!("container_network_{way}_{what}_total");
                self.add(&name, &[&interface.name], value);
            }
        }
    }
}

fn base_labels(
    sandbox: &SandboxRecord,
    container: Option<&ContainerRecord>,
) -> [String; BASE_LABELS.len()] {
    let pod = sandbox.config.metadata.clone().unwrap_or_default();
    let (name, id, image, own) = match container {
        None => (String::new(), sandbox.cgroup_parent.clone(), String::new(), &sandbox.id),
        Some(record) => (
            record.config.metadata.clone().unwrap_or_default().name,
            sandbox.cgroup_parent.join(&record.id),
            record.image_tag.clone().unwrap_or_else(|| record.image_ref.clone()),
            &record.id,
        ),
    };
    [name, id.display().to_string(), image, own.clone(), pod.namespace, pod.name]
}

/// The device of these numbers as people know it. A file system without one keeps its numbers.
fn device_name(numbers: &str) -> String {
    let link = std::fs::read_link(Path::new("/sys/dev/block").join(numbers));
    let name = link.ok().and_then(|it| it.file_name()?.to_str().map(|it| format!("/dev/{it}")));
    name.unwrap_or_else(|| numbers.to_owned())
}

fn seconds(nanoseconds: i64) -> u64 {
    u64::try_from(nanoseconds).unwrap_or_default() / NANOSECONDS
}
