//! Where a volume is mounted inside another one, whose content a neighbour changes meanwhile (class of
//! CVE-2021-30465).

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use waybill_proto::cri::{
    ContainerConfig, CreateContainerRequest, LinuxContainerSecurityContext, Mount,
    RemoveContainerRequest, StartContainerRequest,
};

use crate::cri_lab::{CriLab, container, with_context};

/// How often a container is made while links are swapped; the swaps are some thousands then.
const ROUNDS: usize = 15;

/// A shared volume at `/shared`, and another one at `/shared/dir/sub`.
fn config(shared: &Path, inner: &Path, name: &str) -> ContainerConfig {
    let mount = |outside: &Path, inside: &str| Mount {
        container_path: inside.into(),
        host_path: outside.display().to_string(),
        ..Mount::default()
    };
    ContainerConfig {
        mounts: vec![mount(shared, "/shared"), mount(inner, "/shared/dir/sub")],
        ..container(name, &["cat", "/shared/dir/sub/mark"])
    }
}

/// Makes a container and runs it to its end; returns its exit code, if it could be made.
async fn attempt(lab: &CriLab, sandbox: &str, config: ContainerConfig) -> Option<i32> {
    let mut runtime = lab.runtime().await;
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(config),
        sandbox_config: None,
    };
    let id = runtime.create_container(request).await.ok()?.into_inner().container_id;
    let start = StartContainerRequest { container_id: id.clone() };
    let code = match runtime.start_container(start).await {
        Ok(_) => Some(lab.ended(&id).await.exit_code),
        Err(_) => None,
    };
    runtime.remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    code
}

#[tokio::test]
async fn links_swapped_into_a_mount_target_do_not_lead_out() {
    let Some(lab) = CriLab::open().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (shared, inner, outside) = (place("shared"), place("inner"), place("outside"));
    for made in [&shared.join("dir"), &inner, &outside] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(inner.join("mark"), "inner").unwrap();
    let untouched = || fs::read_dir(&outside).unwrap().count() == 0;
    let sandbox = lab.run_sandbox(lab.sandbox_config("race")).await;

    let plain = attempt(&lab, &sandbox, config(&shared, &inner, "plain")).await;
    assert_eq!(plain, Some(0), "without a swap the one is mounted in the other");

    // A link that leads out of the root, whoever follows it on the host.
    let (dir, evil) = (shared.join("dir"), shared.join("evil"));
    symlink(&outside, &evil).unwrap();
    let swap = move || renameat_with(CWD, &dir, CWD, &evil, RenameFlags::EXCHANGE);
    swap().unwrap();
    attempt(&lab, &sandbox, config(&shared, &inner, "link")).await;
    assert!(untouched(), "a link that stays there is not followed out");

    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let racer = thread::spawn(move || {
        let mut swaps = 0;
        // A test that failed has taken its directories away.
        while !told.load(Ordering::Relaxed) && swap().is_ok() {
            swaps += 1;
        }
        swaps
    });
    for round in 0..ROUNDS {
        attempt(&lab, &sandbox, config(&shared, &inner, &format!("race-{round}"))).await;
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = racer.join().unwrap();
    assert!(swaps > ROUNDS, "only {swaps} swaps");
    assert!(untouched(), "something was made outside");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let outside = outside.display().to_string();
    assert!(!mounts.contains(&outside), "something is mounted outside");
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// CVE-2025-31133 and CVE-2025-52565: a path is hidden by mounting the null device on it, and a terminal is mounted on
/// `/dev/console`. Where those are links of somebody's making, files of the machine are mounted instead, or mounted on.
#[tokio::test]
async fn links_in_dev_lead_no_mask_and_no_console_elsewhere() {
    let Some(lab) = CriLab::open().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let sandbox = lab.run_sandbox(lab.sandbox_config("links")).await;
    // Ends with 0 if what is hidden is the null device, and what is read-only cannot be opened for writing. Writes nothing.
    let look = "test \"$(stat -c %t:%T /proc/keys)\" = 1:3 || exit 7; \
                if true >> /proc/sys/kernel/core_pattern; then exit 8; fi; exit 0";
    let lever = "/proc/sys/kernel/core_pattern";
    for (number, (links, tty, expected)) in [
        // The controls: an empty volume there is no obstacle, and what is not hidden is noticed.
        (vec![], false, &[Some(0)][..]),
        (vec![], true, &[Some(0)]),
        (vec!["unmasked"], false, &[Some(7)]),
        (vec!["null"], false, &[None, Some(0)]),
        (vec!["console"], true, &[None, Some(0)]),
        (vec!["ptmx", "pts"], true, &[None, Some(0)]),
        (vec!["null", "console", "ptmx", "tty", "zero", "full"], true, &[None, Some(0)]),
    ]
    .into_iter()
    .enumerate()
    {
        let volume = directory.path().join(number.to_string());
        fs::create_dir(&volume).unwrap();
        for link in &links {
            symlink(lever, volume.join(link)).unwrap();
        }
        let mount = Mount {
            container_path: "/dev".into(),
            host_path: volume.display().to_string(),
            ..Mount::default()
        };
        let masked = if links.contains(&"unmasked") { vec![] } else { vec!["/proc/keys".into()] };
        let context = LinuxContainerSecurityContext {
            masked_paths: masked,
            readonly_paths: vec!["/proc/sys".into()],
            ..LinuxContainerSecurityContext::default()
        };
        let config = ContainerConfig {
            tty,
            mounts: vec![mount],
            ..with_context(container(&format!("c{number}"), &["sh", "-c", look]), context)
        };
        let before = fs::read(lever).unwrap();
        let found = attempt(&lab, &sandbox, config).await;
        assert!(expected.contains(&found), "{links:?}: {found:?}");
        assert_eq!(fs::read(lever).unwrap(), before);
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// The runtime refuses volumes below `/proc`, and a link in another volume of the pod led one there all the same.
#[tokio::test]
async fn a_link_in_a_volume_leads_no_other_volume_into_proc() {
    let Some(lab) = CriLab::open().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let (outer, inner) = (directory.path().join("outer"), directory.path().join("inner"));
    for made in [&outer.join("plain"), &inner] {
        fs::create_dir_all(made).unwrap();
    }
    for (name, target) in [("own", "/proc/self"), ("proc", "/proc"), ("sys", "../proc/sys")] {
        symlink(target, outer.join(name)).unwrap();
    }
    let sandbox = lab.run_sandbox(lab.sandbox_config("proc")).await;
    let mount = |outside: &Path, inside: &str| Mount {
        container_path: inside.into(),
        host_path: outside.display().to_string(),
        ..Mount::default()
    };
    for (number, (at, below, code)) in [
        ("/a", "/a/plain", Some(0)),
        ("/dev", "/dev/plain", Some(0)),
        ("/a", "/a/own/attr", None),
        ("/a", "/a/proc", None),
        ("/a", "/a/sys", None),
        ("/dev", "/dev/sys", None),
        ("/dev", "/dev/proc", None),
    ]
    .into_iter()
    .enumerate()
    {
        let config = ContainerConfig {
            mounts: vec![mount(&outer, at), mount(&inner, below)],
            ..container(&format!("c{number}"), &["true"])
        };
        assert_eq!(attempt(&lab, &sandbox, config).await, code, "{below}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}
