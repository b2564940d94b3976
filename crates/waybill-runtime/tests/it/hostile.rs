//! Attacks from the history of container runtimes, tried from inside a container by its first process and by a session. Each has a
//! control: the same program in a place where the hole is there, so that it is known to notice.
//!
//! `history.rs` beside this file says which case of the past is tried where.

use std::{fs, path::Path, process::Command};

use waybill_runtime::engine::{ContainerRequest, ProcessIo, SeccompProfile, Session, State};
use waybill_testkit::{hostile::hostile, skip::skip};

use crate::lab::{Lab, exec, hierarchies, with_ptrace};

/// What nodes have masked and read-only.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// A lab whose containers find the attacks at `/bin/hostile`.
async fn open() -> Option<Lab> {
    let lab = Lab::open().await?;
    fs::copy(hostile(), lab.rootfs.join("bin/hostile")).unwrap();
    Some(lab)
}

/// A container as a node would have it made.
fn usual(lab: &Lab, id: &str, arguments: &[&str]) -> ContainerRequest {
    with_paths(lab.container(id, arguments), &MASKED, &READ_ONLY)
}

/// With nothing hidden and nothing read-only, as by a runtime that forgot it.
fn exposed(lab: &Lab, id: &str, arguments: &[&str]) -> ContainerRequest {
    with_paths(lab.container(id, arguments), &[], &[])
}

fn with_paths(
    mut request: ContainerRequest,
    masked: &[&str],
    read_only: &[&str],
) -> ContainerRequest {
    let owned = |paths: &[&str]| Some(paths.iter().map(ToString::to_string).collect());
    let mut linux = request.spec.linux().clone().unwrap();
    linux.set_masked_paths(owned(masked)).set_readonly_paths(owned(read_only));
    request.spec.set_linux(Some(linux));
    request
}

type Container = fn(&Lab, &str, &[&str]) -> ContainerRequest;

/// What the attack said and how it ended, as a first process and as a session.
async fn attempt(lab: &Lab, container: Container, attack: &[&str]) -> [(String, i32); 2] {
    lab.engine().create("first", container(lab, "first", attack)).await.unwrap();
    lab.engine().start("first").await.unwrap();
    let first = lab.engine().wait("first").await.unwrap();
    lab.engine().delete("first").await.unwrap();
    let said = lab.logged("first").join("\n");
    fs::remove_file(lab.log("first")).unwrap();
    lab.engine().create("box", container(lab, "box", &["/bin/sleep", "1000"])).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let (text, exit) = lab.exec("box", exec(attack)).await;
    lab.kill_and_delete("box").await;
    [(said, first.code), (text, exit.code)]
}

