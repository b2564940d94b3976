//! `waybill runtime` as a process, asked over its socket: how fast commands run beside `nsenter` and `runc` in the same
//! run, how much memory it takes, and whether anything grows.
//!
//! `cargo bench -p waybill --bench runtime`. Needs root, busybox-static, util-linux and runc. Prints medians and ratios:
//! on a shared machine only the ratios mean something. `--test` does everything once; `--long` runs 10,000 commands
//! one after the other; `--against PROGRAM` does nothing but compare with another `waybill`.
#![allow(
    dead_code,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement for people, with a client of the tests"
)]

mod against;
#[path = "../../tests/crash/runtime/client.rs"]
mod client;
#[path = "../../tests/crash/runtime/image.rs"]
mod image;

use std::{
    fmt, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use waybill_testkit::runtime::{Runtime, Setup};

use crate::client::{Client, Script};

const PROGRAM: &str = env!("CARGO_BIN_EXE_waybill");

/// How many ended sessions the runtime remembers; until then its memory grows.
const REMEMBERED: usize = 1000;

/// Twice as long as a role needs to notice that it rests.
const REST: Duration = Duration::from_secs(15);

/// How much of everything.
struct Size {
    execs: usize,
    containers: usize,
    at_once: usize,
    in_a_row: usize,
    /// Commands and containers of each program that is compared.
    compared: (usize, usize),
    /// After which the runtime has given back what it does not need at rest.
    rest: Duration,
}

/// A runtime, and what is in it.
struct Lab {
    setup: Setup,
    runtime: Runtime,
    client: Client,
    sandbox: String,
    cgroup: String,
    directory: tempfile::TempDir,
}

fn main() {
    let asked = |name: &str| std::env::args().any(|argument| argument == name);
    let size = match (asked("--test"), asked("--long")) {
        (true, _) => Size {
            execs: 1,
            containers: 2,
            at_once: 5,
            in_a_row: 20,
            compared: (2, 1),
            rest: Duration::ZERO,
        },
        (_, long) => Size {
            execs: 200,
            containers: 20,
            at_once: 50,
            in_a_row: if long { 10_000 } else { 500 },
            compared: (2_000, 300),
            rest: REST,
        },
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(size));
}

async fn measure(size: Size) {
    let Some(archive) = image::busybox() else { return };
    let mut arguments = std::env::args().skip_while(|argument| argument != "--against").skip(1);
    if let Some(other) = arguments.next() {
        return against::measure(&other, archive, size.compared).await;
    }
    if Command::new("runc").arg("--version").stdout(Stdio::null()).status().is_err() {
        return println!("SKIPPED: runc is not installed; install the Debian package runc");
    }
    let mut lab = Lab::open(PROGRAM, "").await;
    tokio::time::sleep(size.rest).await;
    lab.measure_idle();
    lab.client.import(archive).await;
    lab.measure_containers(size.containers).await;
    let container = lab.start("box").await;
    lab.measure_execs(&container, size.execs).await;
    lab.run_at_once(&container, size.at_once).await;
    lab.run_in_a_row(&container, size.in_a_row, size.rest).await;
    lab.close().await;
}

impl Lab {
    async fn open(program: &str, name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let setup = Setup::new(program, directory.path());
        let runtime = setup.start();
        let cgroup = format!("/waybill-bench-{}{name}", std::process::id());
        let client = Client::connect(&setup, &cgroup).await;
        let sandbox = client.run_sandbox("bench").await.unwrap();
        Self { setup, runtime, client, sandbox, cgroup, directory }
    }

    async fn start(&self, name: &str) -> String {
        let id = self.client.create(&self.sandbox, name, Script::Elder, 0).await.unwrap();
        self.client.start(&id).await.unwrap();
        id
    }

    async fn close(self) {
        self.client.remove_sandboxes_but(&[]).await;
        drop(self.runtime);
        run(Command::new("umount").arg(self.setup.run_dir()));
    }

    fn measure_idle(&mut self) {
        let runtime = self.runtime.pid();
        println!("idle: runtime {}", Memory::of(runtime));
        for (pid, name) in processes() {
            if name == "waybill-spawner" && parent(pid) == Some(runtime) {
                println!("      spawner {}", Memory::of(pid));
            }
        }
    }

    /// What the runtime and its monitors take for each container that runs.
    async fn measure_containers(&mut self, count: usize) {
        let runtime = self.runtime.pid();
        // Threads and caches that are there once.
        let first = self.start("first").await;
        let before = Memory::of(runtime);
        let mut ids = Vec::new();
        for number in 0..count {
            ids.push(self.start(&format!("sleeper-{number}")).await);
        }
        // A monitor makes itself small when nothing has happened for a second.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let growth = Memory::of(runtime).since(before).divided_by(count);
        let monitors = ids.iter().map(|id| self.monitor(id));
        let all = monitors.map(Memory::of).fold(Memory::default(), Memory::plus);
        println!("each of {count} containers: monitor {}", all.divided_by(count));
        println!("      runtime {growth}; goal: both under 1,536 kB");
        for id in ids.iter().chain([&first]) {
            self.client.remove(id).await.unwrap();
        }
    }

    /// Taken in turns, so that all see the same machine.
    async fn measure_execs(&self, id: &str, execs: usize) {
        let monitor = self.monitor(id);
        let first = processes().into_iter().find(|(pid, _)| parent(*pid) == Some(monitor));
        let first = first.unwrap().0.to_string();
        let bundle = runc_bundle(self.directory.path());
        run(Command::new("runc").args(["run", "-d", "-b"]).arg(&bundle).arg("waybill-bench"));
        let (mut ours, mut nsenter, mut runc) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..execs {
            let begin = Instant::now();
            self.run_true(id).await;
            ours.push(begin.elapsed());
            nsenter.push(time(Command::new("nsenter").args(["-a", "-t", &first, "/bin/true"])));
            if round % 5 == 0 {
                runc.push(time(Command::new("runc").args(["exec", "waybill-bench", "/bin/true"])));
            }
        }
        run(Command::new("runc").args(["delete", "-f", "waybill-bench"]));
        let (ours, nsenter, runc) = (median(ours), median(nsenter), median(runc));
        println!("ExecSync of /bin/true: {ours:?}");
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        println!(
            "  nsenter -a: {nsenter:?}, ours / nsenter {:.2}; at most 3",
            ratio(ours, nsenter)
        );
        println!("  runc exec:  {runc:?}, runc / ours {:.1}; at least 4", ratio(runc, ours));
    }

    async fn run_at_once(&self, id: &str, count: usize) {
        let begin = Instant::now();
        let mut sessions = JoinSet::new();
        for _ in 0..count {
            let (client, id) = (self.client.clone(), id.to_owned());
            // Long enough that all run at the same time.
            let command = ["sleep", "1"].map(str::to_owned).to_vec();
            sessions.spawn(async move { client.exec_command(&id, command).await });
        }
        while let Some(ended) = sessions.join_next().await {
            assert_eq!(ended.unwrap().unwrap(), 0);
        }
        println!("{count} sessions of one second at once: {:?}, none failed", begin.elapsed());
    }

    /// Nothing grows but what is remembered of the last sessions.
    async fn run_in_a_row(&mut self, id: &str, count: usize, rest: Duration) {
        for _ in 0..REMEMBERED.min(count) {
            self.run_true(id).await;
        }
        let (runtime, monitor) = (self.runtime.pid(), self.monitor(id));
        let count_all = || {
            let cgroups = cgroups_below(&Path::new("/sys/fs/cgroup").join("unified"), &self.cgroup)
                + cgroups_below(Path::new("/sys/fs/cgroup"), &self.cgroup);
            (descriptors(runtime), descriptors(monitor), cgroups)
        };
        tokio::time::sleep(rest).await;
        let counted = count_all();
        let memory = [runtime, monitor].map(Memory::of);
        let begin = Instant::now();
        for _ in 0..count {
            self.run_true(id).await;
        }
        let took = begin.elapsed();
        // The cgroup of the last session goes a little later.
        while count_all().2 > counted.2 && begin.elapsed() < took + Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(rest).await;
        let after = [runtime, monitor].map(Memory::of);
        assert_eq!(counted, count_all(), "descriptors of runtime and monitor, cgroups");
        println!("{count} sessions in a row: {took:?}; descriptors and cgroups as before");
        for (name, before, after) in
            [("runtime", memory[0], after[0]), ("monitor", memory[1], after[1])]
        {
            println!("  {name} before {before}");
            println!("  {name} after  {after}");
        }
    }

    async fn run_true(&self, id: &str) {
        let code = self.client.exec_command(id, vec!["/bin/true".to_owned()]).await;
        assert_eq!(code.unwrap(), 0);
    }

    /// It works in its container's directory.
    fn monitor(&self, id: &str) -> u32 {
        let directory = self.setup.run_dir().canonicalize().unwrap().join("containers").join(id);
        let works_there =
            |pid: u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == directory);
        processes().into_iter().find(|(pid, _)| works_there(*pid)).unwrap().0
    }
}

