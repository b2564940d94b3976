//! Programs left in files that the client and the runtime give a container to write: they are not run, neither by the container's
//! first process nor by a session. The control is the same attack on a volume, in which programs of every kind are fine, as upstream.

use std::{fs, path::Path};

use waybill_proto::cri::{ContainerConfig, Mount};
use waybill_testkit::hostile::hostile;

use crate::cri_lab::{CriLab, container, sleeper};

const LAST_WORDS: &str = "/dev/termination-log";
/// What the container may write, and whether programs in it may be run.
const FILES: [(&str, bool); 7] = [
    (LAST_WORDS, false),
    ("/etc/hostname", false),
    ("/etc/hosts", false),
    ("/etc/resolv.conf", false),
    ("/dev/shm/file", false),
    ("/data/file", true),
    ("/tmp/file", true),
];

fn bound(host: &Path, inside: &str) -> Mount {
    Mount {
        host_path: host.display().to_string(),
        container_path: inside.into(),
        ..Mount::default()
    }
}

/// With what kubelets add to every container, an `emptyDir`, and the attacks.
fn with_mounts(lab: &CriLab, config: ContainerConfig) -> ContainerConfig {
    let (words, hosts, data) = (lab.path("words"), lab.path("hosts"), lab.path("data"));
    for file in [&words, &hosts] {
        fs::write(file, "").unwrap();
    }
    fs::create_dir_all(&data).unwrap();
    let annotation = "io.kubernetes.container.terminationMessagePath";
    ContainerConfig {
        annotations: [(annotation.to_owned(), LAST_WORDS.to_owned())].into(),
        mounts: vec![
            Mount { readonly: true, ..bound(hostile(), "/bin/hostile") },
            bound(&words, LAST_WORDS),
            bound(&hosts, "/etc/hosts"),
            bound(&data, "/data"),
        ],
        ..config
    }
}

#[tokio::test]
async fn no_program_is_run_from_a_file_that_every_container_has() {
    let Some(lab) = CriLab::open().await else { return };
    let sandbox = lab.run_sandbox(lab.sandbox_config("files")).await;
    let sessions = lab.create(&sandbox, with_mounts(&lab, sleeper("sessions"))).await;
    lab.start_container(&sessions).await;
    for (number, (path, works)) in FILES.into_iter().enumerate() {
        let attack = ["/bin/hostile", "planted", path];
        let expected = i32::from(!works);
        let config = container(&format!("first-{number}"), &attack);
        let first = lab.create(&sandbox, with_mounts(&lab, config)).await;
        lab.start_container(&first).await;
        assert_eq!(lab.ended(&first).await.exit_code, expected, "first process: {path}");
        let session = lab.exec(&sessions, &attack).await;
        let said = String::from_utf8_lossy(&session.stderr).into_owned();
        assert_eq!(session.exit_code, expected, "session: {path}: {said}");
        // Written it was: what stopped the attack is that nothing is run from there.
        assert!(works || said.contains(&format!("run {path}: Permission denied")), "{said}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}

/// Such a volume comes when libcontainer is done, and what lies below it with it.
#[tokio::test]
async fn last_words_below_a_volume_at_dev_hold_no_programs() {
    let Some(lab) = CriLab::open().await else { return };
    let dev = lab.path("dev");
    fs::create_dir(&dev).unwrap();
    fs::write(dev.join("termination-log"), "").unwrap();
    let mut config = with_mounts(&lab, sleeper("c"));
    config.mounts.push(bound(&dev, "/dev"));
    let (sandbox, id) = lab.run("late", config).await;
    let options = |inside: &str| format!("grep ' {inside} ' /proc/self/mountinfo");
    let late = lab.sh(&id, &options(LAST_WORDS)).await;
    assert!(["nosuid", "nodev", "noexec"].iter().all(|it| late.contains(it)), "{late}");
    let volume = lab.sh(&id, &options("/data")).await;
    assert!(!volume.contains("noexec"), "{volume}");
    lab.remove(&sandbox).await;
    lab.close().await;
}
