//! Pod sandboxes over CRI.

use tonic::Code;
use waybill_proto::cri::{
    DnsConfig, ListPodSandboxRequest, NamespaceMode, PodSandboxFilter, PodSandboxState,
    PodSandboxStateValue, PodSandboxStatusRequest, PortMapping, RemovePodSandboxRequest,
    RunPodSandboxRequest, StopPodSandboxRequest,
};

use crate::cri_lab::{CriLab, sleeper};

fn stop(id: &str) -> StopPodSandboxRequest {
    StopPodSandboxRequest { pod_sandbox_id: id.into() }
}

fn remove(id: &str) -> RemovePodSandboxRequest {
    RemovePodSandboxRequest { pod_sandbox_id: id.into() }
}

#[tokio::test]
async fn a_sandbox_is_ready_then_not_then_gone() {
    let Some(lab) = CriLab::open().await else { return };
    let mut runtime = lab.runtime().await;
    let mut config = lab.sandbox_config("life");
    config.annotations.insert("a.example/b".into(), "c\nd".into());
    let id = lab.run_sandbox(config.clone()).await;
    let status = |id: &str| PodSandboxStatusRequest { pod_sandbox_id: id.into(), verbose: true };

    let response = runtime.pod_sandbox_status(status(&id[..12])).await.unwrap().into_inner();
    let found = response.status.unwrap();
    assert_eq!((found.id.as_str(), found.state()), (id.as_str(), PodSandboxState::SandboxReady));
    assert_eq!((found.labels, found.annotations), (config.labels, config.annotations));
    assert!(found.created_at > 0 && response.timestamp >= found.created_at);
    assert!(response.info["info"].contains("namespaces"));

    for _ in 0..2 {
        runtime.stop_pod_sandbox(stop(&id)).await.unwrap();
        let response = runtime.pod_sandbox_status(status(&id)).await.unwrap().into_inner();
        assert_eq!(response.status.unwrap().state(), PodSandboxState::SandboxNotready);
    }
    for _ in 0..2 {
        runtime.remove_pod_sandbox(remove(&id)).await.unwrap();
    }
    runtime.stop_pod_sandbox(stop(&id)).await.unwrap();
    let gone = runtime.pod_sandbox_status(status(&id)).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    lab.close().await;
}

#[tokio::test]
async fn a_retry_makes_no_second_sandbox() {
    let Some(lab) = CriLab::open().await else { return };
    let config = lab.sandbox_config("once");
    let id = lab.run_sandbox(config.clone()).await;
    let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let refused = lab.runtime().await.run_pod_sandbox(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains(&id), "{}", refused.message());
    lab.remove(&id).await;
    let again = lab.run_sandbox(config).await;
    lab.remove(&again).await;
    lab.close().await;
}

#[tokio::test]
async fn a_list_is_filtered_by_id_state_and_label() {
    let Some(lab) = CriLab::open().await else { return };
    let first = lab.run_sandbox(lab.sandbox_config("first")).await;
    let second = lab.run_sandbox(lab.sandbox_config("second")).await;
    let mut runtime = lab.runtime().await;
    runtime.stop_pod_sandbox(stop(&second)).await.unwrap();
    let state = |state: PodSandboxState| Some(PodSandboxStateValue { state: state.into() });
    let label = [("app".to_owned(), "first".to_owned())];
    for (filter, expected) in [
        (PodSandboxFilter::default(), 2),
        (PodSandboxFilter { id: first[..10].into(), ..Default::default() }, 1),
        (PodSandboxFilter { state: state(PodSandboxState::SandboxReady), ..Default::default() }, 1),
        (PodSandboxFilter { label_selector: label.into(), ..Default::default() }, 1),
        (PodSandboxFilter { id: "nobody".into(), ..Default::default() }, 0),
    ] {
        let request = ListPodSandboxRequest { filter: Some(filter.clone()) };
        let items = runtime.list_pod_sandbox(request).await.unwrap().into_inner().items;
        assert_eq!(items.len(), expected, "{filter:?}");
        if expected == 1 {
            assert_eq!(items[0].id, first);
        }
    }
    lab.remove(&first).await;
    lab.remove(&second).await;
    lab.close().await;
}

