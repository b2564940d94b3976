//! Containers that run already when a node starts.

use std::time::Duration;

use tokio::time::Instant;
use tracing::info;
use waybill_core::id::PodUid;

use super::{
    Known, Rotations, Running, is_followed,
    record::{Key, Record},
    variables, wants_restart,
};
use crate::{
    csi::{Csi, groups},
    pod::Pod,
};

/// How soon a class is asked after a start of the node, at the latest: what changed while there was no node
/// shall not wait for a day. Drivers have time to register.
const SOON: Duration = Duration::from_secs(60);

impl Csi {
    /// Goes on with the containers of a pod that were started by a node before this one; once for each pod.
    /// Those whose hashes are lost are compared with what their drivers have now, and it is said of them that
    /// nobody knows what was before.
    pub(crate) async fn resume(&self, pod: &Pod, runs: impl Fn(&str) -> bool) {
        if !wants_restart(pod) || !self.rotations.is_first_look(pod.uid()) {
            return;
        }
        let followed = pod.containers().filter(|it| is_followed(*it) && runs(it.name()));
        for container in followed {
            let Some(found) = pod.environment_of(container.kind, container.name()) else {
                continue;
            };
            let variables = variables(found);
            let classes: Vec<&str> = groups(&variables).iter().map(|group| group.class).collect();
            if !classes.is_empty() {
                let record = self.rotations.records.read(pod.uid(), container.name()).await;
                let known = record.is_some();
                info!(
                    pod = pod.name(),
                    container = container.name(),
                    known,
                    "values are followed again"
                );
                self.rotations.resume(pod.uid(), container.name(), record, &classes);
            }
        }
    }
}

impl Rotations {
    fn resume(&self, pod: &PodUid, container: &str, record: Option<Record>, classes: &[&str]) {
        let is_unknown = record.is_none();
        let record = record.unwrap_or_else(|| Record::new(Key::random(), [].into()));
        let now = Instant::now();
        let known = |(class, interval, hashes): (&str, Duration, _)| {
            let due = now + self.spread(pod, container, class, interval.min(SOON));
            (class.to_owned(), Known { interval, due, hashes })
        };
        let classes = if is_unknown {
            classes.iter().map(|class| known((*class, SOON, None))).collect()
        } else {
            let recorded = record.classes.iter();
            recorded
                .map(|(class, it)| known((class.as_str(), it.interval, Some(it.hashes.clone()))))
                .collect()
        };
        let running = Running { key: record.key, classes, stale: [].into(), is_unknown };
        self.lock().entry((pod.clone(), container.to_owned())).or_insert(running);
        self.changed.notify_one();
    }
}
