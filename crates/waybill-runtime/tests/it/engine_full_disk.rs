//! A log on a file system that is full: the container goes on, and so does its log once there is room.

use std::{fs, path::Path};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use waybill_runtime::engine::{ExitCause, State};

use crate::lab::{Lab, eventually};

const PAGES: &std::ffi::CStr = c"size=64k";

struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn at(path: &'a Path) -> Self {
        fs::create_dir(path).unwrap();
        mount("small", path, "tmpfs", MountFlags::empty(), PAGES).unwrap();
        Self(path)
    }

    fn is_full(&self) -> bool {
        rustix::fs::statvfs(self.0).unwrap().f_bfree == 0
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_on_a_full_disk_stops_no_container_and_goes_on_when_there_is_room() {
    let Some(lab) = Lab::open().await else { return };
    let logs = lab.directory.path().join("logs");
    let disk = SmallDisk::at(&logs);
    fs::write(logs.join("ballast"), [0; 32 << 10]).unwrap();
    let script = "i=0; while [ ! -e /stop ]; do i=$((i+1)); echo this is line $i; \
                  echo $i >/count; usleep 500; done; exit 7";
    let mut request = lab.container("box", &["/bin/sh", "-c", script]);
    request.stdio.log = Some(logs.join("box.log"));
    lab.engine().create("box", request).await.unwrap();
    lab.engine().start("box").await.unwrap();

    let count = || -> u64 {
        let text = fs::read_to_string(lab.rootfs.join("count")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let length = || fs::metadata(logs.join("box.log")).unwrap().len();
    eventually("the disk is full", || disk.is_full()).await;
    let (lines, bytes) = (count(), length());
    eventually("the container goes on", || count() > lines + 500).await;
    assert!(length() < bytes + (4 << 10), "what was written, and where?");
    assert!(matches!(lab.engine().state("box").unwrap(), State::Running { .. }));

    fs::remove_file(logs.join("ballast")).unwrap();
    let bytes = length();
    eventually("the log goes on", || length() > bytes + (4 << 10)).await;
    fs::write(lab.rootfs.join("stop"), "").unwrap();
    let exit = lab.engine().wait("box").await.unwrap();
    assert_eq!((exit.code, exit.cause), (7, ExitCause::Own));
    let text = fs::read_to_string(logs.join("box.log")).unwrap();
    let time = "2026-01-31T23:59:59.123456789Z".len();
    for line in text.lines() {
        // Half of an entry would stand before the time of the next one.
        let entry = line.split_once(" stdout F this is line ");
        let whole = entry
            .is_some_and(|(before, number)| before.len() == time && number.parse::<u64>().is_ok());
        assert!(whole, "{line:?}");
    }
    lab.engine().delete("box").await.unwrap();
    drop(disk);
    lab.close().await;
}
