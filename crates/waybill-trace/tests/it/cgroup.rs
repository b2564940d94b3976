//! A cgroup that is named as a session's, for programs of a test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use std::os::unix::fs::MetadataExt;

use waybill_testkit::skip::skip;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// `waybill-test-…/container/sessions/exec-1` and `…/processes` in the unified hierarchy; removed with it.
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Nothing without root.
    pub(crate) fn new() -> Option<Self> {
        let mount = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let mount = mount.into_iter().find(|it| it.join("cgroup.procs").exists());
        let root = mount.map(|mount| {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            mount.join(format!("trace-test-{}-{number}", std::process::id()))
        });
        let tree = root.map(|root| Self { root });
        let made = tree.as_ref().is_some_and(|tree| {
            let leaves = [tree.session(), tree.processes()];
            leaves.iter().all(|leaf| fs::create_dir_all(leaf).is_ok())
        });
        if !made {
            skip("root", "only root may make cgroups of the unified hierarchy");
        }
        tree.filter(|_| made)
    }

    pub(crate) fn session(&self) -> PathBuf {
        self.root.join("container/sessions/exec-1")
    }

    pub(crate) fn processes(&self) -> PathBuf {
        self.root.join("container/processes")
    }

    /// Runs a script in one of them.
    pub(crate) fn run(leaf: &Path, script: &str) -> u32 {
        let script = format!("echo $$ > {}/cgroup.procs; {script}", leaf.display());
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        pid
    }

    pub(crate) fn id(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let below = ["container/sessions/exec-1", "container/sessions", "container/processes"];
        for path in below.iter().chain(&["container", ""]) {
            let _ = fs::remove_dir(self.root.join(path));
        }
    }
}
