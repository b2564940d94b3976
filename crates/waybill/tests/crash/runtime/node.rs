//! A node and all that works for it are killed while pods come and go: the node itself, the runtime, its spawner and monitors.
//! Every pod is brought to where its user wants it, with the exit code that is its own; one that was there all the time notices
//! nothing, and when pods are deleted nothing is left of them.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{task::spawn_blocking, time::sleep};
use waybill_apiserver::{NodeFiles, NodeIdentity, issue_node};
use waybill_testkit::{
    apiserver::{self, ApiServer},
    node::{self, Node},
    remains::Remains,
    runtime::{Runtime, Setup},
};

use super::{Dice, Monitors, Place, Spawners, client::Client, image, nothing_is_left, settled};
use crate::{PATIENCE, client::Client as Api, rounds};

const NAME: &str = "crashing";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WITNESS: &str = "witness";

/// Who is killed in each round, in any order.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Node,
    Runtime,
    Spawner,
    Monitor,
}

/// What a pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Runs once and ends with this code.
    Once(i32),
    /// Runs until it is deleted.
    Steady,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_lost_when_nodes_runtimes_spawners_and_monitors_are_killed() {
    let Some(mut machine) = Machine::start().await else { return };
    machine.create(WITNESS, Purpose::Steady).await;
    let witness = machine.settled_pods(&[(WITNESS.to_owned(), Purpose::Steady)]).await;
    let witness = container_id(&witness[WITNESS]).to_owned();
    machine.monitors = Monitors::new(&machine.runtime_setup, &witness);
    let before = settled(&machine.place).await;
    for round in 0..rounds() {
        let dice = Dice::new(round);
        let wanted = pods_of(round);
        for (name, purpose) in &wanted {
            machine.create(name, *purpose).await;
        }
        machine.kill_all_kinds(dice.other()).await;
        let settled = machine.settled_pods(&wanted).await;
        machine.check_sessions(&settled).await;
        let now = machine.settled_pods(&[(WITNESS.to_owned(), Purpose::Steady)]).await;
        assert_eq!(container_id(&now[WITNESS]), witness, "the pod that was there all the time");
        for (name, _) in &wanted {
            machine.delete(name).await;
        }
        machine.until_only(&[WITNESS]).await;
        nothing_is_left(&machine.runtime_setup, &machine.place, &before, round).await;
    }
    machine.delete(WITNESS).await;
    machine.until_only(&[]).await;
    let (monitors, spawners) = (machine.monitors.count(), machine.spawners.count());
    let kills = rounds();
    println!("{kills} nodes, {kills} runtimes, {spawners} spawners and {monitors} monitors killed");
}

/// Two of each kind.
fn pods_of(round: usize) -> Vec<(String, Purpose)> {
    let code = |at: usize| i32::try_from((2 * round + at) % 100).expect("a small number") + 1;
    let once = (0..2).map(|at| (format!("once-{round}-{at}"), Purpose::Once(code(at))));
    once.chain((0..2).map(|at| (format!("steady-{round}-{at}"), Purpose::Steady))).collect()
}

struct Machine {
    node: Option<Node>,
    runtime: Option<Runtime>,
    node_setup: node::Setup,
    runtime_setup: Setup,
    server: ApiServer,
    monitors: Monitors,
    spawners: Spawners,
    place: Place,
    cgroup: String,
    dir: TempDir,
}

