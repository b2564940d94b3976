//! `waybill driver os` as a process, asked over its socket: how long NodeGetEnvVars takes at 500 calls a second, beside a
//! call that does nothing in the same run, and how much memory the driver takes at rest.
//!
//! `cargo bench -p waybill --bench driver`. On a shared machine only the ratio to the empty call means something.
//! `--test` does everything once.
#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement for people"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tonic::transport::{Channel, Endpoint};
use waybill_proto::csi::{
    EnvVarQuery, NodeGetEnvVarsRequest, NodeGetInfoRequest, node_client::NodeClient,
};

/// Calls in a second.
const RATE: u32 = 500;

/// Three times as long as a role needs to notice that it rests.
const REST: Duration = Duration::from_secs(15);

const KEYS: &[&str] =
    &["os/basic/hostname", "os/kernel/release", "os/cpu/count", "os/memory/total"];

#[tokio::main]
async fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let calls = if test { 20 } else { 10 * RATE };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let log = fs::File::create(dir.path().join("log")).unwrap();
    let mut driver = Driver(
        Command::new(env!("CARGO_BIN_EXE_waybill"))
            .args(["driver", "os", "--rate-limit", "0", "--metrics-listen", "127.0.0.1:0"])
            .arg("--socket")
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(driver.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    let node = NodeClient::new(endpoint.connect().await.unwrap());

    println!("{:<44} {:>9} {:>9}", format!("at {RATE} calls a second"), "p50", "p99");
    let times = paced(calls, &node, |mut node| async move {
        node.node_get_info(NodeGetInfoRequest {}).await.unwrap();
    });
    show("NodeGetInfo, which does nothing", times.await);
    for count in [1, 10, 50] {
        let times = paced(calls, &node, move |mut node| async move {
            let reply = node.node_get_env_vars(request(count)).await.unwrap();
            assert_eq!(reply.into_inner().results.len(), count);
        });
        show(&format!("NodeGetEnvVars, {count} variables"), times.await);
    }
    let metrics = metrics(&fs::read_to_string(dir.path().join("log")).unwrap());
    let counted = format!("csi_driver_env_calls_total{{result=\"success\"}} {}", 3 * calls);
    assert!(metrics.contains(&counted), "one call for any number of variables: {metrics}");
    if !test {
        tokio::time::sleep(REST).await;
    }
    println!("{:<44} {:>6.1} MB", "memory at rest", resident(driver.0.id()));
}

/// Ends with the measurement.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes calls at a steady rate, whether or not earlier ones have ended.
async fn paced<F: Future<Output = ()> + Send + 'static>(
    calls: u32,
    node: &NodeClient<Channel>,
    call: impl Fn(NodeClient<Channel>) -> F,
) -> Vec<Duration> {
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    for _ in 0..calls {
        ticks.tick().await;
        let call = call(node.clone());
        under_way.spawn(async move {
            let start = Instant::now();
            call.await;
            start.elapsed()
        });
    }
    under_way.join_all().await
}

fn request(count: usize) -> NodeGetEnvVarsRequest {
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let context = [("namespace", "n"), ("serviceAccount", "s"), ("podName", "p"), ("podUID", "u")];
    let query = |at: usize| EnvVarQuery {
        name: format!("V{at}"),
        key: KEYS[at % KEYS.len()].to_owned(),
        ..EnvVarQuery::default()
    };
    NodeGetEnvVarsRequest {
        provider_class_name: "bench".to_owned(),
        class_parameters: [text(("allowedFields", "os/**"))].into(),
        queries: (0..count).map(query).collect(),
        pod_context: context.into_iter().map(text).collect(),
        version: String::new(),
    }
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("{what:<44} {:>6.2} ms {:>6.2} ms", milliseconds(at(50)), milliseconds(at(99)));
}

fn metrics(log: &str) -> String {
    let address = log.split("serving metrics address=").nth(1).unwrap();
    let mut stream = TcpStream::connect(address.split_whitespace().next().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Of one process, in megabytes.
fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1000.0
}
