//! `waybill collector` beside a stack that has none, and what it costs.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use waybill_trace::{
    LocalRecord, ProcessQuery, RecordedProcess, RecordedSession, SessionQuery, TraceSource,
};

use crate::up::Up;

pub(crate) struct Collector {
    child: Child,
    record: PathBuf,
}

/// What it used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) processor: Duration,
    /// How long our programs in the kernel ran, and how often, if the kernel counts that.
    pub(crate) kernel: Duration,
    pub(crate) runs: u64,
}

impl Collector {
    /// Starts it and waits until it records.
    pub(crate) fn start(program: &str, up: &Up, source: &str) -> Self {
        let state = up.options().kubeconfig.parent().unwrap().to_owned();
        let socket = |name: &str| format!("unix://{}", state.join("run").join(name).display());
        let mut child = Command::new(program)
            .args(["collector", "--source", source, "--state-dir"])
            .arg(&state)
            .args(["--runtime", &socket("runtime.sock"), "--listen", &socket("trace.sock")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("serving on")), "the collector ended");
        Self { child, record: state.join("trace") }
    }

    pub(crate) fn cost(&self) -> Cost {
        let pid = self.child.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let ticks: u64 = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u64>().unwrap())
            .sum();
        let mut cost = Cost { processor: Duration::from_millis(ticks * 10), ..Cost::default() };
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let number = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|line| line.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            cost.kernel += Duration::from_nanos(number("run_time_ns:"));
            cost.runs += number("run_cnt:");
        }
        cost
    }

    /// Resident memory in MB: all of it, what is its own, and the ring of the kernel.
    pub(crate) fn memory(&self) -> (f64, f64, f64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let size = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e3
        };
        (size("VmRSS:"), size("RssAnon:"), size("RssShmem:"))
    }

    /// What is on record now.
    pub(crate) async fn read(&self) -> (Vec<RecordedSession>, Vec<RecordedProcess>, u64) {
        let record = LocalRecord::new(&self.record, None);
        let all = SessionQuery { probes: true, ..SessionQuery::default() };
        let list = record.sessions(&all).await.unwrap();
        let processes = record.processes(&ProcessQuery::default()).await.unwrap();
        (list.sessions, processes, list.coverage.lost)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
