//! Containers over CRI.

use std::{fs, time::Duration};

use tonic::Code;
use waybill_proto::cri::{
    Capability, ContainerConfig, ContainerEventType, ContainerFilter, ContainerState,
    ContainerStatsRequest, ContainerStatusRequest, CreateContainerRequest, GetEventsRequest,
    ImageSpec, Int64Value, KeyValue, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, ListContainersRequest, ListPodSandboxStatsRequest, Mount,
    RemoveContainerRequest, ReopenContainerLogRequest, SecurityProfile, StartContainerRequest,
    StopContainerRequest, SupplementalGroupsPolicy, UpdateContainerResourcesRequest,
    security_profile::ProfileType,
};

use crate::cri_lab::{CriLab, container, sleeper, with_context};

fn stop(id: &str, timeout: i64) -> StopContainerRequest {
    StopContainerRequest { container_id: id.into(), timeout }
}

#[tokio::test]
async fn a_container_is_created_runs_ends_and_goes() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("life")).await;
    let config = container("c", &["sh", "-c", "echo out; echo err >&2; exit 3"]);
    let id = lab.create(&sandbox, config).await;
    let created = lab.status(&id).await;
    assert_eq!(created.state(), ContainerState::ContainerCreated);
    assert!(created.created_at > 0 && created.started_at == 0 && created.finished_at == 0);
    assert!(created.image_id.starts_with("sha256:") && !created.image_ref.is_empty());

    lab.start_container(&id).await;
    let ended = lab.ended(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (3, "Error"));
    assert!(ended.finished_at >= ended.started_at && ended.started_at >= ended.created_at);
    let log = fs::read_to_string(&ended.log_path).unwrap();
    assert!(log.contains(" stdout F out\n") && log.contains(" stderr F err\n"), "{log}");

    let mut runtime = lab.runtime().await;
    let again = StartContainerRequest { container_id: id.clone() };
    assert_eq!(runtime.start_container(again).await.unwrap_err().code(), Code::FailedPrecondition);
    for _ in 0..2 {
        runtime.stop_container(stop(&id, 1)).await.unwrap();
        let remove = RemoveContainerRequest { container_id: id.clone() };
        runtime.remove_container(remove).await.unwrap();
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_program_that_cannot_run_is_told_at_the_start_and_in_the_status() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("none")).await;
    let mut runtime = lab.runtime().await;
    for (name, program, reason) in [
        ("searched", "nope", "exec: \"nope\": executable file not found in $PATH"),
        ("missing", "/no/such", "exec: \"/no/such\": no such file or directory"),
        ("data", "/etc/passwd", "exec: \"/etc/passwd\": permission denied"),
    ] {
        let id = lab.create(&sandbox, container(name, &[program])).await;
        let start = StartContainerRequest { container_id: id.clone() };
        let refused = runtime.start_container(start.clone()).await.unwrap_err();
        assert_eq!(refused.message(), reason);
        let status = lab.status(&id).await;
        assert_eq!(status.state(), ContainerState::ContainerExited);
        assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
        assert_eq!(status.message, reason);
        assert!(status.finished_at > 0);
        let again = runtime.start_container(start).await.unwrap_err();
        assert_eq!(again.code(), Code::FailedPrecondition);
        runtime.stop_container(stop(&id, 1)).await.unwrap();
        let remove = RemoveContainerRequest { container_id: id };
        runtime.remove_container(remove).await.unwrap();
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn stopping_asks_first_and_kills_then() {
    let Some(lab) = CriLab::open().await else { return };
    let polite = "trap 'exit 7' TERM; while :; do sleep 0.05; done";
    let (first, asked) = lab.run("polite", container("c", &["sh", "-c", polite])).await;
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let (second, killed) = lab.run("stubborn", container("c", &["sh", "-c", stubborn])).await;
    let mut runtime = lab.runtime().await;
    runtime.stop_container(stop(&asked, 20)).await.unwrap();
    assert_eq!(lab.status(&asked).await.exit_code, 7);
    runtime.stop_container(stop(&killed, 1)).await.unwrap();
    assert_eq!(lab.status(&killed).await.exit_code, 137);
    lab.remove(&first).await;
    lab.remove(&second).await;
    lab.close().await;
}

/// EXEC-04: the baseline is image and request, each name once.
#[tokio::test]
async fn a_container_has_the_variables_of_image_and_request() {
    let Some(lab) = CriLab::open().await else { return };
    let pair = |key: &str, value: &[u8]| KeyValue { key: key.into(), value: value.into() };
    let config = ContainerConfig {
        envs: vec![
            pair("FROM", b"request"),
            pair("RAW", b"\xff\xfe\n="),
            pair("LITERAL", b"$(FROM) $FROM"),
            pair("TOKEN", b"hunter2"),
        ],
        annotations: [("waybill.dev/sensitive-env".to_owned(), "TOKEN".to_owned())].into(),
        ..sleeper("c")
    };
    let (sandbox, id) = lab.run("env", config).await;
    let environ = lab.exec(&id, &["cat", "/proc/1/environ"]).await.stdout;
    let entries: Vec<_> = environ.split(|byte| *byte == 0).collect();
    for expected in
        [&b"FROM=request"[..], b"RAW=\xff\xfe\n=", b"LITERAL=$(FROM) $FROM", b"PATH=/bin"]
    {
        assert_eq!(entries.iter().filter(|entry| **entry == expected).count(), 1);
    }
    assert_eq!(entries.iter().filter(|entry| entry.starts_with(b"FROM=")).count(), 1);

    let request = ContainerStatusRequest { container_id: id.clone(), verbose: true };
    let response = lab.runtime().await.container_status(request).await.unwrap().into_inner();
    let info = &response.info["info"];
    assert!(info.contains("LITERAL") && !info.contains("request") && !info.contains("hunter2"));
    let names: serde_json::Value = serde_json::from_str(info).unwrap();
    assert!(!names["envNames"].to_string().contains("TOKEN"), "{names}");
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// D9: after a run with a known value, no file of the runtime holds it.
#[tokio::test]
async fn no_file_holds_a_value() {
    let Some(lab) = CriLab::open().await else { return };
    let canary = "canary-7f3a9c";
    let config = ContainerConfig {
        envs: vec![KeyValue { key: "TOKEN".into(), value: canary.into() }],
        ..sleeper("c")
    };
    let (sandbox, id) = lab.run("canary", config).await;
    assert!(lab.sh(&id, "echo $TOKEN").await.contains(canary));
    for directory in ["run", "state", "logs"] {
        assert_eq!(files_with(&lab.path(directory), canary.as_bytes()), Vec::<String>::new());
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

fn files_with(directory: &std::path::Path, needle: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && entry.file_name() != "rootfs" {
            found.extend(files_with(&entry.path(), needle));
        } else if kind.is_file() {
            // A pinned namespace looks like a file and cannot be read.
            let Ok(content) = fs::read(entry.path()) else { continue };
            if content.windows(needle.len()).any(|window| window == needle) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    found
}

#[tokio::test]
async fn user_groups_and_privileges_are_as_asked() {
    let Some(lab) = CriLab::open().await else { return };
    let context = LinuxContainerSecurityContext {
        run_as_username: "web".into(),
        supplemental_groups: vec![77],
        no_new_privs: true,
        capabilities: Some(Capability {
            add_capabilities: vec!["NET_ADMIN".into()],
            drop_capabilities: vec!["ALL".into()],
            add_ambient_capabilities: Vec::new(),
        }),
        readonly_rootfs: true,
        masked_paths: vec!["/proc/kcore".into()],
        readonly_paths: vec!["/proc/sys".into()],
        ..LinuxContainerSecurityContext::default()
    };
    let (first, merged) = lab.run("merged", with_context(sleeper("c"), context.clone())).await;
    assert_eq!(
        lab.sh(&merged, "id -u; id -G | tr ' ' '\\n' 2>/dev/null || id -G").await.lines().next(),
        Some("1000")
    );
    let groups = lab.sh(&merged, "cat /proc/1/status | grep ^Groups").await;
    assert!(groups.contains("50") && groups.contains("77") && groups.contains("1000"), "{groups}");
    let status = lab.sh(&merged, "cat /proc/1/status").await;
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    // NET_ADMIN alone, bit 12.
    assert!(status.contains("CapBnd:\t0000000000001000"), "{status}");
    let refused = lab.exec(&merged, &["touch", "/file"]).await;
    assert_ne!(refused.exit_code, 0);
    assert!(lab.sh(&merged, "echo $HOME").await == "/home/web");
    let user = lab.status(&merged).await.user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid), (1000, 1000));

    let policy = SupplementalGroupsPolicy::Strict.into();
    let strict = LinuxContainerSecurityContext { supplemental_groups_policy: policy, ..context };
    let (second, strict) = lab.run("strict", with_context(sleeper("c"), strict)).await;
    let groups = lab.sh(&strict, "cat /proc/1/status | grep ^Groups").await;
    assert!(!groups.contains("50") && groups.contains("77"), "{groups}");
    lab.remove(&first).await;
    lab.remove(&second).await;
    lab.close().await;
}

#[tokio::test]
async fn mounts_are_made_and_protected_as_asked() {
    let Some(lab) = CriLab::open().await else { return };
    let volume = lab.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("word"), "hello").unwrap();
    let mount = |inside: &str, readonly: bool| Mount {
        host_path: volume.display().to_string(),
        container_path: inside.into(),
        readonly,
        ..Mount::default()
    };
    let config = ContainerConfig {
        mounts: vec![mount("/read", true), mount("/write", false)],
        working_dir: "/made/for/me".into(),
        ..sleeper("c")
    };
    let (sandbox, id) = lab.run("mounts", config).await;
    assert_eq!(lab.sh(&id, "cat /read/word; pwd").await, "hello/made/for/me");
    assert_ne!(lab.exec(&id, &["touch", "/read/file"]).await.exit_code, 0);
    lab.sh(&id, "touch /write/file").await;
    assert!(volume.join("file").exists());
    assert_eq!(lab.status(&id).await.mounts.len(), 2);

    // Kubelets leave it to the runtime to make a host path.
    let made = lab.path("made/by/the/runtime");
    let config = ContainerConfig {
        mounts: vec![Mount { host_path: made.display().to_string(), ..mount("/x", false) }],
        ..sleeper("made")
    };
    let id = lab.create(&sandbox, config).await;
    lab.start_container(&id).await;
    lab.sh(&id, "touch /x/file").await;
    assert!(made.join("file").exists());
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn limits_are_set_shown_and_changed() {
    let Some(lab) = CriLab::open().await else { return };
    let limits = |memory: i64| LinuxContainerResources {
        cpu_shares: 512,
        memory_limit_in_bytes: memory,
        ..LinuxContainerResources::default()
    };
    let linux = LinuxContainerConfig {
        resources: Some(LinuxContainerResources { oom_score_adj: 321, ..limits(64 << 20) }),
        security_context: None,
    };
    let config = ContainerConfig { linux: Some(linux), ..sleeper("c") };
    let (sandbox, id) = lab.run("limits", config).await;
    assert_eq!(lab.sh(&id, "cat /proc/1/oom_score_adj").await, "321");
    let mut runtime = lab.runtime().await;
    let stats = || ContainerStatsRequest { container_id: id.clone() };
    let first = runtime.container_stats(stats()).await.unwrap().into_inner().stats.unwrap();
    let memory = first.memory.unwrap();
    let limit = memory.available_bytes.unwrap().value + memory.working_set_bytes.unwrap().value;
    assert_eq!(limit, 64 << 20);
    assert!(first.cpu.unwrap().usage_core_nano_seconds.unwrap().value > 0);

    let update = UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(limits(128 << 20)),
        ..Default::default()
    };
    runtime.update_container_resources(update).await.unwrap();
    let second = runtime.container_stats(stats()).await.unwrap().into_inner().stats.unwrap();
    let memory = second.memory.unwrap();
    let limit = memory.available_bytes.unwrap().value + memory.working_set_bytes.unwrap().value;
    assert_eq!(limit, 128 << 20);
    let shown = lab.status(&id).await.resources.unwrap().linux.unwrap();
    assert_eq!((shown.memory_limit_in_bytes, shown.oom_score_adj), (128 << 20, 321));

    let request = ListPodSandboxStatsRequest { filter: None };
    let pods = runtime.list_pod_sandbox_stats(request).await.unwrap().into_inner().stats;
    let linux = pods[0].linux.as_ref().unwrap();
    assert_eq!(linux.containers.len(), 1);
    assert!(linux.process.as_ref().unwrap().process_count.as_ref().unwrap().value >= 1);
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_rotated_log_is_opened_anew() {
    let Some(lab) = CriLab::open().await else { return };
    let script = "while :; do echo tick; sleep 0.02; done";
    let (sandbox, id) = lab.run("log", container("c", &["sh", "-c", script])).await;
    let path = lab.status(&id).await.log_path;
    let moved = format!("{path}.1");
    fs::rename(&path, &moved).unwrap();
    let request = ReopenContainerLogRequest { container_id: id.clone() };
    lab.runtime().await.reopen_container_log(request).await.unwrap();
    let has_line = || fs::read_to_string(&path).is_ok_and(|text| text.contains("tick"));
    crate::lab::eventually("the new log has a line", has_line).await;
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn containers_are_listed_by_sandbox_state_and_label() {
    let Some(lab) = CriLab::open().await else { return };
    let labelled = ContainerConfig {
        labels: [("tier".to_owned(), "front".to_owned())].into(),
        ..sleeper("running")
    };
    let (sandbox, running) = lab.run("list", labelled).await;
    let created = lab.create(&sandbox, sleeper("created")).await;
    let mut runtime = lab.runtime().await;
    let label = [("tier".to_owned(), "front".to_owned())];
    let state =
        waybill_proto::cri::ContainerStateValue { state: ContainerState::ContainerCreated.into() };
    for (filter, expected) in [
        (ContainerFilter { pod_sandbox_id: sandbox.clone(), ..Default::default() }, 2),
        (ContainerFilter { label_selector: label.into(), ..Default::default() }, 1),
        (ContainerFilter { state: Some(state), ..Default::default() }, 1),
        (ContainerFilter { id: created.clone(), ..Default::default() }, 1),
        (ContainerFilter { pod_sandbox_id: "x".into(), ..Default::default() }, 0),
    ] {
        let request = ListContainersRequest { filter: Some(filter.clone()) };
        let found = runtime.list_containers(request).await.unwrap().into_inner().containers;
        assert_eq!(found.len(), expected, "{filter:?}");
    }
    assert_eq!(lab.status(&running[..13]).await.id, running);
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn events_tell_what_happens() {
    let Some(lab) = CriLab::open().await else { return };
    let mut runtime = lab.runtime().await;
    let mut events = runtime.get_container_events(GetEventsRequest {}).await.unwrap().into_inner();
    let (sandbox, id) = lab.run("events", container("c", &["true"])).await;
    lab.ended(&id).await;
    lab.remove(&sandbox).await;
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let event = events.message().await.unwrap().unwrap();
        if event.container_id == id {
            assert!(event.created_at > 0);
            seen.push(event.container_event_type());
        }
    }
    assert_eq!(
        seen,
        [
            ContainerEventType::ContainerCreatedEvent,
            ContainerEventType::ContainerStartedEvent,
            ContainerEventType::ContainerStoppedEvent,
            ContainerEventType::ContainerDeletedEvent,
        ]
    );
    drop(events);
    lab.close().await;
}

/// A failure leaves nothing, which closing the lab checks.
#[tokio::test]
async fn what_is_not_supported_is_refused_and_leaves_nothing() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("refused")).await;
    let profile = |kind: ProfileType| SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: String::new(),
    };
    let context = LinuxContainerSecurityContext::default;
    let seccomp = LinuxContainerSecurityContext {
        seccomp: Some(profile(ProfileType::Localhost)),
        ..context()
    };
    let privileged = LinuxContainerSecurityContext { privileged: true, ..context() };
    let group =
        LinuxContainerSecurityContext { run_as_group: Some(Int64Value { value: 1 }), ..context() };
    let image = ImageSpec { image: "localhost/nothing:1".into(), ..ImageSpec::default() };
    for (config, code, text) in [
        (with_context(sleeper("a"), seccomp), Code::InvalidArgument, "seccomp"),
        (with_context(sleeper("b"), privileged), Code::InvalidArgument, "privileged"),
        (with_context(sleeper("c"), group), Code::InvalidArgument, "run_as_group"),
        (
            ContainerConfig { image: Some(image), ..sleeper("d") },
            Code::NotFound,
            "localhost/nothing",
        ),
        (ContainerConfig { working_dir: "x".into(), ..sleeper("e") }, Code::InvalidArgument, "x"),
        (ContainerConfig { metadata: None, ..sleeper("f") }, Code::InvalidArgument, "metadata"),
    ] {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(config),
            sandbox_config: None,
        };
        let refused = lab.runtime().await.create_container(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{}", refused.message());
        assert!(refused.message().contains(text), "{}", refused.message());
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// Whatever was begun for a client that went away is there as a whole, and whoever comes next finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_made_to_the_end_when_its_client_goes_away() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("left")).await;
    for milliseconds in [0, 1, 2, 4, 8, 16, 32] {
        let name = format!("c{milliseconds}");
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(sleeper(&name)),
            sandbox_config: None,
        };
        let mut gone = lab.runtime().await;
        let asked = gone.create_container(request.clone());
        let _ = tokio::time::timeout(Duration::from_millis(milliseconds), asked).await;
        drop(gone);
        // Waits for the one before, if it was begun; they are made one after the other in a sandbox.
        let again = lab.runtime().await.create_container(request).await;
        let mut found = lab.containers_named(&name).await;
        let id = found.pop().expect("one of them is there");
        assert!(found.is_empty(), "{found:?}");
        match again {
            Ok(created) => assert_eq!(created.into_inner().container_id, id),
            Err(status) => assert_eq!(status.code(), Code::AlreadyExists, "{status:?}"),
        }
        lab.start_container(&id).await;
        assert_eq!(lab.sh(&id, "echo here").await, "here");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}