impl Machine {
    async fn start() -> Option<Self> {
        let busybox = image::busybox()?;
        let dir = tempfile::tempdir().expect("the temporary directory is writable");
        let cgroup = format!("/waybill-crash-node-{}", std::process::id());
        let runtime_setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
        let runtime = runtime_setup.start();
        Client::connect(&runtime_setup, &cgroup).await.import(busybox).await;
        let api = dir.path().join("api");
        fs::create_dir(&api).expect("the directory is ours");
        let server = apiserver::Setup::new(env!("CARGO_BIN_EXE_waybill"), &api).start();
        let files = identity(&api.join("state"), dir.path(), &server);
        let node_setup = node_setup(&dir, &files, &runtime_setup, &cgroup);
        let node = node_setup.start();
        let place = Place::of(&runtime_setup, &cgroup).without_descriptors();
        Some(Self {
            node: Some(node),
            runtime: Some(runtime),
            monitors: Monitors::new(&runtime_setup, ""),
            spawners: Spawners::new(&runtime_setup),
            place: place.with_pods(node_setup.state_dir().join("pods")),
            node_setup,
            runtime_setup,
            server,
            cgroup,
            dir,
        })
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut api = Api::connect(&self.server).await.expect("the server takes connections");
        api.send(method, path, body).await.expect("the server answers")
    }

