//! Pods with users of their own, on this machine's kernel.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
};

use waybill_proto::cri::{
    ContainerConfig, CreateContainerRequest, IdMapping, LinuxContainerSecurityContext, Mount,
    NamespaceMode, NamespaceOption, PodSandboxConfig, RunPodSandboxRequest, StatusRequest,
    UserNamespace,
};
use waybill_testkit::skip::skip;

use crate::cri_lab::{CriLab, container, sleeper, with_context};

/// Root of the pod, on the machine.
pub(crate) const ROOT: u32 = 20 * 65536;

fn mapping() -> Vec<IdMapping> {
    vec![IdMapping { host_id: ROOT, container_id: 0, length: 65536 }]
}

pub(crate) fn options() -> NamespaceOption {
    let user = UserNamespace { mode: NamespaceMode::Pod.into(), uids: mapping(), gids: mapping() };
    NamespaceOption {
        pid: NamespaceMode::Container.into(),
        userns_options: Some(user),
        ..NamespaceOption::default()
    }
}

/// A lab, if this machine can.
pub(crate) async fn open() -> Option<CriLab> {
    let lab = CriLab::open().await?;
    let status = lab.runtime().await.status(StatusRequest::default()).await.unwrap().into_inner();
    let features = status.runtime_handlers[0].features.unwrap();
    if !features.user_namespaces {
        skip("user-namespaces", "a kernel and a file system that map the ids of mounts");
        lab.close().await;
        return None;
    }
    Some(lab)
}

pub(crate) fn sandbox_config(
    lab: &CriLab,
    name: &str,
    options: NamespaceOption,
) -> PodSandboxConfig {
    let mut config = lab.sandbox_config(name);
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.namespace_options = Some(options);
    config
}

pub(crate) fn of_pod(config: ContainerConfig, options: NamespaceOption) -> ContainerConfig {
    let context = LinuxContainerSecurityContext {
        namespace_options: Some(options),
        ..LinuxContainerSecurityContext::default()
    };
    with_context(config, context)
}

fn bound(host: &Path, inside: &str, mapped: bool) -> Mount {
    let mappings = if mapped { mapping() } else { Vec::new() };
    Mount {
        host_path: host.display().to_string(),
        container_path: inside.into(),
        uid_mappings: mappings.clone(),
        gid_mappings: mappings,
        ..Mount::default()
    }
}

