//! `waybill status`: what runs of the cluster in a state directory, where, and how much room it takes.

mod sizes;

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Result;
use jiff::Timestamp;
use rustix::fs::{major, minor};
use serde_json::{Value, json};
use tokio::{net::UnixStream, time::timeout};
use waybill_client::{Options, Requests, connect};
use waybill_core::chain::Chain;
use waybill_trace::{EventSource, Recording, recording};

use crate::{
    Outcome,
    collector::RECORD,
    columns::align,
    state_dir::trusted_directory,
    terminal::{escaped, plain},
    trace::runtime_socket,
};

/// How long a part may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Show what runs of a cluster, where it is, and how much room it takes.
///
/// Asks each part of the cluster that `waybill up` runs with this state directory. Exits with 1 if one of them does not
/// answer, or says that it is not ready.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// State directory of `waybill up`.
    #[arg(long, value_name = "DIR", env = "WAYBILL_STATE_DIR", default_value = "/var/lib/waybill")]
    state_dir: PathBuf,

    /// How to print.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Json,
    Table,
}

/// What one part of a cluster says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    ready: bool,
    /// Where it is, or why it is not ready.
    told: String,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let state_dir = trusted_directory(&args.state_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let up = supervisor(&state_dir);
    let parts = runtime.block_on(ask(&state_dir, up.ready));
    let parts: Vec<_> = [up].into_iter().chain(parts).collect();
    let sizes = sizes::of(&state_dir);
    let text = match args.output {
        Output::Json => escaped(&serde_json::to_string_pretty(&document(&parts, &sizes))?) + "\n",
        Output::Table => table(&state_dir, &parts, &sizes),
    };
    write!(io::stdout(), "{text}")?;
    let ready = parts.iter().all(|part| part.ready);
    Ok(if ready { Outcome::Success } else { Outcome::Failure })
}

/// Whether a `waybill up` holds the directory. The kernel's list is read: a lock of ours, however short, could meet one
/// that starts.
fn supervisor(state_dir: &Path) -> Part {
    let part = |ready, told: String| Part { name: "up".to_owned(), ready, told };
    let lock = match fs::symlink_metadata(state_dir.join("up.lock")) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let told = "was never started here; run `waybill up`, or name another --state-dir";
            return part(false, told.to_owned());
        }
        Err(error) => return part(false, format!("cannot be told: {error}; try it as root")),
    };
    match holder(&fs::read_to_string("/proc/locks").unwrap_or_default(), lock.dev(), lock.ino()) {
        Some(pid) => part(true, format!("process {pid}")),
        None => part(false, "does not run, containers may; start it with `waybill up`".to_owned()),
    }
}

/// Who has locked a file, by `/proc/locks`: `1: FLOCK ADVISORY WRITE 708 fe:00:1234 0 EOF`.
fn holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    locks.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, "WRITE", pid, at, ..] if *at == place => pid.parse().ok(),
            _ => None,
        }
    })
}

/// `is_up` is whether a `waybill up` runs; an API server may also run alone.
async fn ask(state_dir: &Path, is_up: bool) -> Vec<Part> {
    let mut parts = vec![answers_at("runtime", &runtime_socket(state_dir)).await];
    parts.extend(collector(&state_dir.join(RECORD)));
    if !is_up && !state_dir.join("run/login.sock").exists() {
        let told = "does not run".to_owned();
        parts.push(Part { name: "API server".to_owned(), ready: false, told });
        return parts;
    }
    let options = Options { kubeconfig: state_dir.join("kubeconfig"), ..Options::default() };
    let asked = timeout(PATIENCE, api_server(&options)).await;
    match asked.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}"))) {
        Ok(told) => parts.extend(told),
        Err(told) => parts.push(Part { name: "API server".to_owned(), ready: false, told }),
    }
    parts
}

/// Whether what runs in sessions is recorded, and how it is known; nothing where nobody ever did.
fn collector(record: &Path) -> Option<Part> {
    if !record.exists() {
        return None;
    }
    let now = Timestamp::now();
    let (ready, told) = match recording(record, now) {
        Some(Recording { source: EventSource::Ebpf, .. }) => (
            true,
            format!("every program of sessions, from the kernel (eBPF), in {}", record.display()),
        ),
        Some(Recording { why_not_better, .. }) => {
            let why = why_not_better.unwrap_or_default();
            (true, format!("short programs of sessions may be missing: {why}"))
        }
        None => {
            let told =
                "does not record what runs in sessions; its log says why, logs/collector.log";
            (false, told.to_owned())
        }
    };
    Some(Part { name: "collector".to_owned(), ready, told })
}

