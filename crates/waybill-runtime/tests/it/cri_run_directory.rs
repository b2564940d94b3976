//! The run directory, where the records of everybody are: containers cannot fill it, and when it is full nothing happens
//! that cannot be recorded.

use std::{fs, io::Write, path::Path};

use tonic::Code;
use waybill_proto::cri::ExecSyncRequest;

use crate::cri_lab::{CriLab, sleeper};

fn free(path: &Path) -> u64 {
    let disk = rustix::fs::statvfs(path).unwrap();
    disk.f_bfree * disk.f_frsize
}

/// Hole: whoever may exec filled the run directory by way of `/etc/hostname`, and no pod started any more.
#[tokio::test]
async fn what_a_container_writes_to_its_names_fills_its_own_memory_only() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("full", sleeper("c")).await;
    let before = free(&lab.path("run"));
    for name in ["hostname", "hosts", "resolv.conf"] {
        let written = lab.exec(&id, &["sh", "-c", &format!("yes >>/etc/{name}")]).await;
        assert_ne!(written.exit_code, 0, "{name} is as large as it likes");
    }
    let taken = before.saturating_sub(free(&lab.path("run")));
    assert!(taken < 1 << 20, "{taken} bytes of the run directory are gone");
    let (other, id) = lab.run("other", sleeper("c")).await;
    assert_eq!(lab.exec(&id, &["true"]).await.exit_code, 0);
    lab.remove(&sandbox).await;
    lab.remove(&other).await;
    lab.close().await;
}

/// D14. Hole: on a full run directory sessions ran without a record, and after a restart of the runtime nobody was behind them.
#[tokio::test]
async fn a_session_that_cannot_be_recorded_does_not_begin() {
    let Some(lab) = CriLab::open().await else { return };
    let (sandbox, id) = lab.run("unrecorded", sleeper("c")).await;
    let run = lab.path("run");
    let size = rustix::fs::statvfs(&run).unwrap();
    let used = (size.f_blocks - size.f_bfree) * size.f_frsize;
    resize(&run, used + (1 << 20));
    let ballast = run.join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}

    let cmd = ["touch", "/ran"].map(str::to_owned).into();
    let request = ExecSyncRequest { container_id: id.clone(), cmd, timeout: 0 };
    let refused = lab.runtime().await.exec_sync(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal, "{refused}");
    let message = refused.message();
    assert!(
        message.contains("cannot be recorded, so it does not begin: no space left"),
        "{message}"
    );

    drop(file);
    fs::remove_file(ballast).unwrap();
    assert_eq!(lab.exec(&id, &["test", "-e", "/ran"]).await.exit_code, 1);
    let names = fs::read_dir(run.join("sessions")).unwrap().map(|entry| entry.unwrap().file_name());
    let half: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".new")).collect();
    assert!(half.is_empty(), "{half:?}");
    lab.remove(&sandbox).await;
    lab.close().await;
}

fn resize(tmpfs: &Path, bytes: u64) {
    let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount_remount(tmpfs, none, options.as_c_str()).unwrap();
}
