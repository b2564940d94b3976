//! Exec sessions: who began one is known, to whoever looks and whatever the caller tried (KEP-6035).

mod around;
mod attach;
mod cost;
mod foreign;
mod hostile;
mod identity;
mod skew;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use waybill_api::exec::AUDIT_ID_VARIABLE;
use waybill_testkit::{
    kubectl::{Kubectl, PATIENCE},
    stack::{IMAGE, Setup, Stack},
};

use crate::{BINARY, people::Person, raw::Raw};

/// The pod that sessions are in.
const POD: &str = "sessions";

/// A whole stack, and people who may use its one pod.
struct Lab {
    stack: Stack,
    anna: Person,
    boris: Person,
}

impl Lab {
    fn start() -> Option<Self> {
        let stack = Setup::new(BINARY).start()?;
        start_pod(stack.kubectl());
        let kubeconfig = stack.state().join("kubeconfig");
        let editor = |name| Person::account(stack.kubectl(), &kubeconfig, name, "edit");
        let (anna, boris) = (editor("anna"), editor("boris"));
        Some(Self { stack, anna, boris })
    }

    /// Requests of `person` to the API server.
    fn raw(&self, person: &Person) -> Raw {
        let config = fs::read_to_string(self.stack.state().join("kubeconfig")).unwrap();
        let config: Value = serde_json::from_str(&config).unwrap();
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
        let address = server.trim_start_matches("https://").parse().unwrap();
        Raw::new(address, &self.stack.state().join("ca.crt"), &person.token)
    }

    /// Requests of `person` to the node's own address.
    fn raw_to_node(&self, person: &Person) -> Raw {
        let port = "get node -o jsonpath={.items[0].status.daemonEndpoints.kubeletEndpoint.Port}";
        let port = self.stack.kubectl().line(port).succeeds().stdout.trim().parse().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Raw::new(address, &self.stack.state().join("ca.crt"), &person.token)
    }

    fn node_name(&self) -> String {
        let name = "get node -o jsonpath={.items[0].metadata.name}";
        self.stack.kubectl().line(name).succeeds().stdout.trim().to_owned()
    }

    /// What the audit log has of the request with this ID.
    fn record(&self, id: &str) -> Value {
        audit_record(&self.stack.state().join("audit/audit.log"), id)
    }

    /// What `waybill trace` tells.
    fn traces(&self, arguments: &[&str]) -> Vec<Value> {
        let state = self.stack.state();
        let mut command = self.stack.waybill();
        command.arg("trace").arg("--state-dir").arg(&state).args(["-o", "json"]).args(arguments);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {told}");
        serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
    }

    /// The user that `waybill trace` names for a process of this machine.
    #[track_caller]
    fn user_of(&self, pid: u32) -> String {
        let traces = self.traces(&["--pid", &pid.to_string()]);
        assert_eq!(traces.len(), 1, "{traces:#?}");
        traces[0]["user"].as_str().unwrap_or_default().to_owned()
    }

    /// Ends the stack.
    fn stop(self) {
        self.stack.kubectl().line("delete pods --all --wait=true --grace-period=1").succeeds();
        self.stack.stop();
    }
}

/// A pod that sleeps, with a variable.
fn start_pod(kubectl: &Kubectl) {
    kubectl
        .apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {POD}}}, spec: {{
            terminationGracePeriodSeconds: 1,
            containers: [{{name: main, image: '{IMAGE}', command: [sleep, '3600'],
                env: [{{name: LOG_LEVEL, value: info}}]}}]}}}}"
        ))
        .succeeds();
    kubectl.wait_until_ready(POD);
}

/// Waits until the audit log has a request, and returns the last that it says of it.
#[track_caller]
fn audit_record(log: &Path, id: &str) -> Value {
    let start = Instant::now();
    loop {
        let found = audit_records(log).into_iter().rfind(|record| record["auditID"] == id);
        if let Some(record) = found {
            return record;
        }
        assert!(start.elapsed() < PATIENCE, "the audit log has no {id}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn audit_records(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    // The last line may still be written.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A process of this machine with exactly these arguments, once there is one.
#[track_caller]
fn process(arguments: &[&str]) -> u32 {
    let wanted: Vec<u8> = arguments.iter().flat_map(|it| [it.as_bytes(), b"\0"].concat()).collect();
    let start = Instant::now();
    loop {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let found = pids.into_iter().find(|pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == wanted)
        });
        if let Some(pid) = found {
            return pid;
        }
        assert!(start.elapsed() < PATIENCE, "{arguments:?} does not run");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The audit ID in what `env` printed.
#[track_caller]
fn audit_id(printed: &str) -> String {
    let found = printed.lines().find_map(|line| line.split_once(AUDIT_ID_VARIABLE));
    let found = found.and_then(|(_, rest)| rest.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no audit ID in {printed:?}")).trim().to_owned()
}
