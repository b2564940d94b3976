//! CVE-2025-52881: what a runtime tells the kernel about a process, it writes to files of `/proc`; where something else lies there, the
//! word is lost or goes to another file. Each case has its control, in which nobody looks.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use waybill_proto::cri::{
    ContainerConfig, CreateContainerRequest, LinuxContainerResources,
    LinuxContainerSecurityContext, Mount, RemoveContainerRequest,
};
use waybill_testkit::hostile::hostile;

use crate::{
    cri_lab::{CriLab, container, sleeper, with_context},
    lab::BUSYBOX,
};

/// How often a container is made while links are swapped.
const ROUNDS: usize = 12;
/// What a container has for the OOM killer.
const SCORE: i64 = 777;

fn bound(host: &Path, inside: &str) -> Mount {
    Mount {
        host_path: host.display().to_string(),
        container_path: inside.into(),
        ..Mount::default()
    }
}

/// A volume of the attacker's at `/a`, in which another one goes to `/a/place`: a directory or a link, as somebody swaps them.
fn swapped(outer: &Path, inner: &Path, name: &str) -> ContainerConfig {
    let program = Mount { readonly: true, ..bound(hostile(), "/bin/hostile") };
    ContainerConfig {
        mounts: vec![program, bound(outer, "/a"), bound(inner, "/a/place")],
        ..container(name, &["/bin/hostile", "redirected"])
    }
}

/// How the attack ends, if the container can be made.
async fn attempt(lab: &CriLab, sandbox: &str, config: ContainerConfig) -> Option<i32> {
    let mut runtime = lab.runtime().await;
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(config),
        sandbox_config: None,
    };
    let id = runtime.create_container(request).await.ok()?.into_inner().container_id;
    lab.start_container(&id).await;
    let code = lab.ended(&id).await.exit_code;
    runtime.remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    Some(code)
}

/// First processes: while their mounts are made, links are swapped that lead one into `/proc`.
#[tokio::test(flavor = "multi_thread")]
async fn links_swapped_meanwhile_lead_no_volume_into_proc() {
    let Some(lab) = CriLab::open().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let sandbox = lab.run_sandbox(lab.sandbox_config("proc")).await;
    for target in ["/proc/1/attr", "/proc/sys"] {
        let here = directory.path().join(target.replace('/', "-"));
        let (outer, inner) = (here.join("outer"), here.join("inner"));
        for made in [&outer.join("place"), &inner] {
            fs::create_dir_all(made).unwrap();
        }
        symlink(target, outer.join("link")).unwrap();
        let name = |round: usize| format!("{}-{round}", target.rsplit('/').next().unwrap());
        let plain = attempt(&lab, &sandbox, swapped(&outer, &inner, &name(ROUNDS))).await;
        assert_eq!(plain, Some(1), "without a swap it is a volume like others");

        let (place, link) = (outer.join("place"), outer.join("link"));
        let swap = move || renameat_with(CWD, &place, CWD, &link, RenameFlags::EXCHANGE);
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        // A test that failed has taken its directories away.
        let racer = thread::spawn(move || while !told.load(Ordering::Relaxed) && swap().is_ok() {});
        for round in 0..ROUNDS {
            let found = attempt(&lab, &sandbox, swapped(&outer, &inner, &name(round))).await;
            assert!(matches!(found, None | Some(1)), "{target}: {found:?}");
        }
        stop.store(true, Ordering::Relaxed);
        racer.join().unwrap();
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// The control: whoever follows the link mounts the volume in `/proc`, and the attack says so.
#[test]
fn whoever_follows_such_a_link_is_redirected() {
    if !rustix::process::getuid().is_root() || !Path::new(BUSYBOX).exists() {
        eprintln!("SKIPPED: mounts need root, and {BUSYBOX} from busybox-static");
        return;
    }
    for target in ["/proc/1/attr", "/proc/sys"] {
        let root = tempfile::tempdir().unwrap();
        for made in ["bin", "proc", "a", "inner"] {
            fs::create_dir(root.path().join(made)).unwrap();
        }
        fs::copy(BUSYBOX, root.path().join("bin/busybox")).unwrap();
        fs::copy(hostile(), root.path().join("bin/hostile")).unwrap();
        symlink(target, root.path().join("a/place")).unwrap();
        let script = "mount -t proc proc \"$1/proc\"
            chroot \"$1\" /bin/busybox mount --bind /inner /a/place
            exec chroot \"$1\" /bin/hostile redirected";
        let output = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--propagation", "private"])
            .args(["sh", "-ec", script, "sh"])
            .arg(root.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{target}: {output:?}");
    }
}

/// Sessions: a container that may mount has a `/proc` of its own making when they enter.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_about_a_session_does_not_go_to_a_proc_of_the_containers_making() {
    let Some(lab) = CriLab::open().await else { return };
    let mut config = lab.sandbox_config("fake");
    config.linux.as_mut().unwrap().security_context.as_mut().unwrap().privileged = true;
    let sandbox = lab.run_sandbox(config).await;
    let context = LinuxContainerSecurityContext {
        privileged: true,
        ..LinuxContainerSecurityContext::default()
    };
    let mut config = with_context(sleeper("c"), context);
    config.linux.as_mut().unwrap().resources = Some(LinuxContainerResources {
        oom_score_adj: SCORE,
        ..LinuxContainerResources::default()
    });
    let id = lab.create(&sandbox, config).await;
    lab.start_container(&id).await;
    // The kernel's own is still there for who looks.
    let fake = "mkdir /real && mount -t proc none /real && mount -t tmpfs none /proc && \
                mkdir -p /proc/self/attr && touch /proc/self/oom_score_adj /proc/self/attr/exec";
    lab.sh(&id, fake).await;
    assert_eq!(lab.sh(&id, "cat /real/self/oom_score_adj").await, SCORE.to_string());
    assert_eq!(lab.sh(&id, "cat /proc/self/oom_score_adj /proc/self/attr/exec").await, "");

    // Who enters and then writes does it here.
    let listed = lab.sh(&id, "echo $(stat -c %d:%i /real/1/ns/mnt -L)").await;
    let pid = process_in_mount_namespace(&listed);
    let script = "nsenter --target \"$1\" --mount /bin/sh -c 'echo 500 > /proc/self/oom_score_adj'";
    let entered = Command::new("sh").args(["-c", script, "sh", &pid]).status().unwrap();
    assert!(entered.success());
    assert_eq!(lab.sh(&id, "cat /proc/self/oom_score_adj").await, "500");
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// A process whose mount namespace has this number, as the kernel counts for everybody.
fn process_in_mount_namespace(namespace: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let found = processes.into_iter().find(|process| {
        let link = fs::metadata(process.path().join("ns/mnt"));
        link.is_ok_and(|it| format!("{}:{}", it.dev(), it.ino()) == namespace)
    });
    found.unwrap().file_name().into_string().unwrap()
}