/// A pod that runs, with one container that sleeps.
pub(crate) async fn run(lab: &CriLab, name: &str, mounts: Vec<Mount>) -> (String, String) {
    let sandbox = lab.run_sandbox(sandbox_config(lab, name, options())).await;
    let config = ContainerConfig { mounts, ..sleeper("c") };
    let id = lab.create(&sandbox, of_pod(config, options())).await;
    lab.start_container(&id).await;
    (sandbox, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn root_of_a_pod_is_nobody_on_the_machine() {
    let Some(lab) = open().await else { return };
    let (sandbox, id) = run(&lab, "pod", Vec::new()).await;
    let map = lab.sh(&id, "cat /proc/1/uid_map /proc/1/gid_map /proc/self/uid_map").await;
    for line in map.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words, ["0", &ROOT.to_string(), "65536"], "{map}");
    }
    assert_eq!(map.lines().count(), 3);
    assert_eq!(lab.sh(&id, "id -u; id -g; id -G").await, "0\n0\n0");
    // A session is where the first process is, and owns the same.
    for kind in ["user", "net", "ipc", "uts", "mnt", "cgroup", "pid"] {
        let script = format!("ls -l /proc/1/ns/{kind} /proc/self/ns/{kind}");
        let links = lab.sh(&id, &script).await;
        let ends: Vec<_> = links.lines().map(|it| it.rsplit(' ').next().unwrap()).collect();
        assert_eq!(ends[0], ends[1], "{links}");
    }
    let of_session =
        lab.sh(&id, "grep -E '^(CapEff|Groups|NoNewPrivs|Seccomp):' /proc/self/status").await;
    let of_first =
        lab.sh(&id, "grep -E '^(CapEff|Groups|NoNewPrivs|Seccomp):' /proc/1/status").await;
    assert_eq!(of_session, of_first);
    assert!(of_first.contains("Seccomp:\t2"), "{of_first}");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_finds_all_that_others_find() {
    let Some(lab) = open().await else { return };
    let (sandbox, id) = run(&lab, "pod", Vec::new()).await;
    for path in [
        "/",
        "/etc/passwd",
        "/bin/busybox",
        "/tmp",
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
        "/dev",
        "/dev/shm",
        "/proc",
        "/sys",
        "/root",
    ] {
        let owner = lab.sh(&id, &format!("stat -c %u:%g {path}")).await;
        let expected = if ["/proc", "/sys"].contains(&path) { "65534:65534" } else { "0:0" };
        assert_eq!(owner, expected, "{path}");
    }
    let script = "set -e; echo a > /tmp/a; echo b >> /etc/passwd; echo c > /dev/shm/c; echo d > /dev/null; \
        mkdir /new; head -c 4 /dev/zero >/dev/null; echo e > /root/e; test -c /dev/ptmx || test -e /dev/ptmx; \
        echo f >> /etc/hosts; test -d /dev/mqueue; test -d /sys/class; test -d /sys/fs/cgroup; stat -c %u /tmp/a";
    assert_eq!(lab.sh(&id, script).await, "0");
    let mounts = lab.sh(&id, "cat /proc/self/mounts").await;
    for kind in [
        " /proc proc ",
        " /dev tmpfs ",
        " /dev/pts devpts ",
        " /dev/mqueue mqueue ",
        " /sys sysfs ",
    ] {
        assert!(mounts.contains(kind), "{kind}: {mounts}");
    }
    assert_eq!(lab.sh(&id, "hostname").await, "host-pod");
    // What it wrote belongs to the pod on the machine, too.
    let upper = lab.path("state/containers").join(&id).join("upper");
    for file in ["", "tmp/a", "etc/passwd", "new"] {
        let found = fs::metadata(upper.join(file)).unwrap();
        assert_eq!((found.uid(), found.gid()), (ROOT, ROOT), "{file}");
    }
    let layers: Vec<_> = fs::read_dir(lab.path("state/images/layers")).unwrap().collect();
    let layer = layers[0].as_ref().unwrap().path();
    assert_eq!(fs::metadata(layer.join("etc/passwd")).unwrap().uid(), 0);
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_mapped_volume_have_the_same_owner_inside_and_outside() {
    let Some(lab) = open().await else { return };
    let volume = lab.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("of-root"), "root").unwrap();
    fs::set_permissions(volume.join("of-root"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(volume.join("of-web"), "web").unwrap();
    chown(volume.join("of-web"), Some(1000), Some(2000)).unwrap();
    let read_only = Mount { readonly: true, ..bound(&volume, "/locked", true) };
    let mounts = vec![bound(&volume, "/mapped", true), bound(&volume, "/plain", false), read_only];
    let (sandbox, id) = run(&lab, "pod", mounts).await;
    assert_eq!(lab.sh(&id, "cat /mapped/of-root").await, "root");
    assert_eq!(lab.sh(&id, "stat -c %u:%g /mapped/of-web /locked/of-root").await, "1000:2000\n0:0");
    lab.sh(&id, "echo new > /mapped/new").await;
    let new = fs::metadata(volume.join("new")).unwrap();
    assert_eq!((new.uid(), new.gid()), (0, 0));
    // The negative control of it all: without a mapping, root of the pod is a stranger to the machine's files.
    assert_eq!(lab.sh(&id, "stat -c %u:%g /plain/of-root").await, "65534:65534");
    for attack in [
        "cat /plain/of-root",
        "echo x > /plain/of-root",
        "echo x > /plain/more",
        "echo x > /locked/more",
        "rm -f /plain/of-web; test ! -e /plain/of-web",
    ] {
        let answer = lab.exec(&id, &["sh", "-c", attack]).await;
        assert_ne!(answer.exit_code, 0, "{attack}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_mapped_is_refused_by_name() {
    let Some(lab) = open().await else { return };
    let sandbox = lab.run_sandbox(sandbox_config(&lab, "pod", options())).await;
    let config = ContainerConfig {
        mounts: vec![bound(Path::new("/sys/kernel"), "/mapped", true)],
        ..sleeper("c")
    };
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(of_pod(config, options())),
        sandbox_config: None,
    };
    let error = lab.runtime().await.create_container(request).await.unwrap_err();
    for word in ["/sys/kernel", "/mapped", "sysfs", "hostUsers"] {
        assert!(error.message().contains(word), "{word}: {error}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_of_the_pod_is_that_user_on_both_sides() {
    let Some(lab) = open().await else { return };
    let sandbox = lab.run_sandbox(sandbox_config(&lab, "pod", options())).await;
    let mut config = of_pod(
        container("c", &["sh", "-c", "id -u > /dev/stdout; echo on-err > /dev/stderr; sleep 1000"]),
        options(),
    );
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.run_as_user = Some(waybill_proto::cri::Int64Value { value: 1000 });
    context.supplemental_groups = vec![50, 60000];
    context.no_new_privs = true;
    config.working_dir = "/made/for/it".into();
    let id = lab.create(&sandbox, config).await;
    lab.start_container(&id).await;
    assert_eq!(
        lab.sh(&id, "id -u; id -G; pwd; stat -c %u:%g /made/for").await,
        "1000\n1000 50 60000\n/made/for/it\n0:0"
    );
    let logged = lab.path("logs/pod/c/0.log");
    crate::lab::eventually("both streams can be opened again", || {
        let log = fs::read_to_string(&logged).unwrap_or_default();
        log.contains("stdout F 1000") && log.contains("stderr F on-err")
    })
    .await;
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_pod_can_share_their_processes() {
    let Some(lab) = open().await else { return };
    let shared = NamespaceOption { pid: NamespaceMode::Pod.into(), ..options() };
    let sandbox = lab.run_sandbox(sandbox_config(&lab, "pod", shared.clone())).await;
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let id = lab.create(&sandbox, of_pod(sleeper(name), shared.clone())).await;
        lab.start_container(&id).await;
        ids.push(id);
    }
    let seen = lab.sh(&ids[0], "ps").await;
    assert_eq!(seen.matches("sleep 1000").count(), 2, "{seen}");
    assert!(seen.contains("waybill-holder"), "{seen}");
    // A debugger that joins one of them.
    let target = NamespaceOption {
        pid: NamespaceMode::Target.into(),
        target_id: ids[0].clone(),
        ..options()
    };
    let debugger = lab.create(&sandbox, of_pod(sleeper("debugger"), target)).await;
    lab.start_container(&debugger).await;
    let seen = lab.sh(&debugger, "ps").await;
    assert_eq!(seen.matches("sleep 1000").count(), 3, "{seen}");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_keeps_its_users_when_the_runtime_is_started_again() {
    let Some(mut lab) = open().await else { return };
    let (sandbox, id) = run(&lab, "pod", Vec::new()).await;
    let before = lab.sh(&id, "ls -l /proc/self/ns/user; cat /proc/self/uid_map").await;
    lab.stop().await;
    lab.start().await;
    let told = lab.sh(&id, "cat /proc/self/uid_map").await;
    assert!(before.ends_with(&told), "{before} {told}");
    let late = lab.create(&sandbox, of_pod(sleeper("late"), options())).await;
    lab.start_container(&late).await;
    let link = |text: &str| text.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(link(&lab.sh(&late, "ls -l /proc/self/ns/user").await), link(&before));
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_cannot_have_is_refused_before_anything_is_made() {
    let Some(lab) = open().await else { return };
    let ask = async |change: fn(&mut NamespaceOption)| {
        let mut options = options();
        change(&mut options);
        let config = Some(sandbox_config(&lab, "pod", options));
        let request = RunPodSandboxRequest { config, ..Default::default() };
        lab.runtime().await.run_pod_sandbox(request).await.unwrap_err()
    };
    let two = ask(|it| it.userns_options.as_mut().unwrap().uids.push(IdMapping::default())).await;
    assert!(two.message().contains("one mapping"), "{two}");
    let machine = ask(|it| it.userns_options.as_mut().unwrap().uids[0].host_id = 0).await;
    assert!(machine.message().contains("same mapping"), "{machine}");
    let network = ask(|it| it.network = NamespaceMode::Node.into()).await;
    assert!(network.message().contains("hostNetwork"), "{network}");
    let sandbox = lab.run_sandbox(sandbox_config(&lab, "pod", options())).await;
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(sleeper("c")),
        sandbox_config: None,
    };
    let other = lab.runtime().await.create_container(request).await.unwrap_err();
    assert!(other.message().contains("those of its sandbox"), "{other}");
    lab.remove(&sandbox).await;
    lab.close().await;
}