async fn answers_at(name: &str, socket: &Path) -> Part {
    let told = match timeout(PATIENCE, UnixStream::connect(socket)).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("no answer".to_owned()),
    };
    let place = format!("unix://{}", socket.display());
    Part {
        name: name.to_owned(),
        ready: told.is_none(),
        told: told.map_or(place.clone(), |told| format!("{place}: {told}")),
    }
}

/// The server, what it says of itself, and its nodes.
async fn api_server(options: &Options) -> Result<Vec<Part>, String> {
    let session = connect(options).await.map_err(|error| Chain(&error).to_string())?;
    let requests = Requests::new(session.client);
    let asked = requests.get_text("/readyz?verbose").await;
    let server = match &asked {
        Ok(_) => Part {
            name: "API server".to_owned(),
            ready: true,
            told: options.kubeconfig.display().to_string(),
        },
        Err(error) => return Err(Chain(error).to_string()),
    };
    let nodes = requests.get("/api/v1/nodes").await.map_err(|error| Chain(&error).to_string())?;
    let nodes = nodes.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok([server].into_iter().chain(nodes.iter().map(node)).collect())
}

fn node(node: &Value) -> Part {
    let text = |at: &Value, member: &str| {
        at.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|it| text(it, "type") == "Ready");
    let is_ready = ready.is_some_and(|it| text(it, "status") == "True");
    Part {
        name: format!(
            "node {}",
            node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("?")
        ),
        ready: is_ready,
        told: ready.map(|it| text(it, "message")).unwrap_or_default(),
    }
}

fn table(state_dir: &Path, parts: &[Part], sizes: &[sizes::Size]) -> String {
    let mut text = String::new();
    for Part { name, ready, told } in parts {
        let sign = if *ready { '✓' } else { '✗' };
        text.push_str(&format!("{sign} {:<12} {}\n", plain(name), plain(told)));
    }
    text.push_str(&format!("\n{}\n", state_dir.display()));
    let rows = sizes.iter().map(|it| vec![format!("  {}", it.name), it.to_string()]);
    text + &align(&rows.collect::<Vec<_>>())
}

fn document(parts: &[Part], sizes: &[sizes::Size]) -> Value {
    let parts =
        parts.iter().map(|it| json!({"name": it.name, "ready": it.ready, "message": it.told}));
    let sizes =
        sizes.iter().map(|it| json!({"name": it.name, "bytes": it.bytes, "files": it.files}));
    json!({"parts": parts.collect::<Vec<_>>(), "sizes": sizes.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_ready_as_its_condition_says() {
        let of = |status: &str| {
            node(&json!({
                "metadata": {"name": "vm"},
                "status": {"conditions": [{"type": "Ready", "status": status, "message": "said"}]},
            }))
        };
        let ready = Part { name: "node vm".to_owned(), ready: true, told: "said".to_owned() };
        assert_eq!(of("True"), ready);
        assert_eq!(of("False"), Part { ready: false, ..ready.clone() });
        assert!(!node(&json!({"metadata": {"name": "vm"}})).ready);
    }

    #[test]
    fn a_directory_without_a_cluster_says_how_to_start_one() {
        let empty = tempfile::tempdir().unwrap();
        let part = supervisor(empty.path());
        assert!(!part.ready && part.told.contains("waybill up"), "{part:?}");
    }

    #[test]
    fn a_lock_that_is_held_is_a_cluster_that_runs() {
        let dir = tempfile::tempdir().unwrap();
        let lock = fs::File::create(dir.path().join("up.lock")).unwrap();
        assert!(!supervisor(dir.path()).ready);
        lock.try_lock().unwrap();
        let told = format!("process {}", std::process::id());
        assert_eq!(supervisor(dir.path()), Part { name: "up".to_owned(), ready: true, told });
    }

    #[test]
    fn only_a_lock_of_that_file_counts() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:12 0 EOF\n2: FLOCK  ADVISORY  WRITE 708 fe:00:12 0 EOF\n";
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(holder(locks, device, 12), Some(708));
        assert_eq!(holder(locks, device, 13), None);
        assert_eq!(holder("", device, 12), None);
    }
}
