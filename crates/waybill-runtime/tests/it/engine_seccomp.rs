//! The filter that containers have by default: what it keeps from whom.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use waybill_runtime::engine::{ContainerRequest, EngineError, SeccompProfile, SessionFilter};
use waybill_testkit::hostile::hostile;

use crate::lab::{Lab, exec};

/// A lab whose containers find the attacks at `/bin/hostile`.
async fn open() -> Option<Lab> {
    let lab = Lab::open().await?;
    fs::copy(hostile(), lab.rootfs.join("bin/hostile")).unwrap();
    Some(lab)
}

/// A container that can gain privileges, so that its filter has to be there before they are dropped.
fn container(lab: &Lab, id: &str, uid: u32, seccomp: SeccompProfile) -> ContainerRequest {
    let mut request = lab.container(id, &["/bin/sleep", "1000"]);
    let mut process = request.spec.process().clone().unwrap();
    process.set_no_new_privileges(Some(false));
    let user = oci_spec::runtime::UserBuilder::default().uid(uid).gid(uid).build().unwrap();
    process.set_user(user);
    request.spec.set_process(Some(process));
    ContainerRequest { seccomp, ..request }
}

async fn run(lab: &Lab, id: &str, uid: u32, seccomp: SeccompProfile) {
    lab.engine().create(id, container(lab, id, uid, seccomp)).await.unwrap();
    lab.engine().start(id).await.unwrap();
}

/// Issue: in a user namespace a process has all rights over new namespaces, and with them over mounts and cgroups.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_first_processes_cannot_make_a_user_namespace() {
    let Some(lab) = open().await else { return };
    for uid in [0, 1000] {
        run(&lab, "box", uid, SeccompProfile::RuntimeDefault).await;
        let (text, exit) = lab.exec("box", exec(&["/bin/hostile", "user-namespace"])).await;
        assert_eq!(exit.code, 1, "{text}");
        lab.kill_and_delete("box").await;
        // Whether it would have worked.
        run(&lab, "control", uid, SeccompProfile::Unconfined).await;
        let (text, exit) = lab.exec("control", exec(&["/bin/hostile", "user-namespace"])).await;
        assert_eq!(exit.code, 0, "{text}");
        lab.kill_and_delete("control").await;
        let attack = ContainerRequest {
            spec: lab.spec("first", &["/bin/hostile", "user-namespace"]),
            ..lab.container("first", &[])
        };
        lab.engine().create("first", attack).await.unwrap();
        lab.engine().start("first").await.unwrap();
        assert_eq!(lab.engine().wait("first").await.unwrap().code, 1);
        lab.engine().delete("first").await.unwrap();
    }
    lab.close().await;
}

/// Issue: what was injected into the process of another's session ran under their name.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_cannot_lay_hands_on_the_process_of_another() {
    let Some(lab) = open().await else { return };
    // Yama stops it too, where it is on; then this machine has no control.
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let stopped_anyway = yama.trim().parse::<u32>().is_ok_and(|scope| scope > 0);
    let expected = [
        (SeccompProfile::RuntimeDefault, 1),
        (SeccompProfile::Unconfined, i32::from(stopped_anyway)),
    ];
    for (seccomp, code) in expected {
        run(&lab, "box", 0, seccomp.clone()).await;
        let victim = lab.engine().exec("box", exec(&["/bin/sleep", "1000"])).await.unwrap();
        let records =
            lab.engine().sessions(&SessionFilter { running: true, ..SessionFilter::default() });
        let [record] = &records[..] else { panic!("{records:?}") };
        let status = fs::read_to_string(format!("/proc/{}/status", record.pid)).unwrap();
        let pids = status.lines().find(|line| line.starts_with("NSpid:")).unwrap();
        let inside = pids.split_whitespace().last().unwrap();
        for attack in ["write-memory", "ptrace"] {
            let (text, exit) = lab.exec("box", exec(&["/bin/hostile", attack, inside])).await;
            assert_eq!(exit.code, code, "{seccomp:?} {attack}: {text}");
        }
        drop(victim);
        lab.kill_and_delete("box").await;
    }
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_is_that_of_the_container_and_not_of_its_monitor() {
    let Some(lab) = Lab::open().await else { return };
    let mode = |pid: String| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Seccomp:")).unwrap().trim().to_owned()
    };
    let outside = mode("self".to_owned());
    run(&lab, "box", 1000, SeccompProfile::RuntimeDefault).await;
    let (text, _) = lab.sh("box", "grep -h Seccomp: /proc/1/status /proc/self/status").await;
    assert_eq!(text, "Seccomp:\t2\nSeccomp:\t2\n");
    assert_eq!(mode(lab.monitor("box").to_string()), outside);
    lab.kill_and_delete("box").await;
    lab.close().await;
}