/// Of a process, in kB.
#[derive(Clone, Copy, Default)]
struct Memory {
    resident: i64,
    /// Resident, and of no file.
    own: i64,
    /// Resident, what is shared divided by the number of those who share it.
    proportional: i64,
}

impl Memory {
    fn of(pid: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let field = |name: &str| -> i64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_end_matches("kB").trim().parse().unwrap()
        };
        Self { resident: field("Rss:"), own: field("Anonymous:"), proportional: field("Pss:") }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            resident: self.resident + other.resident,
            own: self.own + other.own,
            proportional: self.proportional + other.proportional,
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            resident: self.resident - before.resident,
            own: self.own - before.own,
            proportional: self.proportional - before.proportional,
        }
    }

    fn divided_by(self, count: usize) -> Self {
        let count = i64::try_from(count).unwrap();
        Self {
            resident: self.resident / count,
            own: self.own / count,
            proportional: self.proportional / count,
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident, own, proportional } = self;
        write!(f, "resident {resident} kB (own {own}), proportional {proportional} kB")
    }
}

/// Process ids and names.
fn processes() -> Vec<(u32, String)> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            Some((pid, name.trim().to_owned()))
        })
        .collect()
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn cgroups_below(hierarchy: &Path, cgroup: &str) -> usize {
    let directory = hierarchy.join(cgroup.trim_start_matches('/'));
    let mut all = vec![directory];
    let mut count = 0;
    while let Some(directory) = all.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        count += 1;
        all.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
    }
    count
}

/// A bundle that asks runc for a similar container.
fn runc_bundle(directory: &Path) -> PathBuf {
    let bundle = directory.join("bundle");
    let bin = bundle.join("rootfs/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy("/bin/busybox", bin.join("busybox")).unwrap();
    for applet in ["sleep", "true"] {
        symlink("busybox", bin.join(applet)).unwrap();
    }
    run(Command::new("runc").arg("spec").current_dir(&bundle));
    let file = bundle.join("config.json");
    let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    spec["process"]["terminal"] = false.into();
    spec["process"]["args"] = ["/bin/sleep", "100000"].as_slice().into();
    fs::write(file, spec.to_string()).unwrap();
    bundle
}

fn time(command: &mut Command) -> Duration {
    let begin = Instant::now();
    run(command);
    begin.elapsed()
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
