//! Containers whose root could move processes between cgroups: their sessions are told to be such, because the cgroup of a process
//! proves less there. Also by a runtime that was started again.

use std::collections::BTreeMap;

use waybill_proto::{
    cri::{Capability, ContainerConfig, LinuxContainerSecurityContext, Mount},
    runtime::ListSessionsRequest,
};

use crate::cri_lab::{CriLab, sleeper, with_context};

fn bound(host: &str, readonly: bool) -> Mount {
    Mount {
        host_path: host.into(),
        container_path: "/machine".into(),
        readonly,
        ..Mount::default()
    }
}

fn with_mount(mount: Mount) -> ContainerConfig {
    ContainerConfig { mounts: vec![mount], ..sleeper("c") }
}

fn with_capability(name: &str) -> ContainerConfig {
    let add = Capability { add_capabilities: vec![name.into()], ..Capability::default() };
    let context = LinuxContainerSecurityContext {
        capabilities: Some(add),
        ..LinuxContainerSecurityContext::default()
    };
    with_context(sleeper("c"), context)
}

/// Whether the one session of each container is marked, and the container.
async fn marks(lab: &CriLab) -> BTreeMap<String, (bool, bool)> {
    let listed = lab.sessions().await.list_sessions(ListSessionsRequest::default()).await;
    let listed = listed.unwrap().into_inner();
    let sessions = listed.sessions.into_iter().map(|it| (it.container_id, it.privileged));
    let sessions: BTreeMap<_, _> = sessions.collect();
    let marked = |id: &str| sessions.get(id).copied().unwrap();
    let containers = listed.containers.into_iter();
    containers
        .map(|it| (marked(&it.container_id), it))
        .map(|(session, it)| (it.container_id, (session, it.privileged)))
        .collect()
}

#[tokio::test]
async fn sessions_where_root_could_move_processes_are_told_to_be_such() {
    let Some(mut lab) = CriLab::open().await else { return };
    let cases = [
        ("plain", sleeper("c"), false),
        ("volume", with_mount(bound("/tmp", false)), false),
        ("cgroups", with_mount(bound("/sys/fs/cgroup", false)), true),
        ("above", with_mount(bound("/sys", false)), true),
        ("admin", with_capability("SYS_ADMIN"), true),
        ("network", with_capability("NET_ADMIN"), false),
    ];
    let mut expected = BTreeMap::new();
    let mut sandboxes = Vec::new();
    for (name, config, marked) in cases {
        let (sandbox, id) = lab.run(name, config).await;
        lab.sh(&id, "true").await;
        expected.insert(id, (marked, marked));
        sandboxes.push(sandbox);
    }
    assert_eq!(marks(&lab).await, expected);
    lab.stop().await;
    lab.start().await;
    assert_eq!(marks(&lab).await, expected, "after a restart");
    for sandbox in sandboxes {
        lab.remove(&sandbox).await;
    }
    lab.close().await;
}
