//! A node that is started again, while containers run.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::mount::{UnmountFlags, unmount};

use super::*;
use crate::volume::{has_memory, make_memory};

/// Clears away what is mounted for a pod.
struct Mounted(Directories);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.0.rotation(&uid()), UnmountFlags::DETACH);
    }
}

fn uid() -> PodUid {
    PodUid::parse("u").unwrap()
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        waybill_testkit::skip::skip("root", "run the tests as root");
    }
    is_root
}

impl Fixture {
    /// Another process of the node, on the same machine.
    fn restart(&mut self, directories: Option<Directories>) {
        self.csi = self.cluster.csi(self.cluster.config());
        self.csi.rotations = Rotations::new(directories);
    }

    fn directories(&self) -> Mounted {
        let state = self.cluster.dir.path().join("state");
        Mounted(Directories { logs: state.join("logs"), state })
    }
}

#[tokio::test]
async fn a_restarted_node_knows_what_containers_run_on_csi_30() {
    if !is_root() {
        return;
    }
    let acts = [answer("hunter2"), answer("hunter2"), answer("other"), answer("other")];
    let mut fixture = Fixture::new(acts).await;
    let mounted = fixture.directories();
    let pod = pod("true", "Always");
    fixture.restart(Some(mounted.0.clone()));
    fixture.start(&pod).await;
    let record = mounted.0.rotation_record(pod.uid(), "app");
    assert!(has_memory(&mounted.0.rotation(pod.uid())));
    assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&record).unwrap().contains("hunter2"));

    fixture.restart(Some(mounted.0.clone()));
    fixture.csi.resume(&pod, |_| true).await;
    assert!(!fixture.csi.rotations.is_unknown(pod.uid(), "app"));
    assert!(!fixture.refresh(&pod).await, "it runs on the same value");
    assert!(fixture.refresh(&pod).await);
    assert_eq!(fixture.csi.rotations.stale_variables(pod.uid(), "app"), ["A".to_owned()].into());
    // What changed while no node ran is noticed by the next one, too.
    fixture.restart(Some(mounted.0.clone()));
    fixture.csi.resume(&pod, |_| true).await;
    assert!(fixture.refresh(&pod).await);
}

/// Without a file system in memory nothing is written, and what is found on a disk is not believed.
#[tokio::test]
async fn hashes_are_never_on_a_disk_csi_62() {
    let mut fixture = Fixture::new([answer("one")]).await;
    let mounted = fixture.directories();
    let directory = mounted.0.rotation(&uid());
    // A file where the directory should be: nothing can be mounted there.
    fs::create_dir_all(directory.parent().unwrap()).unwrap();
    fs::write(&directory, "").unwrap();
    fixture.restart(Some(mounted.0.clone()));
    let pod = pod("true", "Always");
    fixture.start(&pod).await;
    assert!(!fixture.refresh(&pod).await);
    assert_eq!(fs::read(&directory).unwrap(), b"");

    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(mounted.0.rotation_record(&uid(), "app"), "{}").unwrap();
    assert!(fixture.csi.rotations.records.read(&uid(), "app").await.is_none());
}

/// A record that somebody spoilt is none.
#[tokio::test]
async fn a_record_that_makes_no_sense_is_no_record() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new([answer("one")]).await;
    let mounted = fixture.directories();
    make_memory(&mounted.0.rotation(&uid())).unwrap();
    for text in ["", "{}", r#"{"key": [1], "classes": {}}"#, "[]"] {
        fs::write(mounted.0.rotation_record(&uid(), "app"), text).unwrap();
        let records = Records(Some(mounted.0.clone()));
        assert!(records.read(&uid(), "app").await.is_none(), "{text}");
    }
    assert!(Path::new(&mounted.0.rotation(&uid())).exists());
}

/// A node that left no record, such as one of an older version.
#[tokio::test]
async fn without_a_record_what_is_there_now_is_compared_with() {
    let failing = Act::Fail(tonic::Code::Internal, "not yet");
    let acts = [failing, answer("one"), answer("one"), answer("two")];
    let mut fixture = Fixture::new(acts).await;
    fixture.restart(None);
    let pod = pod("true", "Always");
    fixture.csi.resume(&pod, |_| true).await;
    assert!(fixture.csi.rotations.is_unknown(pod.uid(), "app"));
    assert!(!fixture.refresh(&pod).await, "a driver that fails says nothing");
    assert!(!fixture.refresh(&pod).await, "the first answer is what is compared with");
    assert!(!fixture.refresh(&pod).await);
    assert!(fixture.refresh(&pod).await);
    assert!(fixture.csi.rotations.is_unknown(pod.uid(), "app"), "until it starts again");
    fixture.start(&pod).await;
    assert!(!fixture.csi.rotations.is_unknown(pod.uid(), "app"));
}

#[tokio::test]
async fn only_containers_that_run_and_follow_are_resumed_and_once() {
    let mut fixture = Fixture::new([answer("one")]).await;
    fixture.restart(None);
    let wants = pod("true", "Always");
    fixture.csi.resume(&wants, |_| false).await;
    assert_eq!(fixture.csi.rotations.next(), None);
    // The next containers are this node's own.
    fixture.csi.resume(&wants, |_| true).await;
    assert_eq!(fixture.csi.rotations.next(), None);
    fixture.csi.resume(&pod_of("v", "false", "Always"), |_| true).await;
    assert_eq!(fixture.csi.rotations.next(), None);
    fixture.csi.forget(wants.uid());
    fixture.csi.resume(&wants, |_| true).await;
    assert!(fixture.csi.rotations.next().is_some());
}

/// A class that is not asked again any more is let go.
#[tokio::test]
async fn a_class_without_an_interval_is_followed_no_more() {
    let mut fixture = Fixture::new([answer("one")]).await;
    fixture.cluster.set_class("vault", json!({}));
    fixture.restart(None);
    let pod = pod("true", "Always");
    fixture.csi.resume(&pod, |_| true).await;
    assert!(!fixture.refresh(&pod).await);
    assert_eq!(fixture.csi.rotations.next(), None);
}
