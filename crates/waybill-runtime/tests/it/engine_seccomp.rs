//! The filter that containers have by default: what it keeps from whom.

use std::fs;

use waybill_runtime::engine::{ContainerRequest, SeccompProfile, SessionFilter};
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
        run(&lab, "box", 0, seccomp).await;
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
