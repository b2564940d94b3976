//! The server over TCP, with an independent WebSocket client and processes of this machine.

mod client;
mod endings;
mod exec;
mod forward;
mod machine;
mod pace;
mod spdy;
mod tokens;

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use waybill_stream::command::Streams;

use self::{client::Client, machine::Machine};
use super::{Limits, Streaming};
use crate::engine::ExecRequest;

/// A server that serves, and what it starts.
struct Server {
    streaming: Arc<Streaming<Machine>>,
    machine: Machine,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Waits are short where a test must wait for their end.
fn limits() -> Limits {
    Limits {
        drain: Duration::from_millis(100),
        sign_of_life: Duration::from_millis(20),
        ..Limits::default()
    }
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let machine = Machine::default();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let streaming = Streaming::bind(address, machine.clone(), limits).await.unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(Arc::clone(&streaming).serve(stop.clone()));
        Self { streaming, machine, stop, tasks }
    }

    fn exec_url(&self, script: &str, streams: Streams) -> String {
        self.streaming.exec_url("c1", request(script, streams)).unwrap()
    }

    /// Runs a script of the shell with all streams.
    async fn exec(&self, script: &str, protocol: &str) -> Client {
        Client::connect(&self.exec_url(script, ALL), &[protocol]).await.unwrap()
    }
}

const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };

const V4: &str = "v4.channel.k8s.io";
const V5: &str = "v5.channel.k8s.io";

fn request(script: &str, streams: Streams) -> ExecRequest {
    let argv = ["sh", "-c", script].map(|part| part.as_bytes().to_vec());
    ExecRequest {
        session: "s1".to_owned(),
        argv: argv.into(),
        env: Vec::new(),
        runtime_env: Vec::new(),
        tty: streams.tty,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
    }
}
