//! Attacks by root of a pod with users of its own, who has every capability and no seccomp filter. The control of each is the same
//! attack by a privileged container that has the machine's users: there it works.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use waybill_proto::cri::{
    ContainerConfig, LinuxContainerSecurityContext, Mount, NamespaceMode, NamespaceOption,
};
use waybill_testkit::hostile::hostile;

use crate::{
    cri_lab::{CriLab, container, sleeper, with_context},
    cri_users::{ROOT, open, options},
};

/// Users of their own, or the machine's.
fn kinds() -> [(&'static str, NamespaceOption); 2] {
    let plain = NamespaceOption { pid: NamespaceMode::Container.into(), ..Default::default() };
    [("own", options()), ("machine", plain)]
}

fn privileged(config: ContainerConfig, options: NamespaceOption) -> ContainerConfig {
    let context = LinuxContainerSecurityContext {
        privileged: true,
        namespace_options: Some(options),
        ..LinuxContainerSecurityContext::default()
    };
    with_context(config, context)
}

fn bound(host: &Path, inside: &str) -> Mount {
    Mount {
        host_path: host.display().to_string(),
        container_path: inside.into(),
        ..Mount::default()
    }
}

async fn sandbox(lab: &CriLab, name: &str, options: NamespaceOption) -> String {
    let mut config = lab.sandbox_config(name);
    let context = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    context.privileged = true;
    context.namespace_options = Some(options);
    lab.run_sandbox(config).await
}

/// How an attack ends as a first process and as a session, in a pod of that kind.
async fn attempt(
    lab: &CriLab,
    options: NamespaceOption,
    attack: &[&str],
    mounts: Vec<Mount>,
) -> [i32; 2] {
    let sandbox = sandbox(lab, "pod", options.clone()).await;
    let program = Mount { readonly: true, ..bound(hostile(), "/bin/hostile") };
    let with = |config: ContainerConfig| {
        let mounts = [mounts.clone(), vec![program.clone()]].concat();
        privileged(ContainerConfig { mounts, ..config }, options.clone())
    };
    let first = lab.create(&sandbox, with(container("first", attack))).await;
    lab.start_container(&first).await;
    let first = lab.ended(&first).await.exit_code;
    let id = lab.create(&sandbox, with(sleeper("box"))).await;
    lab.start_container(&id).await;
    let session = lab.exec(&id, attack).await.exit_code;
    lab.remove(&sandbox).await;
    [first, session]
}

/// It is stopped in a pod with users of its own, and works in one without.
async fn check(lab: &CriLab, attack: &[&str], mounts: &[Mount]) {
    for (kind, options) in kinds() {
        let expected = if kind == "own" { [1, 1] } else { [0, 0] };
        let ended = attempt(lab, options, attack, mounts.to_vec()).await;
        assert_eq!(ended, expected, "{attack:?} with users of {kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rights_in_a_pod_are_none_on_the_machine() {
    let Some(lab) = open().await else { return };
    check(&lab, &["/bin/hostile", "rights"], &[]).await;
    check(&lab, &["/bin/hostile", "levers"], &[]).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_of_a_pod_becomes_a_user_of_another() {
    let Some(lab) = open().await else { return };
    for user in ["65536", "131072", &ROOT.to_string(), "4294901760"] {
        check(&lab, &["/bin/hostile", "stranger", user], &[]).await;
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_machine_and_of_other_pods_are_closed() {
    let Some(lab) = open().await else { return };
    let directory = lab.path("of-the-machine");
    fs::create_dir(&directory).unwrap();
    for (name, owner) in [("root", 0), ("pod", ROOT + 65536)] {
        let file = directory.join(name);
        fs::write(&file, "hunter2").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&file, Some(owner), Some(owner)).unwrap();
        let inside = format!("/machine/{name}");
        let attack = ["/bin/hostile", "file-of-the-machine", &inside];
        check(&lab, &attack, &[bound(&directory, "/machine")]).await;
    }
    lab.close().await;
}

/// Has a spy in the container look at all processes while sessions begin, until it has seen one or there were so many; its exit code.
async fn be_spied_on(lab: &CriLab, id: &str, most: usize) -> i32 {
    lab.sh(id, "busybox mkfifo /tmp/over").await;
    let spy = ["sh", "-c", "/bin/hostile spy /bin/busybox /bin/hostile < /tmp/over"];
    let mut spy = std::pin::pin!(lab.exec(id, &spy));
    // The spy looks until the other end of its input is closed.
    let end = [
        "sh",
        "-c",
        "exec 3> /tmp/over; touch /tmp/looks; until test -e /tmp/enough; do busybox usleep 1000; done",
    ];
    let mut end = std::pin::pin!(lab.exec(id, &end));
    let sessions = async {
        lab.sh(id, "until test -e /tmp/looks; do busybox usleep 1000; done").await;
        for _ in 0..most {
            lab.exec(id, &["true"]).await;
        }
        lab.sh(id, "touch /tmp/enough").await;
    };
    let mut sessions = std::pin::pin!(sessions);
    let mut over = [false; 2];
    loop {
        tokio::select! {
            seen = &mut spy => return seen.exit_code,
            _ = &mut end, if !over[0] => over[0] = true,
            () = &mut sessions, if !over[1] => over[1] = true,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_enter_a_pod_are_not_seen_by_its_root() {
    let Some(lab) = open().await else { return };
    for (kind, options) in kinds() {
        let sandbox = sandbox(&lab, "pod", options.clone()).await;
        let program = Mount { readonly: true, ..bound(hostile(), "/bin/hostile") };
        let config = ContainerConfig { mounts: vec![program], ..sleeper("box") };
        let id = lab.create(&sandbox, privileged(config, options)).await;
        lab.start_container(&id).await;
        let (most, expected) = if kind == "own" { (100, 1) } else { (2000, 0) };
        assert_eq!(be_spied_on(&lab, &id, most).await, expected, "users of {kind}");
        lab.remove(&sandbox).await;
    }
    lab.close().await;
}
