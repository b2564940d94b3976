//! `waybill image` against `waybill runtime`.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use waybill_runtime::image::build::ImageBuilder;
use waybill_testkit::disk::SmallDisk;

use crate::run::{Dir, Ran};

/// A runtime with directories of its own. Stopped, and its tmpfs unmounted, on drop.
pub(crate) struct Runtime {
    pub(crate) directory: Dir,
    child: Child,
}

impl Runtime {
    /// `None`, with a word on standard error, if this machine cannot run one.
    pub(crate) fn start() -> Option<Self> {
        if !is_root() {
            eprintln!("SKIPPED: only root may run a container runtime");
            return None;
        }
        let directory = Dir::new();
        let state = directory.path("state");
        Some(Self::start_in(directory, &state))
    }

    /// With its state in `state` and the rest in `directory`.
    fn start_in(directory: Dir, state: &Path) -> Self {
        let socket = format!("unix://{}", directory.path("socket").display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_waybill"))
            .args(["runtime", "--listen", &socket, "--state-dir"])
            .arg(state)
            .arg("--run-dir")
            .arg(directory.path("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("stdout is piped");
        BufReader::new(output).read_line(&mut line).expect("the runtime says that it serves");
        assert_eq!(line, format!("serving on {socket}\n"));
        Self { directory, child }
    }

    fn image(&self, arguments: &[&str]) -> Ran {
        self.image_with_input(arguments, b"")
    }

    pub(crate) fn image_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let socket = self.directory.path("socket");
        let all = [&["image", "--runtime", socket.to_str().expect("UTF-8")], arguments].concat();
        self.directory.run_with_input(&all, input)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = Command::new("umount").arg(self.directory.path("run")).status();
    }
}

pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("proc is mounted");
    status.lines().any(|line| line.starts_with("Uid:\t0\t0"))
}

fn archive(name: &str, content: &str) -> Vec<u8> {
    ImageBuilder::new().file("/tool", 0o755, content).archive(name).expect("a good name")
}

fn text(ran: &Ran) -> String {
    assert_eq!(ran.code, 0, "{ran:?}");
    String::from_utf8(ran.stdout.clone()).expect("UTF-8")
}

#[test]
fn an_image_comes_is_listed_leaves_and_comes_back() {
    let Some(runtime) = Runtime::start() else { return };
    fs::write(runtime.directory.path("tool.tar"), archive("tool:1", "one")).expect("writable");
    let imported = text(&runtime.image(&["import", "tool.tar"]));
    let (id, names) = imported.trim().split_once(' ').expect("an id and names");
    assert_eq!(names, "docker.io/library/tool:1");
    let input = archive("tool:1", "two");
    text(&runtime.image_with_input(&["import", "-", "--name", "localhost:5000/other"], &input));
    let table = text(&runtime.image(&["ls"]));
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["IMAGE", "TAG", "IMAGE", "ID", "SIZE"]);
    assert_eq!(lines[1][..3], ["docker.io/library/tool", "1", &id[7..20]]);
    assert_eq!(lines[2][..2], ["localhost:5000/other", "latest"]);
    let list = text(&runtime.image(&["ls", "tool:1", "-o", "json"]));
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    assert_eq!(list["images"][0]["id"], id);
    assert_eq!(list["images"][1], serde_json::Value::Null);
    assert_eq!(text(&runtime.image(&["export", id, "--output", "copy.tar"])), "");
    runtime.image(&["rm", "tool:1"]).succeeds("tool:1\n");
    runtime.image(&["ls", "tool:1"]).fails("error: there is no image `tool:1`\n");
    assert_eq!(text(&runtime.image(&["import", "copy.tar"])), imported);
    // A directory is as good as an archive.
    let layout = runtime.directory.path("layout");
    fs::create_dir(&layout).expect("writable");
    let mut untar = Command::new("tar");
    untar.arg("-xf").arg(runtime.directory.path("copy.tar")).arg("-C").arg(&layout);
    assert!(untar.status().expect("tar starts").success());
    assert_eq!(text(&runtime.image(&["import", "layout"])), imported);
}

/// The hole: who wanted to make room could not, for want of room.
#[test]
fn an_image_can_be_removed_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(16) else { return };
    let runtime = Runtime::start_in(Dir::new(), &disk.path().join("state"));
    for name in ["tool:1", "other:1"] {
        text(&runtime.image_with_input(&["import", "-"], &archive(name, &name.repeat(50_000))));
    }
    disk.fill();
    let refused = runtime.image_with_input(&["import", "-"], &archive("third:1", "three"));
    assert_eq!(refused.code, 1, "the disk is full: {refused:?}");
    runtime.image(&["rm", "tool:1"]).succeeds("tool:1\n");
    runtime.image(&["rm", "other:1"]).succeeds("other:1\n");
    text(&runtime.image_with_input(&["import", "-"], &archive("third:1", "three")));
    drop(runtime);
}

#[test]
fn what_goes_wrong_is_said() {
    let Some(runtime) = Runtime::start() else { return };
    let check = |ran: &Ran, expected: &str| {
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(expected), "{ran:?}");
    };
    check(&runtime.image(&["import", "nowhere.tar"]), "cannot read nowhere.tar: No such file");
    check(&runtime.image(&["import", "."]), "no OCI image layout");
    check(&runtime.image_with_input(&["import", "-"], b"text"), "the tar archive is broken");
    let cut = &archive("a", "one")[..3000];
    check(&runtime.image_with_input(&["import", "-"], cut), "the tar archive is broken");
    check(&runtime.image(&["export", "none", "-o", "x"]), "there is no image `none`");
    assert!(!runtime.directory.path("x").exists() && !runtime.directory.path("x.partial").exists());
    check(&runtime.image(&["rm", "none"]), "none: there is no image `none`");
    check(&runtime.image(&["pull", "127.0.0.1:1/a"]), "cannot pull 127.0.0.1:1/a:latest from");
    let pull = ["pull", "--username", "me", "--password-stdin", "127.0.0.1:1/a"];
    check(&runtime.image(&pull), "there is no password on standard input");
    let ran = runtime.image_with_input(&pull, b"hunter2\n");
    check(&ran, "127.0.0.1:1");
    assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    check(&runtime.image(&["ls", "Upper"]), "`Upper` does not name an image");
}

#[test]
fn without_a_runtime_there_is_advice() {
    let ran = Dir::new().run(&["image", "--runtime", "/nowhere/socket", "ls"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("error: no runtime answers at /nowhere/socket; start"),
        "{ran:?}"
    );
}
