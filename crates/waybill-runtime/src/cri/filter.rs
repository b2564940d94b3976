//! Which sandboxes and containers a list is about.

use std::collections::BTreeMap;

use waybill_proto::cri::{
    Container, ContainerFilter, ContainerStatsFilter, PodSandbox, PodSandboxFilter,
    PodSandboxStatsFilter,
};

use super::record::{ContainerRecord, SandboxRecord};

pub(crate) fn sandbox(filter: &PodSandboxFilter, shown: &PodSandbox) -> bool {
    shown.id.starts_with(&filter.id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state() == shown.state())
        && selects(&filter.label_selector, &shown.labels)
}

pub(crate) fn container(filter: &ContainerFilter, shown: &Container) -> bool {
    shown.id.starts_with(&filter.id)
        && shown.pod_sandbox_id.starts_with(&filter.pod_sandbox_id)
        && filter.state.as_ref().is_none_or(|wanted| wanted.state() == shown.state())
        && selects(&filter.label_selector, &shown.labels)
}

pub(crate) fn container_stats(filter: &ContainerStatsFilter, record: &ContainerRecord) -> bool {
    record.id.starts_with(&filter.id)
        && record.sandbox.starts_with(&filter.pod_sandbox_id)
        && selects(&filter.label_selector, &record.config.labels)
}

pub(crate) fn sandbox_stats(filter: &PodSandboxStatsFilter, record: &SandboxRecord) -> bool {
    record.id.starts_with(&filter.id) && selects(&filter.label_selector, &record.config.labels)
}

fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn every_label_of_the_selector_must_match() {
        let labels = map(&[("app", "web"), ("tier", "front")]);
        assert!(selects(&map(&[]), &labels));
        assert!(selects(&map(&[("app", "web")]), &labels));
        assert!(!selects(&map(&[("app", "web"), ("tier", "back")]), &labels));
        assert!(!selects(&map(&[("zone", "")]), &labels));
    }
}
