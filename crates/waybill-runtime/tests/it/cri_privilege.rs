//! What containers may do to the machine, over CRI: devices, privileges, propagation of mounts, terminals.

use std::{fs, path::Path};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};
use waybill_proto::cri::{
    AttachRequest, ContainerConfig, Device, LinuxContainerSecurityContext, Mount, MountPropagation,
    NamespaceMode, NamespaceOption, SecurityProfile, security_profile::ProfileType,
};
use waybill_runtime::cri::UnsetSeccompProfile;

use crate::cri_lab::{CriLab, container, sleeper, with_context};

#[tokio::test]
async fn a_container_has_the_devices_it_asked_for() {
    let Some(lab) = CriLab::open().await else { return };
    let config = ContainerConfig {
        devices: vec![Device {
            host_path: "/dev/zero".into(),
            container_path: "/dev/nothing".into(),
            permissions: "r".into(),
        }],
        ..sleeper("c")
    };
    let (sandbox, id) = lab.run("device", config).await;
    assert_eq!(lab.sh(&id, "head -c 3 /dev/nothing | wc -c").await.trim(), "3");
    assert_eq!(lab.sh(&id, "stat -c %t:%T /dev/null /dev/nothing").await, "1:3\n1:5");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_container_makes_nodes_of_any_device_and_opens_only_its_own() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("nodes", sleeper("c")).await;
    // One that its driver would let anybody open.
    for directory in ["/dev", "/root"] {
        let make = "mknod mine c 1 3 && echo > mine && mknod loops c 10 237";
        lab.sh(&id, &format!("cd {directory} && {make}")).await;
        let refused = lab.exec(&id, &["head", "-c", "1", &format!("{directory}/loops")]).await;
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("Operation not permitted"), "{said}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_privileged_container_has_the_machines_devices_and_can_mount() {
    let Some(lab) = CriLab::open().await else { return };
    let mut config = lab.sandbox_config("privileged");
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().privileged = true;
    let sandbox = lab.run_sandbox(config).await;
    let context = LinuxContainerSecurityContext {
        privileged: true,
        masked_paths: vec!["/proc/kcore".into()],
        ..LinuxContainerSecurityContext::default()
    };
    let id = lab.create(&sandbox, with_context(sleeper("c"), context)).await;
    lab.start_container(&id).await;
    lab.sh(&id, "mkdir /m && mount -t tmpfs none /m && touch /m/file").await;
    if Path::new("/dev/kmsg").exists() {
        lab.sh(&id, "ls /dev/kmsg").await;
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// D13 is the default, and `unconfined` is for operators who need upstream's meaning of a request without a profile. What runs
/// keeps what it has, and whoever names a profile gets it.
#[tokio::test]
async fn an_operator_decides_what_no_seccomp_profile_means() {
    let Some(mut lab) = CriLab::open().await else { return };
    // The first process and a session, by the kernel's account: 2 is a filter, 0 is none.
    let modes = "grep Seccomp: /proc/1/status /proc/self/status | grep -o '[0-9]$'";
    let (first, confined) = lab.run("confined", sleeper("c")).await;
    assert_eq!(lab.sh(&confined, modes).await, "2\n2");

    lab.stop().await;
    lab.unset_seccomp_profile = UnsetSeccompProfile::Unconfined;
    lab.start().await;
    let (second, free) = lab.run("free", sleeper("c")).await;
    let context = LinuxContainerSecurityContext {
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        ..LinuxContainerSecurityContext::default()
    };
    let (third, named) = lab.run("named", with_context(sleeper("c"), context)).await;
    assert_eq!(lab.sh(&free, modes).await, "0\n0");
    assert_eq!(lab.sh(&named, modes).await, "2\n2");
    assert_eq!(lab.sh(&confined, modes).await, "2\n2", "what runs keeps what it has");
    for sandbox in [first, second, third] {
        lab.remove(&sandbox).await;
    }
    lab.close().await;
}

#[tokio::test]
async fn mounts_go_as_far_as_their_propagation_says() {
    let Some(lab) = CriLab::open().await else { return };
    let volume = lab.path("volume");
    fs::create_dir(&volume).unwrap();
    mount_bind(&volume, &volume).unwrap();
    mount_change(&volume, MountPropagationFlags::SHARED).unwrap();
    let with = |inside: &str, propagation: MountPropagation| Mount {
        host_path: volume.display().to_string(),
        container_path: inside.into(),
        propagation: propagation.into(),
        ..Mount::default()
    };
    let config = ContainerConfig {
        mounts: vec![
            with("/private", MountPropagation::PropagationPrivate),
            with("/slave", MountPropagation::PropagationHostToContainer),
            with("/shared", MountPropagation::PropagationBidirectional),
        ],
        ..sleeper("c")
    };
    let (sandbox, id) = lab.run("propagation", config).await;
    let below = volume.join("below");
    fs::create_dir(&below).unwrap();
    mount("waybill-test", &below, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(below.join("word"), "late").unwrap();
    assert_eq!(lab.sh(&id, "cat /slave/below/word; cat /shared/below/word").await, "latelate");
    assert_ne!(lab.exec(&id, &["cat", "/private/below/word"]).await.exit_code, 0);
    unmount(&below, UnmountFlags::empty()).unwrap();
    lab.remove(&sandbox).await;
    unmount(&volume, UnmountFlags::empty()).unwrap();
    lab.close().await;
}

/// How `kubectl debug --target` sees the processes of another container.
#[tokio::test]
async fn a_container_may_join_the_processes_of_another() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, target) = lab.run("target", container("c", &["sleep", "4321"])).await;
    let options = NamespaceOption {
        pid: NamespaceMode::Target.into(),
        target_id: target.clone(),
        ..NamespaceOption::default()
    };
    let context = LinuxContainerSecurityContext {
        namespace_options: Some(options),
        ..LinuxContainerSecurityContext::default()
    };
    let debugger = lab.create(&sandbox, with_context(sleeper("debugger"), context)).await;
    lab.start_container(&debugger).await;
    assert!(lab.sh(&debugger, "ps").await.contains("sleep 4321"));
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_container_with_a_terminal_has_one() {
    let Some(lab) = CriLab::open().await else { return };
    let config = ContainerConfig {
        tty: true,
        stdin: true,
        ..container("c", &["sh", "-c", "test -t 0 && test -t 1 && echo terminal $TERM; sleep 1000"])
    };
    let (sandbox, id) = lab.run("terminal", config).await;
    let log = lab.status(&id).await.log_path;
    let logged = || fs::read_to_string(&log).is_ok_and(|text| text.contains("terminal xterm"));
    crate::lab::eventually("the terminal is logged", logged).await;
    let attach = AttachRequest {
        container_id: id.clone(),
        stdin: true,
        stdout: true,
        tty: true,
        stderr: false,
    };
    let url = lab.runtime().await.attach(attach).await.unwrap().into_inner().url;
    assert!(url.contains("/attach/"), "{url}");
    lab.remove(&sandbox).await;
    lab.close().await;
}