    async fn create(&self, name: &str, purpose: Purpose) {
        let (code, answer) = self.send("POST", PODS, &pod(name, purpose).to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }

    async fn delete(&self, name: &str) {
        let (code, answer) = self.send("DELETE", &format!("{PODS}/{name}"), "").await;
        assert!(matches!(code, 200 | 202), "{code} {answer}");
    }

    /// Each of them once, at any moment and also while another is not back yet. Returns when all are.
    async fn kill_all_kinds(&mut self, mut dice: Dice) {
        let mut victims = vec![Victim::Node, Victim::Runtime, Victim::Spawner, Victim::Monitor];
        sleep(Duration::from_millis(dice.up_to(700).into())).await;
        let (mut node, mut runtime) = (None, None);
        while let Some(last) = victims.len().checked_sub(1) {
            let at = dice.up_to(u32::try_from(last + 1).expect("four at most")) as usize;
            match victims.swap_remove(at) {
                Victim::Node => {
                    drop(self.node.take());
                    let setup = self.node_setup.clone();
                    node = Some(spawn_blocking(move || setup.start()));
                }
                Victim::Runtime => {
                    drop(self.runtime.take());
                    let setup = self.runtime_setup.clone();
                    runtime = Some(spawn_blocking(move || setup.start()));
                }
                Victim::Spawner => self.spawners.kill(),
                Victim::Monitor => self.monitors.kill_one(&mut dice),
            }
            sleep(Duration::from_millis(dice.up_to(300).into())).await;
        }
        if let Some(runtime) = runtime {
            self.runtime = Some(runtime.await.expect("the runtime starts again"));
        }
        if let Some(node) = node {
            self.node = Some(node.await.expect("the node starts again"));
        }
    }

    async fn pods(&self) -> BTreeMap<String, Value> {
        let (code, list) = self.send("GET", PODS, "").await;
        assert_eq!(code, 200, "{list}");
        let items = list["items"].as_array().expect("a list has items");
        let name = |pod: &Value| pod["metadata"]["name"].as_str().expect("a name").to_owned();
        items.iter().map(|pod| (name(pod), pod.clone())).collect()
    }

    /// Waits until each pod is where its user wants it.
    async fn settled_pods(&self, wanted: &[(String, Purpose)]) -> BTreeMap<String, Value> {
        let end = Instant::now() + 2 * PATIENCE;
        loop {
            let mut pods = self.pods().await;
            pods.retain(|name, _| wanted.iter().any(|(wanted, _)| wanted == name));
            let done = wanted.iter().filter(|(name, purpose)| {
                pods.get(name).is_some_and(|pod| self.is_settled(pod, *purpose))
            });
            if done.count() == wanted.len() {
                return pods;
            }
            if Instant::now() > end {
                self.give_up(&format!("pods do not settle: {pods:#?}"));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether it is where its user wants it. Panics when it went where it must not go.
    fn is_settled(&self, pod: &Value, purpose: Purpose) -> bool {
        let status = &pod["status"]["containerStatuses"][0];
        let restarts = status["restartCount"].as_u64().unwrap_or(0);
        let before = status["lastState"]["terminated"]["containerID"].as_str().unwrap_or_default();
        assert!(
            restarts == 0 || self.monitors.was_killed(plain(before)),
            "a container was started again: {pod:#}"
        );
        match purpose {
            // What runs without its monitor is about to end, whether or not the node knows already.
            Purpose::Steady => {
                status["state"]["running"].is_object()
                    && status["ready"] == true
                    && !self.monitors.was_killed(container_id(pod))
            }
            Purpose::Once(code) => {
                let ended = &status["state"]["terminated"];
                if !ended.is_object() {
                    return false;
                }
                // A container that was not started yet cannot be any more.
                let lost = self.monitors.was_killed(container_id(pod))
                    && (ended["exitCode"] == 137 || ended["reason"] == "StartError");
                assert!(ended["exitCode"] == code || lost, "{code} expected: {pod:#}");
                true
            }
        }
    }

    /// Commands run in every container that runs, and their codes are on record; no session goes on afterwards.
    async fn check_sessions(&self, pods: &BTreeMap<String, Value>) {
        let client = Client::connect(&self.runtime_setup, &self.cgroup).await;
        let running =
            |pod: &&Value| pod["status"]["containerStatuses"][0]["state"]["running"].is_object();
        for pod in pods.values().filter(running) {
            let id = container_id(pod);
            assert_eq!(client.exec(id, 7).await.expect("its container runs"), 7);
            let sessions = client.sessions().await;
            let of_this = |code| {
                let of_this = sessions.iter().filter(move |it| it.container_id == id);
                of_this.filter(move |it| it.exit_code == code && it.finished_at > 0).count()
            };
            assert_eq!(of_this(7), 1, "{sessions:#?}");
        }
    }

    async fn until_only(&self, names: &[&str]) {
        let end = Instant::now() + 2 * PATIENCE;
        loop {
            let pods = self.pods().await;
            if pods.keys().all(|name| names.contains(&name.as_str())) {
                return;
            }
            if Instant::now() > end {
                self.give_up(&format!("pods do not go: {pods:#?}"));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn give_up(&self, why: &str) -> ! {
        panic!("{why}\n{}\n{}", self.node_setup.log(), self.runtime_setup.log())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.node = None;
        self.runtime = None;
        let everything = Remains::of(self.dir.path(), &self.cgroup);
        if std::thread::panicking() {
            everything.clear_if_panicking();
        } else {
            // The runtime's tmpfs and the cgroup of all pods stay for the next start.
            assert!(everything.clear(), "something is left");
        }
    }
}

fn pod(name: &str, purpose: Purpose) -> Value {
    let (policy, command) = match purpose {
        Purpose::Once(code) => ("Never", format!("sleep 0.{}; exit {code}", code % 10)),
        Purpose::Steady => ("Always", "exec sleep 3600".to_owned()),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": NAME,
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": image::NAME, "imagePullPolicy": "Never",
                "command": ["sh", "-c", command],
            }],
        },
    })
}

fn container_id(pod: &Value) -> &str {
    plain(pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default())
}

/// Without the name of the runtime.
fn plain(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

fn identity(state: &Path, dir: &Path, server: &ApiServer) -> NodeFiles {
    let identity = NodeIdentity {
        name: NAME.to_owned(),
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        server: format!("https://{}", server.address()),
        dir: dir.join("node-pki"),
    };
    issue_node(state, &identity, Timestamp::now()).expect("the directory is ours")
}

fn node_setup(dir: &TempDir, files: &NodeFiles, runtime: &Setup, cgroup: &str) -> node::Setup {
    let NodeFiles { kubeconfig, serving_certificate, serving_key, authority, .. } = files;
    node::Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path())
        .flag(format!("--name={NAME}"))
        .flag(format!("--runtime=unix://{}", runtime.socket().display()))
        .flag("--listen=127.0.0.1:0")
        .flag(format!("--kubeconfig={}", kubeconfig.display()))
        .flag(format!("--tls-cert-file={}", serving_certificate.display()))
        .flag(format!("--tls-key-file={}", serving_key.display()))
        .flag(format!("--client-ca-file={}", authority.display()))
        .flag(format!("--cgroup-root={cgroup}"))
}