#[tokio::test]
async fn a_sandbox_gives_its_containers_name_resolver_and_shared_memory() {
    let Some(lab) = CriLab::open().await else { return };
    let mut config = lab.sandbox_config("shared");
    config.dns_config = Some(DnsConfig {
        servers: vec!["10.1.2.3".into()],
        searches: vec!["svc.example".into()],
        options: vec!["ndots:2".into()],
    });
    let sandbox = lab.run_sandbox(config).await;
    let first = lab.create(&sandbox, sleeper("first")).await;
    let second = lab.create(&sandbox, sleeper("second")).await;
    lab.start_container(&first).await;
    lab.start_container(&second).await;

    assert_eq!(
        lab.sh(&first, "hostname; cat /etc/hostname; echo $HOSTNAME").await,
        "host-shared\nhost-shared\nhost-shared"
    );
    assert_eq!(
        lab.sh(&first, "cat /etc/resolv.conf").await,
        "search svc.example\nnameserver 10.1.2.3\noptions ndots:2"
    );
    assert!(lab.sh(&first, "cat /etc/hosts").await.contains("host-shared"));
    lab.sh(&first, "echo hello > /dev/shm/word").await;
    assert_eq!(lab.sh(&second, "cat /dev/shm/word").await, "hello");
    // Network devices: loopback alone, and up.
    assert_eq!(lab.sh(&first, "ls /sys/class/net").await, "lo");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_sandbox_may_share_processes_or_the_machines_namespaces() {
    let Some(lab) = CriLab::open().await else { return };
    let with = |name: &str, network: NamespaceMode, pid: NamespaceMode, ipc: NamespaceMode| {
        let mut config = lab.sandbox_config(name);
        let linux = config.linux.as_mut().unwrap();
        let options = linux.security_context.as_mut().unwrap().namespace_options.as_mut().unwrap();
        options.network = network.into();
        options.pid = pid.into();
        options.ipc = ipc.into();
        config
    };
    let (pod, node) = (NamespaceMode::Pod, NamespaceMode::Node);
    let shared = lab.run_sandbox(with("shared", pod, pod, pod)).await;
    let first = lab.create(&shared, sleeper("first")).await;
    let second = lab.create(&shared, sleeper("second")).await;
    lab.start_container(&first).await;
    lab.start_container(&second).await;
    let sleepers = lab.sh(&first, "ps | grep -c '[s]leep 1000'").await;
    assert_eq!(sleepers, "2");

    let machine = lab.run_sandbox(with("machine", node, node, node)).await;
    let container = lab.create(&machine, sleeper("c")).await;
    lab.start_container(&container).await;
    let of = |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    for kind in ["net", "pid", "ipc", "uts"] {
        let inside = lab.sh(&container, &format!("ls -l /proc/self/ns/{kind}")).await;
        assert!(inside.ends_with(of(kind).to_str().unwrap()), "{kind}: {inside}");
    }
    lab.remove(&shared).await;
    lab.remove(&machine).await;
    lab.close().await;
}

/// A failure leaves nothing, which closing the lab checks.
#[tokio::test]
async fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let Some(lab) = CriLab::open().await else { return };
    let mut runtime = lab.runtime().await;
    let mut port = lab.sandbox_config("port");
    port.port_mappings =
        vec![PortMapping { host_port: 80, container_port: 80, ..Default::default() }];
    let mut sysctl = lab.sandbox_config("sysctl");
    sysctl.linux.as_mut().unwrap().sysctls.insert("kernel.hostname".into(), "x".into());
    let mut nameless = lab.sandbox_config("nameless");
    nameless.metadata = None;
    let mut dns = lab.sandbox_config("dns");
    dns.dns_config = Some(DnsConfig { servers: vec!["a b".into()], ..Default::default() });
    for (config, handler, code) in [
        (port, "", Code::Unimplemented),
        (sysctl, "", Code::InvalidArgument),
        (nameless, "", Code::InvalidArgument),
        (dns, "", Code::InvalidArgument),
        (lab.sandbox_config("handler"), "kata", Code::InvalidArgument),
    ] {
        let name = config.metadata.clone();
        let request =
            RunPodSandboxRequest { config: Some(config), runtime_handler: handler.into() };
        let refused = runtime.run_pod_sandbox(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{name:?}: {}", refused.message());
    }
    lab.close().await;
}