/// Writes a profile where the lab is, and names it.
fn local(lab: &Lab, profile: &Value) -> SeccompProfile {
    let path: PathBuf = lab.directory.path().join("profile.json");
    fs::write(&path, profile.to_string()).unwrap();
    SeccompProfile::Localhost(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_of_the_machine_holds_for_first_processes_and_sessions() {
    let Some(lab) = Lab::open().await else { return };
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSPC },
        ],
    });
    for can_gain_privileges in [true, false] {
        let profile = local(&lab, &profile);
        let mut request = container(&lab, "box", 1000, profile);
        let mut process = request.spec.process().clone().unwrap();
        process.set_no_new_privileges(Some(!can_gain_privileges));
        process.set_args(Some(
            ["/bin/sh", "-c", "mkdir /tmp/first; exec sleep 1000"].map(str::to_owned).into(),
        ));
        request.spec.set_process(Some(process));
        lab.engine().create("box", request).await.unwrap();
        lab.engine().start("box").await.unwrap();
        let (text, exit) = lab.sh("box", "mkdir /tmp/second").await;
        assert_eq!(exit.code, 1, "{text}");
        assert!(text.contains("No space left on device"), "{text}");
        lab.kill_and_delete("box").await;
        let logged = lab.logged("box").join("\n");
        assert!(logged.contains("No space left on device"), "{logged}");
        fs::remove_file(lab.log("box")).unwrap();
    }
    lab.close().await;
}

/// What we do ourselves before the program is executed is nothing that a profile has to allow.
#[tokio::test(flavor = "multi_thread")]
async fn a_profile_needs_to_allow_what_the_program_calls_and_no_more() {
    let Some(lab) = Lab::open().await else { return };
    let names = [
        "execve",
        "brk",
        "arch_prctl",
        "set_tid_address",
        "set_robust_list",
        "rseq",
        "prlimit64",
        "readlink",
        "readlinkat",
        "getrandom",
        "mprotect",
        "mmap",
        "getuid",
        "exit_group",
    ];
    let profile = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [{ "names": names, "action": "SCMP_ACT_ALLOW" }],
    });
    let request = |id: &str| ContainerRequest {
        seccomp: local(&lab, &profile),
        ..lab.container(id, &["/bin/true"])
    };
    lab.engine().create("first", request("first")).await.unwrap();
    lab.engine().start("first").await.unwrap();
    assert_eq!(lab.engine().wait("first").await.unwrap().code, 0);
    lab.engine().delete("first").await.unwrap();
    let mut names = names.to_vec();
    names.extend(["nanosleep", "clock_nanosleep"]);
    let profile = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [{ "names": names, "action": "SCMP_ACT_ALLOW" }],
    });
    let sleeper = ContainerRequest {
        seccomp: local(&lab, &profile),
        ..lab.container("box", &["/bin/sleep", "1000"])
    };
    lab.engine().create("box", sleeper).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let (text, exit) = lab.exec("box", exec(&["/bin/true"])).await;
    assert_eq!(exit.code, 0, "{text}");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_a_wrong_profile_is_not_made() {
    let Some(lab) = Lab::open().await else { return };
    let wrong = [
        json!({ "defaultAction": "SCMP_ACT_NOTIFY" }),
        json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscals": [] }),
        json!("no profile"),
    ];
    for profile in &wrong {
        let request = container(&lab, "box", 0, local(&lab, profile));
        let refused = lab.engine().create("box", request).await;
        assert!(matches!(refused, Err(EngineError::SeccompFile { .. })), "{profile}: {refused:?}");
    }
    let missing = SeccompProfile::Localhost(lab.directory.path().join("none.json"));
    let refused = lab.engine().create("box", container(&lab, "box", 0, missing)).await.unwrap_err();
    let said = waybill_core::chain::Chain(&refused).to_string();
    assert!(said.contains("none.json") && said.contains("No such file"), "{said}");
    lab.close().await;
}