/// The attack is stopped in a container of the one kind, and works in one of the other.
async fn check(lab: &Lab, attack: &[&str], container: Container, control: Container) {
    for (said, code) in attempt(lab, container, attack).await {
        assert_eq!(code, 1, "{attack:?}: {said}");
    }
    for (said, code) in attempt(lab, control, attack).await {
        assert_eq!(code, 0, "{attack:?} would not notice: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_that_moves_the_whole_machine_can_be_written() {
    let Some(lab) = open().await else { return };
    check(&lab, &["/bin/hostile", "levers"], usual, exposed).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_keeps_to_itself_is_hidden() {
    let Some(lab) = open().await else { return };
    check(&lab, &["/bin/hostile", "hidden"], usual, exposed).await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_ours_is_left_open_to_a_program() {
    let Some(lab) = open().await else { return };
    for (said, code) in attempt(&lab, usual, &["/bin/hostile", "descriptors"]).await {
        assert_eq!(code, 1, "{said}");
    }
    let leaking = ["/bin/sh", "-c", "exec 9</; exec /bin/hostile descriptors"];
    for (said, code) in attempt(&lab, usual, &leaking).await {
        assert_eq!((code, said.contains("9 is /")), (0, true), "{said}");
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_starts_in_a_directory_of_its_container() {
    let Some(lab) = open().await else { return };
    for (said, code) in attempt(&lab, usual, &["/bin/hostile", "outer-directory"]).await {
        assert_eq!(code, 1, "{said}");
    }
    lab.run("box").await;
    let State::Running { pid, .. } = lab.engine().state("box").unwrap() else { panic!() };
    let outside = lab.directory.path().display();
    let script = format!("nsenter -t {pid} --mount --wd={outside} /bin/hostile outer-directory");
    let control = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(control.status.code(), Some(0), "{control:?}");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// CVE-2022-0492 and before: the kernel runs the program that stands in `release_agent`, outside of every container.
#[tokio::test(flavor = "multi_thread")]
async fn no_release_agent_can_be_written() {
    let Some(lab) = open().await else { return };
    for container in [usual as Container, exposed] {
        for (said, code) in attempt(&lab, container, &["/bin/hostile", "release-agent"]).await {
            assert_eq!(code, 1, "{said}");
        }
    }
    // The machine itself may, where it has a hierarchy with such a file.
    if hierarchies().iter().any(|root| root.join("release_agent").exists()) {
        let control = Command::new(hostile()).arg("release-agent").output().unwrap();
        assert_eq!(control.status.code(), Some(0), "{control:?}");
    }
    lab.close().await;
}

/// Whose user sees of keyrings only what its own processes possess.
fn with_keys(lab: &Lab, id: &str, arguments: &[&str]) -> ContainerRequest {
    let mut request = exposed(lab, id, arguments);
    let mut process = request.spec.process().clone().unwrap();
    let user = oci_spec::runtime::UserBuilder::default().uid(1000_u32).gid(1000_u32).build();
    process.set_user(user.unwrap());
    request.spec.set_process(Some(process));
    ContainerRequest { seccomp: SeccompProfile::Unconfined, ..request }
}

/// Keys that the runtime has in its session keyring were there for all containers, and theirs for one another.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_share_a_session_keyring() {
    let Some(lab) = open().await else { return };
    if !Path::new("/proc/keys").exists() {
        skip("keys", "a kernel with CONFIG_KEYS");
        return lab.close().await;
    }
    // The second look is the control: descendants do share it.
    let look = ["/bin/sh", "-c", "/bin/hostile keyring; /bin/hostile keyring"];
    let mut seen = Vec::new();
    for (said, code) in attempt(&lab, with_keys, &look).await {
        assert_eq!(code, 0, "{said}");
        let mut ids: Vec<String> = said
            .lines()
            .filter_map(|line| line.split(' ').next_back())
            .map(str::to_owned)
            .collect();
        assert_eq!(ids.len(), 2, "{said}");
        assert_eq!(ids[0], ids[1], "{said}");
        seen.extend(ids.pop());
    }
    assert_ne!(seen[0], seen[1]);
    lab.close().await;
}

/// Sessions until the spy has seen one, or so many.
#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the test")]
async fn be_spied_on(lab: &Lab, most: usize) -> (String, i32) {
    let spy = ["/bin/hostile", "spy", "/bin/busybox", "/bin/hostile"];
    let request = waybill_runtime::engine::ExecRequest { stdin: true, ..exec(&spy) };
    let Session { io, process } = lab.engine().exec("box", request).await.unwrap();
    let ProcessIo::Pipes { stdin, stdout, stderr } = io else {
        panic!("no terminal was asked for")
    };
    let watch = tokio::spawn(async move { process.wait().await.unwrap() });
    for _ in 0..most {
        if watch.is_finished() {
            break;
        }
        let (text, exit) = lab.exec("box", exec(&["/bin/true"])).await;
        assert_eq!(exit.code, 0, "{text}");
    }
    drop(stdin);
    let exit = watch.await.unwrap();
    let text = tokio::task::spawn_blocking(move || {
        let read = |fd| std::io::read_to_string(fs::File::from(fd)).unwrap_or_default();
        stdout.into_iter().chain(stderr).map(read).collect::<String>()
    });
    (text.await.unwrap(), exit.code)
}

/// CVE-2016-9962: who enters a container could be looked at, and stopped, before it was one of the container's own.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_enter_are_not_seen_before_they_are_inside() {
    let Some(lab) = open().await else { return };
    lab.engine().create("box", usual(&lab, "box", &["/bin/sleep", "1000"])).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let (text, code) = be_spied_on(&lab, 100).await;
    assert_eq!(code, 1, "{text}");
    lab.kill_and_delete("box").await;
    // Who may debug everything sees them.
    let request = with_ptrace(usual(&lab, "box", &["/bin/sleep", "1000"]));
    lab.engine().create("box", request).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let (text, code) = be_spied_on(&lab, 5000).await;
    assert_eq!(code, 0, "{text}");
    lab.kill_and_delete("box").await;
    lab.close().await;
}
