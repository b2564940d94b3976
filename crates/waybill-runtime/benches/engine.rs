//! How fast and how small the engine is, beside `nsenter` and `runc` doing the same in the same run.
//!
//! `cargo bench -p waybill-runtime`. Needs root, busybox-static, util-linux and runc. Prints medians and ratios: on a
//! shared machine only the ratios mean something. `--test` does everything once.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

#[path = "../tests/it/lab.rs"]
mod lab;

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use lab::{Lab, exec};
use waybill_runtime::engine::State;

/// How often each thing is done.
struct Size {
    execs: usize,
    runs: usize,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let size = if std::env::args().any(|argument| argument == "--test") {
        Size { execs: 1, runs: 1 }
    } else {
        Size { execs: 200, runs: 40 }
    };
    runtime.block_on(measure(size));
}

async fn measure(size: Size) {
    let Some(lab) = Lab::open().await else { return };
    if Command::new("runc").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: runc is not installed; install the Debian package runc");
        return lab.close().await;
    }
    lab.run("box").await;
    measure_execs(&lab, size.execs).await;
    measure_memory(&lab);
    lab.kill_and_delete("box").await;
    measure_runs(&lab, size.runs).await;
    lab.close().await;
}

/// Taken in turns, so that all see the same machine.
async fn measure_execs(lab: &Lab, execs: usize) {
    let State::Running { pid, .. } = lab.engine().state("box").unwrap() else { panic!() };
    let bundle = runc_bundle(lab, "runc-exec", &["/bin/sleep", "1000"]);
    run(Command::new("runc").args(["run", "-d", "-b"]).arg(&bundle).arg("waybill-bench"));
    let (mut ours, mut nsenter, mut runc) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..execs {
        let begin = Instant::now();
        let session = lab.engine().exec("box", exec(&["/bin/true"])).await.unwrap();
        assert_eq!(session.wait().await.unwrap().code, 0);
        ours.push(begin.elapsed());
        nsenter.push(time(Command::new("nsenter").args(["-a", "-t", &pid.to_string(), "/bin/true"])));
        if round % 5 == 0 {
            runc.push(time(Command::new("runc").args(["exec", "waybill-bench", "/bin/true"])));
        }
    }
    run(Command::new("runc").args(["delete", "-f", "waybill-bench"]));
    let (ours, nsenter, runc) = (median(ours), median(nsenter), median(runc));
    println!("exec /bin/true: {ours:?}");
    println!("  nsenter -a:   {nsenter:?}, ours / nsenter {:.2} (goal: at most 3)", ratio(ours, nsenter));
    println!("  runc exec:    {runc:?}, runc / ours {:.2} (goal: at least 4)", ratio(runc, ours));
}

async fn measure_runs(lab: &Lab, runs: usize) {
    let bundle = runc_bundle(lab, "runc-run", &["/bin/true"]);
    let (mut ours, mut runc) = (Vec::new(), Vec::new());
    let mut parts = [const { Vec::new() }; 4];
    for round in 0..runs {
        let id = format!("run-{round}");
        let begin = Instant::now();
        lab.engine().create(&id, lab.container(&id, &["/bin/true"])).await.unwrap();
        parts[0].push(begin.elapsed());
        lab.engine().start(&id).await.unwrap();
        parts[1].push(begin.elapsed());
        lab.engine().wait(&id).await.unwrap();
        parts[2].push(begin.elapsed());
        lab.engine().delete(&id).await.unwrap();
        parts[3].push(begin.elapsed());
        ours.push(begin.elapsed());
        runc.push(time(Command::new("runc").args(["run", "-b"]).arg(&bundle).arg("waybill-bench")));
    }
    let (ours, runc) = (median(ours), median(runc));
    println!("create, start, exit, delete: {ours:?}");
    let [created, started, ended, deleted] = parts.map(median);
    println!("  after create {created:?}, start {started:?}, exit {ended:?}, delete {deleted:?}");
    println!("  runc run:     {runc:?}, ours / runc {:.2} (goal: at most 1, aim 0.5)", ratio(ours, runc));
}

fn measure_memory(lab: &Lab) {
    let State::Running { pid, .. } = lab.engine().state("box").unwrap() else { panic!() };
    for (what, pid) in [("monitor", lab.monitor("box")), ("sleep", pid)] {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let field = |text: &str, name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|rest| rest.trim_start_matches(':').trim().to_owned())
                .unwrap_or_default()
        };
        println!(
            "memory of {what}: resident {} (own {}, files {}), proportional {}",
            field(&status, "VmRSS"),
            field(&status, "RssAnon"),
            field(&status, "RssFile"),
            field(&rollup, "Pss"),
        );
    }
}

/// A bundle that asks runc for the same container.
fn runc_bundle(lab: &Lab, name: &str, arguments: &[&str]) -> std::path::PathBuf {
    let bundle = lab.directory.path().join(name);
    fs::create_dir(&bundle).unwrap();
    let mut spec = lab.spec(name, arguments);
    let mut process = spec.process().clone().unwrap();
    process.set_env(Some(vec!["PATH=/bin".to_owned()]));
    spec.set_process(Some(process));
    // runc leaves the cgroups above its own behind.
    let mut linux = spec.linux().clone().unwrap();
    linux.set_cgroups_path(Some(format!("/waybill-bench-{name}").into()));
    spec.set_linux(Some(linux));
    fs::write(bundle.join("config.json"), serde_json::to_vec(&spec).unwrap()).unwrap();
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

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
