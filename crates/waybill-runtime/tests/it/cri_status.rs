//! What a runtime says about itself is measured: each condition is made false here, for real.

use std::thread;

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use waybill_proto::cri::{RuntimeCondition, StatusRequest};

use crate::cri_lab::{CriLab, spawner};

async fn condition(lab: &CriLab, kind: &str) -> RuntimeCondition {
    let answer = lab.runtime().await.status(StatusRequest { verbose: false }).await.unwrap();
    let conditions = answer.into_inner().status.unwrap().conditions;
    conditions.into_iter().find(|it| it.r#type == kind).unwrap()
}

/// As in a container that may start containers but make no network namespaces. Pods on the machine's network still run.
#[tokio::test]
async fn a_machine_that_gives_pods_no_network_is_told_and_heals() {
    let Some(mut lab) = CriLab::open().await else { return };
    assert!(condition(&lab, "NetworkReady").await.status);
    lab.stop().await;
    // The set belongs to a thread, and its children have it.
    let poor = thread::spawn(|| {
        remove_capability_from_bounding_set(CapabilitySet::SYS_ADMIN).unwrap();
        spawner()
    });
    lab.start_with(poor.join().unwrap()).await;
    let network = condition(&lab, "NetworkReady").await;
    assert!(!network.status && network.reason == "NoNetworkNamespace", "{network:?}");
    assert!(network.message.contains("cannot make a network namespace"), "{network:?}");
    assert!(condition(&lab, "RuntimeReady").await.status);
    lab.stop().await;
    lab.start().await;
    assert!(condition(&lab, "NetworkReady").await.status);
    lab.close().await;
}
