//! What kubelets and the upstream validation suite rely on and the interface says only between the lines.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Status};
use waybill_proto::cri::{
    AttachRequest, ContainerConfig, ContainerEventType, ContainerStatsFilter,
    ContainerStatsRequest, ContainerStatusRequest, ExecRequest, ExecSyncRequest, GetEventsRequest,
    LinuxContainerSecurityContext, ListContainerStatsRequest, PodSandboxConfig, PodSandboxMetadata,
    PodSandboxStatsRequest, PodSandboxStatusRequest, PortForwardRequest, RemoveContainerRequest,
    RemoveImageRequest, RemovePodSandboxRequest, ReopenContainerLogRequest, RunPodSandboxRequest,
    SecurityProfile, StartContainerRequest, StopContainerRequest, StopPodSandboxRequest,
    UpdateContainerResourcesRequest, security_profile::ProfileType,
};

use crate::cri_lab::{CriLab, container, sleeper, with_context};

const UNKNOWN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[track_caller]
fn not_found<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let refused = answer.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{}", refused.message());
}

#[tokio::test]
async fn what_is_not_there_is_gone_already_and_else_not_found() {
    let Some(lab) = CriLab::open().await else { return };
    let mut runtime = lab.runtime().await;
    let (container_id, pod_sandbox_id) = (UNKNOWN.to_owned(), UNKNOWN.to_owned());
    let stop = StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
    runtime.stop_pod_sandbox(stop).await.unwrap();
    let remove = RemovePodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
    runtime.remove_pod_sandbox(remove).await.unwrap();
    let stop = StopContainerRequest { container_id: container_id.clone(), timeout: 0 };
    runtime.stop_container(stop).await.unwrap();
    let remove = RemoveContainerRequest { container_id: container_id.clone() };
    runtime.remove_container(remove).await.unwrap();
    let image = Some(waybill_proto::cri::ImageSpec { image: UNKNOWN.into(), ..Default::default() });
    lab.images().await.remove_image(RemoveImageRequest { image }).await.unwrap();

    let request =
        PodSandboxStatusRequest { pod_sandbox_id: pod_sandbox_id.clone(), verbose: false };
    not_found(runtime.pod_sandbox_status(request).await);
    let request = PodSandboxStatsRequest { pod_sandbox_id: pod_sandbox_id.clone() };
    not_found(runtime.pod_sandbox_stats(request).await);
    let request = PortForwardRequest { pod_sandbox_id, port: vec![80] };
    not_found(runtime.port_forward(request).await);
    let request = ContainerStatusRequest { container_id: container_id.clone(), verbose: false };
    not_found(runtime.container_status(request).await);
    let request = ContainerStatsRequest { container_id: container_id.clone() };
    not_found(runtime.container_stats(request).await);
    let request = StartContainerRequest { container_id: container_id.clone() };
    not_found(runtime.start_container(request).await);
    let request = ReopenContainerLogRequest { container_id: container_id.clone() };
    not_found(runtime.reopen_container_log(request).await);
    let request = UpdateContainerResourcesRequest {
        container_id: container_id.clone(),
        ..UpdateContainerResourcesRequest::default()
    };
    not_found(runtime.update_container_resources(request).await);
    let cmd = vec!["true".to_owned()];
    let request =
        ExecSyncRequest { container_id: container_id.clone(), cmd: cmd.clone(), timeout: 1 };
    not_found(runtime.exec_sync(request).await);
    let request = ExecRequest {
        container_id: container_id.clone(),
        cmd,
        stdout: true,
        ..ExecRequest::default()
    };
    not_found(runtime.exec(request).await);
    let request = AttachRequest { container_id, stdout: true, ..AttachRequest::default() };
    not_found(runtime.attach(request).await);
    lab.close().await;
}

