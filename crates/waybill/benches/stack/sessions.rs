//! Exec sessions: how soon they answer, how many there can be, and what their identity costs.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tonic::transport::{Channel, Endpoint};
use waybill_api::exec::{ExecVar, PodExecOptions};
use waybill_client::exec::{Executor, Local};
use waybill_proto::cri::{
    ContainerFilter, ContainerStateValue, ExecSyncRequest, ListContainersRequest,
    runtime_service_client::RuntimeServiceClient,
};
use waybill_stream::outcome::Outcome;

use crate::{
    numbers::Times,
    pods::{self, Pods},
    processes,
    up::Up,
};

pub(crate) const POD: &str = "box";

/// How many variables a caller sends along.
const VARIABLES: usize = 10;

pub(crate) const WARM_UP: usize = 20;

/// The whole chain, the runtime alone and the kernel alone. Taken in turns, so that all see the same machine.
pub(crate) async fn latency(up: &Up, pods: &Pods, count: usize) {
    // Pods that were deleted without grace are gone from the API before their processes are.
    while processes::with_arguments(&pods::COMMAND).is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    pods.run(POD).await;
    let executor = Executor::new(&up.options()).await.unwrap();
    let mut alone = RuntimeAlone::connect(up).await;
    let pid = processes::with_arguments(&pods::COMMAND).expect("the pod runs");
    let [mut ours, mut sync, mut nsenter] = [const { Times::new() }; 3];
    for _ in 0..count {
        ours.add(exec(&executor, 0).await);
        sync.add(alone.exec().await);
        let mut command = Command::new("nsenter");
        command.args(["-a", "-t", &pid.to_string(), "/bin/true"]).stdout(Stdio::null());
        let begin = Instant::now();
        assert!(command.status().unwrap().success());
        nsenter.add(begin.elapsed());
    }
    println!("exec of /bin/true through API server, node and runtime: {ours} (goal p50 10 ms)");
    println!("  ExecSync of the runtime alone: {sync}");
    println!("  nsenter -a: {nsenter}, ours / nsenter {:.2}", ours.median() / nsenter.median());

    let each = count.div_ceil(4);
    let begin = Instant::now();
    let worker = async || {
        for _ in 0..each {
            exec(&executor, 0).await;
        }
    };
    join_all((0..20).map(|_| worker())).await;
    let rate = (each * 20) as f64 / begin.elapsed().as_secs_f64();
    println!("  20 at once: {rate:.0} sessions/s (goal 300/s)");
    pods.delete(POD).await;
}

/// Sessions with an audit ID and variables beside those of a stack that knows neither. Both are fresh, and take turns
/// to be the first.
pub(crate) async fn overhead(count: usize) {
    let mut with = Up::start(&[]);
    let mut without = Up::start(&["--feature-gates", "ExecRequestID=false,ExecEnvVar=false"]);
    for up in [&with, &without] {
        Pods::connect(&up.options()).await.run(POD).await;
    }
    let executor = Executor::new(&with.options()).await.unwrap();
    let plain = Executor::new(&without.options()).await.unwrap();
    let [mut full, mut bare] = [const { Times::new() }; 2];
    // The first ones warm up.
    for at in 0..count + WARM_UP {
        let (one, other) = if at % 2 == 0 {
            let one = exec(&executor, VARIABLES).await;
            (one, exec(&plain, 0).await)
        } else {
            let other = exec(&plain, 0).await;
            (exec(&executor, VARIABLES).await, other)
        };
        if at >= WARM_UP {
            full.add(one);
            bare.add(other);
        }
    }
    let ratio = full.median() / bare.median();
    println!("exec with audit ID and {VARIABLES} variables: {full}");
    println!("  with both gates off, and no variables: {bare}, ratio {ratio:.3} (goal 1.05)");
    with.stop();
    without.stop();
}

pub(crate) async fn exec(executor: &Executor, variables: usize) -> Duration {
    let options = PodExecOptions {
        stdout: true,
        stderr: true,
        command: vec!["/bin/true".to_owned()],
        env: (0..variables).map(|at| ExecVar::new(format!("VAR_{at}"), "some value")).collect(),
        ..PodExecOptions::default()
    };
    let begin = Instant::now();
    let session = executor.start("default", POD, &options).await.unwrap();
    let (stdout, stderr) = (tokio::io::sink(), tokio::io::sink());
    let local = Local { stdin: None::<tokio::io::Empty>, stdout, stderr, sizes: None };
    assert_eq!(session.run(local).await.unwrap(), Outcome::Success);
    begin.elapsed()
}

/// The runtime of a stack, asked as its node does.
struct RuntimeAlone {
    client: RuntimeServiceClient<Channel>,
    container: String,
}

impl RuntimeAlone {
    async fn connect(up: &Up) -> Self {
        let socket = format!("unix://{}", up.runtime_socket().display());
        let channel = Endpoint::from_shared(socket).unwrap().connect().await.unwrap();
        let mut client = RuntimeServiceClient::new(channel);
        let running = ContainerStateValue { state: 1 };
        let filter = Some(ContainerFilter { state: Some(running), ..ContainerFilter::default() });
        let found = client.list_containers(ListContainersRequest { filter }).await.unwrap();
        let container = found.into_inner().containers.remove(0).id;
        Self { client, container }
    }

    async fn exec(&mut self) -> Duration {
        let request = ExecSyncRequest {
            container_id: self.container.clone(),
            cmd: vec!["/bin/true".to_owned()],
            timeout: 10,
        };
        let begin = Instant::now();
        assert_eq!(self.client.exec_sync(request).await.unwrap().into_inner().exit_code, 0);
        begin.elapsed()
    }
}
