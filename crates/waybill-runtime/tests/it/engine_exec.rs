//! Exec sessions: exactly what the container is, plus variables, in a cgroup of their own.

use std::fs;

use waybill_runtime::engine::{EngineError, SessionFilter};

use crate::lab::{Lab, exec, variables};

/// EXEC-02, EXEC-04, EXEC-05, EXEC-06, EXEC-07, EXEC-08, EXEC-09
#[tokio::test(flavor = "multi_thread")]
async fn variables_of_a_session_go_over_those_of_the_container() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let baseline = "PATH=/bin\nBASE=line\nOVER=container\nHOME=/root\n";
    assert_eq!(lab.exec("box", exec(&["/bin/env"])).await.0, baseline);
    let mut request = exec(&["env"]);
    request.env = variables(&[("OVER", "1"), ("OVER", "caller"), ("EMPTY", ""), ("MINE", "no")]);
    request.runtime_env = variables(&[("MINE", "runtime")]);
    let (text, exit) = lab.exec("box", request).await;
    assert_eq!(text, "PATH=/bin\nBASE=line\nOVER=caller\nEMPTY=\nMINE=runtime\nHOME=/root\n");
    assert_eq!(exit.code, 0);
    assert_eq!(lab.exec("box", exec(&["/bin/env"])).await.0, baseline);
    assert_eq!(lab.sh("box", "tr '\\0' '\\n' </proc/1/environ").await.0, baseline);
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_what_the_first_process_is() {
    let Some(lab) = Lab::open().await else { return };
    let mut request = lab.container("box", &["/bin/sleep", "1000"]);
    let mut process = request.spec.process().clone().unwrap();
    let user = oci_spec::runtime::UserBuilder::default()
        .uid(1000_u32)
        .gid(1000_u32)
        .additional_gids(vec![7_u32, 8])
        .umask(0o027_u32)
        .build()
        .unwrap();
    process.set_user(user);
    process.set_cwd("/home/web".into());
    process.set_oom_score_adj(Some(500));
    let limit = oci_spec::runtime::PosixRlimitBuilder::default()
        .typ(oci_spec::runtime::PosixRlimitType::RlimitNofile)
        .soft(100_u64)
        .hard(200_u64)
        .build()
        .unwrap();
    process.set_rlimits(Some(vec![limit]));
    request.spec.set_process(Some(process));
    lab.engine().create("box", request).await.unwrap();
    lab.engine().start("box").await.unwrap();
    let look = "for at in 1 self; do grep -E 'Uid|Gid|Groups|Cap|NoNewPrivs|Umask|Seccomp' \
                /proc/$at/status; cat /proc/$at/oom_score_adj; grep 'open files' /proc/$at/limits; \
                for ns in cgroup ipc mnt net pid uts user; do readlink /proc/$at/ns/$ns; done; echo ==; done";
    // What is not our own is not readable for this user, so the first process is read from outside.
    let (own, exit) = lab.sh("box", &look.replace("1 self", "self")).await;
    assert_eq!(exit.code, 0, "{own}");
    let waybill_runtime::engine::State::Running { pid, .. } = lab.engine().state("box").unwrap()
    else {
        panic!()
    };
    let outside = std::process::Command::new("sh")
        .args(["-c", &look.replace("1 self", &pid.to_string())])
        .output()
        .unwrap();
    assert_eq!(own, String::from_utf8(outside.stdout).unwrap());
    assert!(own.contains("Groups:\t7 8"), "{own}");
    assert_eq!(lab.sh("box", "pwd; umask; echo x >/dev/stderr").await.0, "/home/web\n0027\nx\n");
    lab.kill_and_delete("box").await;
    lab.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_said_and_leaves_no_session() {
    let Some(lab) = Lab::open().await else { return };
    lab.run("box").await;
    let fault = async |arguments: &[&str]| match lab.engine().exec("box", exec(arguments)).await {
        Err(EngineError::Exec(fault)) => (fault.code, fault.message),
        other => panic!("{other:?}"),
    };
    let (code, message) = fault(&["nope"]).await;
    assert_eq!(
        (code, message.as_str()),
        (127, "exec: \"nope\": executable file not found in $PATH")
    );
    let (code, message) = fault(&["/bin/nope"]).await;
    assert_eq!((code, message.as_str()), (127, "exec: \"/bin/nope\": no such file or directory"));
    let (code, message) = fault(&["/etc/plain"]).await;
    assert_eq!((code, message.as_str()), (126, "exec: \"/etc/plain\": permission denied"));
    assert!(lab.engine().sessions(&SessionFilter::default()).is_empty());
    assert_eq!(fs::read_dir(lab.run_dir().join("sessions")).unwrap().count(), 0);
    lab.kill_and_delete("box").await;
    lab.close().await;
}
