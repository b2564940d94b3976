//! Which metrics there are: names and labels are those that dashboards know from kubelets, where cAdvisor told them.

use waybill_proto::cri::{MetricDescriptor, MetricType};

/// Labels that every metric has, in this order. Those of a sandbox have no container and no image.
pub(super) const BASE_LABELS: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];

/// Metrics of one name.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    help: &'static str,
    pub(super) kind: MetricType,
    /// After those that every metric has.
    pub(super) labels: &'static [&'static str],
}

impl Family {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    pub(super) fn descriptor(&self) -> MetricDescriptor {
        let labels = BASE_LABELS.iter().chain(self.labels);
        MetricDescriptor {
            name: self.name.to_owned(),
            help: self.help.to_owned(),
            label_keys: labels.map(|&label| label.to_owned()).collect(),
        }
    }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: MetricType::Counter, labels: &[] }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, help, kind: MetricType::Gauge, labels: &[] }
}

const fn by(labels: &'static [&'static str], family: Family) -> Family {
    Family { labels, ..family }
}

const DEVICE: &[&str] = &["device"];
const INTERFACE: &[&str] = &["interface"];

/// All of them. Times are whole seconds, because CRI's values are whole numbers.
pub(super) const FAMILIES: &[Family] = &[
    by(
        &["device", "major", "minor", "operation"],
        counter("container_blkio_device_usage_total", "Bytes to and from block devices"),
    ),
    counter("container_cpu_cfs_periods_total", "Periods in which a processor quota counted"),
    counter("container_cpu_cfs_throttled_periods_total", "Periods whose quota was used up"),
    counter("container_cpu_cfs_throttled_seconds_total", "Time that processes waited for quota"),
    counter("container_cpu_system_seconds_total", "Processor time in the kernel"),
    by(&["cpu"], counter("container_cpu_usage_seconds_total", "Processor time")),
    counter("container_cpu_user_seconds_total", "Processor time outside the kernel"),
    gauge("container_file_descriptors", "Open files, sockets included"),
    by(DEVICE, gauge("container_fs_inodes_free", "Free inodes where the container writes")),
    by(DEVICE, gauge("container_fs_inodes_total", "Inodes where the container writes")),
    by(DEVICE, gauge("container_fs_limit_bytes", "Size of where the container writes")),
    by(DEVICE, counter("container_fs_reads_bytes_total", "Bytes that were read")),
    by(DEVICE, counter("container_fs_reads_total", "How often was read")),
    by(DEVICE, gauge("container_fs_usage_bytes", "Bytes that the container wrote and kept")),
    by(DEVICE, counter("container_fs_writes_bytes_total", "Bytes that were written")),
    by(DEVICE, counter("container_fs_writes_total", "How often was written")),
    by(&["pagesize"], gauge("container_hugetlb_max_usage_bytes", "Most huge pages ever used")),
    by(&["pagesize"], gauge("container_hugetlb_usage_bytes", "Huge pages in use")),
    gauge("container_last_seen", "When the container was seen, in seconds since 1970"),
    gauge("container_memory_cache", "Page cache"),
    counter("container_memory_failcnt", "How often the memory limit was met"),
    by(&["failure_type", "scope"], counter("container_memory_failures_total", "Page faults")),
    gauge("container_memory_kernel_usage", "Memory of the kernel on behalf of the container"),
    gauge("container_memory_mapped_file", "Mapped files"),
    gauge("container_memory_max_usage_bytes", "Most memory ever used"),
    gauge("container_memory_rss", "Anonymous memory"),
    gauge("container_memory_swap", "Memory that was swapped out"),
    gauge("container_memory_usage_bytes", "Memory, page cache included"),
    gauge("container_memory_working_set_bytes", "Memory without page cache that lies idle"),
    by(INTERFACE, counter("container_network_receive_bytes_total", "Bytes received")),
    by(INTERFACE, counter("container_network_receive_errors_total", "Errors while receiving")),
    by(
        INTERFACE,
        counter("container_network_receive_packets_dropped_total", "Received packets dropped"),
    ),
    by(INTERFACE, counter("container_network_receive_packets_total", "Packets received")),
    by(INTERFACE, counter("container_network_transmit_bytes_total", "Bytes sent")),
    by(INTERFACE, counter("container_network_transmit_errors_total", "Errors while sending")),
    by(
        INTERFACE,
        counter("container_network_transmit_packets_dropped_total", "Packets to send dropped"),
    ),
    by(INTERFACE, counter("container_network_transmit_packets_total", "Packets sent")),
    counter("container_oom_events_total", "Processes killed for want of memory"),
    counter("container_pressure_cpu_stalled_seconds_total", "All waited for a processor"),
    counter("container_pressure_cpu_waiting_seconds_total", "Some waited for a processor"),
    counter("container_pressure_io_stalled_seconds_total", "All waited for a disk"),
    counter("container_pressure_io_waiting_seconds_total", "Some waited for a disk"),
    counter("container_pressure_memory_stalled_seconds_total", "All waited for memory"),
    counter("container_pressure_memory_waiting_seconds_total", "Some waited for memory"),
    gauge("container_processes", "Processes"),
    gauge("container_sockets", "Open sockets"),
    gauge("container_spec_cpu_period", "Length of a period of the processor quota"),
    gauge("container_spec_cpu_quota", "Processor quota of a period"),
    gauge("container_spec_cpu_shares", "Share of processors when they are scarce"),
    gauge("container_spec_memory_limit_bytes", "Memory limit; 0 is none"),
    gauge("container_spec_memory_swap_limit_bytes", "Limit of memory and swap; 0 is none"),
    gauge("container_start_time_seconds", "When the container started, in seconds since 1970"),
    gauge("container_threads", "Threads"),
    gauge("container_threads_max", "How many threads there may be; 0 is any number"),
    by(&["ulimit"], gauge("container_ulimits_soft", "Soft limits of the first process")),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own_a_help_and_labels() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len());
        for family in FAMILIES {
            let told = family.descriptor();
            assert!(!told.help.is_empty() && told.label_keys.len() >= 6, "{told:?}");
        }
    }
}