/// As `crictl runp` sends it: a name and nothing else.
#[tokio::test]
async fn a_sandbox_needs_nothing_but_a_name() {
    let Some(lab) = CriLab::open().await else { return };
    let metadata = PodSandboxMetadata {
        name: "bare".into(),
        uid: "uid-bare".into(),
        namespace: "default".into(),
        attempt: 1,
    };
    let config = PodSandboxConfig { metadata: Some(metadata), ..PodSandboxConfig::default() };
    let request = RunPodSandboxRequest { config: Some(config), ..RunPodSandboxRequest::default() };
    let sandbox = lab.runtime().await.run_pod_sandbox(request).await.unwrap().into_inner();
    let sandbox = sandbox.pod_sandbox_id;
    let id = lab.create(&sandbox, sleeper("c")).await;
    lab.start_container(&id).await;
    // Processes are shared, so that the first one of the pod is ours.
    assert!(!lab.sh(&id, "cat /proc/1/cmdline").await.contains("sleep"));
    assert_eq!(lab.status(&id).await.log_path, "");
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// The safe one and the unsafe one that the validation suite sets.
#[tokio::test]
async fn sysctls_of_a_sandbox_hold_in_its_containers() {
    let Some(lab) = CriLab::open().await else { return };
    let mut config = lab.sandbox_config("sysctls");
    let wanted = [("kernel.shm_rmid_forced", "1"), ("fs.mqueue.msg_max", "100")];
    config.linux.as_mut().unwrap().sysctls =
        wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let sandbox = lab.run_sandbox(config).await;
    let id = lab.create(&sandbox, sleeper("c")).await;
    lab.start_container(&id).await;
    for (name, value) in wanted {
        let file = format!("cat /proc/sys/{}", name.replace('.', "/"));
        assert_eq!(lab.sh(&id, &file).await, value, "{name}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn paths_are_masked_and_made_read_only_as_asked() {
    let Some(lab) = CriLab::open().await else { return };
    let context = LinuxContainerSecurityContext {
        masked_paths: vec!["/etc/group".into(), "/not/there".into()],
        readonly_paths: vec!["/tmp".into()],
        ..LinuxContainerSecurityContext::default()
    };
    let (sandbox, id) = lab.run("paths", with_context(sleeper("c"), context)).await;
    assert_eq!(lab.sh(&id, "wc -c < /etc/group").await.trim(), "0");
    let executed = lab.exec(&id, &["/etc/group"]).await;
    assert_eq!(executed.exit_code, 126);
    let written = lab.exec(&id, &["touch", "/tmp/test"]).await;
    let said = String::from_utf8(written.stderr).unwrap();
    assert!(written.exit_code != 0 && said.contains("Read-only file system"), "{said}");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_privileged_container_runs_whatever_profile_it_names() {
    let Some(lab) = CriLab::open().await else { return };
    let mut config = lab.sandbox_config("profile");
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().privileged = true;
    let sandbox = lab.run_sandbox(config).await;
    let profile = SecurityProfile {
        profile_type: ProfileType::Localhost.into(),
        localhost_ref: "/profile.json".into(),
    };
    let context = LinuxContainerSecurityContext {
        privileged: true,
        seccomp: Some(profile),
        ..LinuxContainerSecurityContext::default()
    };
    let id = lab.create(&sandbox, with_context(sleeper("c"), context)).await;
    lab.start_container(&id).await;
    assert_eq!(lab.sh(&id, "grep -c 'Seccomp:.*0' /proc/self/status").await, "1");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn stats_are_of_running_containers_that_the_filter_names() {
    let Some(lab) = CriLab::open().await else { return };
    let labelled = ContainerConfig {
        labels: [("foo".to_owned(), "bar".to_owned())].into(),
        ..sleeper("first")
    };
    let (sandbox, first) = lab.run("stats", labelled).await;
    let second = lab.create(&sandbox, sleeper("second")).await;
    lab.start_container(&second).await;
    lab.create(&sandbox, sleeper("third")).await;
    let mut runtime = lab.runtime().await;
    let label = |value: &str| ContainerStatsFilter {
        label_selector: [("foo".to_owned(), value.to_owned())].into(),
        ..ContainerStatsFilter::default()
    };
    for (filter, expected) in [
        (None, vec![&first, &second]),
        (Some(ContainerStatsFilter { id: second.clone(), ..Default::default() }), vec![&second]),
        (Some(label("bar")), vec![&first]),
        (Some(label("baz")), vec![]),
        (
            Some(ContainerStatsFilter { pod_sandbox_id: UNKNOWN.into(), ..Default::default() }),
            vec![],
        ),
    ] {
        let request = ListContainerStatsRequest { filter: filter.clone() };
        let stats = runtime.list_container_stats(request).await.unwrap().into_inner().stats;
        let mut found: Vec<_> =
            stats.iter().map(|it| &it.attributes.as_ref().unwrap().id).collect();
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "{filter:?}");
        for one in &stats {
            assert!(one.cpu.as_ref().unwrap().timestamp > 0);
            assert!(one.memory.as_ref().unwrap().timestamp > 0);
        }
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_start_that_fails_is_one_event_with_the_reason() {
    let Some(lab) = CriLab::open().await else { return };
    let mut runtime = lab.runtime().await;
    let mut events = runtime.get_container_events(GetEventsRequest {}).await.unwrap().into_inner();
    let sandbox = lab.run_sandbox(lab.sandbox_config("events")).await;
    let id = lab.create(&sandbox, container("c", &["nope"])).await;
    let start = StartContainerRequest { container_id: id.clone() };
    runtime.start_container(start).await.unwrap_err();
    lab.remove(&sandbox).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&ContainerEventType::ContainerDeletedEvent) {
        let event = events.message().await.unwrap().unwrap();
        if event.container_id == id {
            seen.push(event.container_event_type());
            let status = event.containers_statuses.iter().find(|status| status.id == id).unwrap();
            let created = ContainerEventType::ContainerCreatedEvent;
            let expected = if seen == [created] { "" } else { "StartError" };
            assert_eq!(status.reason, expected);
        }
    }
    assert_eq!(
        seen,
        [
            ContainerEventType::ContainerCreatedEvent,
            ContainerEventType::ContainerStoppedEvent,
            ContainerEventType::ContainerDeletedEvent,
        ]
    );
    drop(events);
    lab.close().await;
}

/// As gRPC core begins, which Python's and C++'s clients stand on, and as Go's do: the path of the socket is the
/// authority, plain or in Huffman's code.
#[tokio::test]
async fn a_client_that_names_the_socket_as_authority_is_answered() {
    let Some(lab) = CriLab::open().await else { return };
    let plain = b"\x0etmp%2Fcri.sock";
    let coded = b"\x8a\x62\xcb\x6a\x60\x96\x19\x74\x1c\x9d\x7f";
    for authority in [&plain[..], &coded[..]] {
        let mut stream = tokio::net::UnixStream::connect(lab.path("runtime.sock")).await.unwrap();
        stream.write_all(&version_request(authority)).await.unwrap();
        is_answered(&mut stream).await;
    }
    lab.close().await;
}

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW: u8 = 8;

/// A connection's first bytes, which ask for the version. `authority` is the header's value with its length.
fn version_request(authority: &[u8]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let mut headers = Vec::from([0x83, 0x86]);
    for (name, value) in [
        (":path", text("/runtime.v1.RuntimeService/Version")),
        (":authority", authority.to_vec()),
        ("content-type", text("application/grpc")),
        ("te", text("trailers")),
    ] {
        headers.extend_from_slice(&[&[0x40][..], &text(name), &value].concat());
    }
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, 4, 1, &headers),
        frame(0, 1, 1, &[0; 5]),
    ]
    .concat()
}

/// Reads up to the headers of an answer.
async fn is_answered(stream: &mut tokio::net::UnixStream) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        match head[3] {
            HEADERS => return,
            SETTINGS | WINDOW => {}
            kind => panic!("a frame of kind {kind}: {payload:?}"),
        }
    }
}
