//! What is measured.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    Result,
    baseline::{self, Call, Etcd},
    client::{Caller, Connection, Load, load, percentile, request},
    process::{Process, own_processor_time},
};

/// About how large the objects are.
pub(crate) const OBJECT: usize = 1_024;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// How much of everything is done.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    clients: usize,
    duration: Duration,
    objects: usize,
    watchers: usize,
    changes: usize,
}

impl Size {
    pub(crate) const FULL: Self = Self {
        clients: 16,
        duration: Duration::from_secs(4),
        objects: 1_000,
        watchers: 1_000,
        changes: 20,
    };

    pub(crate) fn duration(self) -> Duration {
        self.duration
    }

    pub(crate) fn objects(self) -> usize {
        self.objects
    }

    pub(crate) fn changes(self) -> usize {
        self.changes
    }

    pub(crate) const SMOKE: Self = Self {
        clients: 2,
        duration: Duration::from_millis(100),
        objects: 10,
        watchers: 10,
        changes: 2,
    };
}

/// From nothing to the first answer, and what is held in memory then.
pub(crate) async fn start_and_rest(size: Size) -> Result<()> {
    let mut times = Vec::new();
    let mut resident = 0.0;
    for _ in 0..size.changes.min(5) {
        let started = Instant::now();
        let server = Process::start("--serve").await?;
        let code = Connection::open(&server).await?.call(&request("GET", "/readyz", "")).await?;
        expect(200, code)?;
        times.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(500)).await;
        resident = server.resident()?;
    }
    times.sort_unstable();
    let shown = format!("{:.0} ms", percentile(&times, 50).as_secs_f64() * 1e3);
    println!("{:<46} {shown:>12}", "cold start to ready, empty store");
    println!("{:<46} {resident:>9.1} MB", "memory at rest");
    Ok(())
}

/// One object, again and again.
pub(crate) async fn get(
    server: &Process,
    hello: &Process,
    etcd: Option<&Etcd>,
    size: Size,
) -> Result<()> {
    let created = Connection::open(server).await?;
    Creator { connection: created, prefix: "one".to_owned() }.call(0).await?;
    let ask = request("GET", &format!("{CONFIG_MAPS}/one-0"), "");
    measure("GET one object", server, askers(server, &ask, size).await?, size).await?;
    let plain = request("GET", "/", "");
    measure("  baseline: hyper and TLS alone", hello, askers(hello, &plain, size).await?, size)
        .await?;
    if let Some(etcd) = etcd {
        let callers = etcd_callers(etcd, Call::Get, size).await?;
        show("  baseline: etcd get, no TLS", &load(callers, size.duration).await?, None);
    }
    Ok(())
}

/// A thousand objects, again and again.
pub(crate) async fn list(server: &Process, hello: &Process, size: Size) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "many"}});
    let mut connection = Connection::open(server).await?;
    let ask = request("POST", "/api/v1/namespaces", &namespace.to_string());
    expect(201, connection.call(&ask).await?)?;
    let all = "/api/v1/namespaces/many/configmaps";
    for number in 0..size.objects {
        let ask = request("POST", all, &config_map(&format!("object-{number}"), "x"));
        expect(201, connection.call(&ask).await?)?;
    }
    let ask = request("GET", all, "");
    measure("LIST 1,000 objects", server, askers(server, &ask, size).await?, size).await?;
    let plain = request("GET", "/large", "");
    measure(
        "  baseline: hyper and TLS, as many bytes",
        hello,
        askers(hello, &plain, size).await?,
        size,
    )
    .await
}

/// New objects, durable.
pub(crate) async fn create(server: &Process, etcd: Option<&Etcd>, size: Size) -> Result<()> {
    let mut creators = Vec::new();
    for client in 0..size.clients {
        let connection = Connection::open(server).await?;
        creators.push(Creator { connection, prefix: format!("client-{client}") });
    }
    measure("create, durable", server, creators, size).await?;
    if let Some(etcd) = etcd {
        let callers = etcd_callers(etcd, Call::Put, size).await?;
        show("  baseline: etcd put, no TLS", &load(callers, size.duration).await?, None);
    }
    for (what, bytes) in [("one", OBJECT), ("16", 16 * OBJECT)] {
        let synced = tokio::task::spawn_blocking(move || {
            baseline::syncs_per_second(bytes, size.duration / 4)
        });
        let what = format!("  baseline: disk syncs, {what} KB each");
        println!("{what:<46} {:>10.0}/s", synced.await??);
    }
    Ok(())
}

/// One change, to everyone who watches.
pub(crate) async fn watch(server: &Process, hello: &Process, size: Size) -> Result<()> {
    let path = format!("{CONFIG_MAPS}/watched");
    let mut writer = Connection::open(server).await?;
    let first = request("POST", CONFIG_MAPS, &config_map("watched", "first"));
    expect(201, writer.call(&first).await?)?;
    let ask =
        request("GET", &format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Dwatched"), "");
    let change = |mark: &str| {
        let patch = json!({"data": {"value": mark}}).to_string();
        request("PATCH", &path, &patch)
    };
    fan_out("one change to 1,000 watchers", server, &ask, change, size).await?;
    let ask = request("GET", "/watch", "");
    let change = |mark: &str| request("GET", &format!("/send?{mark}"), "");
    fan_out("  baseline: hyper and TLS alone", hello, &ask, change, size).await
}

/// Times each change from its being sent to its being read, by every reader for itself.
async fn fan_out(
    what: &str,
    process: &Process,
    ask: &[u8],
    change: impl Fn(&str) -> Vec<u8>,
    size: Size,
) -> Result<()> {
    let count = u32::try_from(size.watchers)?;
    let read = Arc::new(Semaphore::new(0));
    let mut readers = JoinSet::new();
    for _ in 0..size.watchers {
        let mut connection = Connection::open(process).await?;
        connection.begin(ask).await?;
        readers.spawn(follow(connection, size.changes, Arc::clone(&read)));
    }
    let mut writer = Connection::open(process).await?;
    let mut sent = Vec::new();
    let (before, own_before) = (process.processor_time()?, own_processor_time()?);
    for number in 0..size.changes {
        // Everyone has read what came before and waits.
        tokio::time::sleep(Duration::from_millis(200)).await;
        sent.push(Instant::now());
        expect(200, writer.call(&change(&mark(number))).await?)?;
        read.acquire_many(count).await?.forget();
    }
    let used = process.processor_time()?.saturating_sub(before);
    let own = own_processor_time()?.saturating_sub(own_before);
    let resident = process.resident()?;
    let mut read_by = Vec::new();
    while let Some(reader) = readers.join_next().await {
        let (read, _connection) = reader??;
        read_by.push(read);
    }
    // Since the change was sent, and since the first of all readers had it.
    let (mut times, mut since_first) = (Vec::new(), Vec::new());
    for (number, sent) in sent.iter().enumerate() {
        let read: Vec<Instant> =
            read_by.iter().filter_map(|read| read.get(number).copied()).collect();
        let first = read.iter().min().copied().unwrap_or(*sent);
        times.extend(read.iter().map(|read| *read - *sent));
        since_first.extend(read.iter().map(|read| *read - first));
    }
    times.sort_unstable();
    since_first.sort_unstable();
    let (half, most) = (percentile(&times, 50), percentile(&times, 99));
    let (half_later, most_later) = (percentile(&since_first, 50), percentile(&since_first, 99));
    let events = u32::try_from(times.len())?.max(1);
    let (used, own) = (used / events, own / events);
    println!("{what:<46} {:>12} {half:>10.1?} {most:>10.1?} {used:>8.1?} each", "");
    let (later, clients) = ("  after the first of them has it", "  processor time of the clients");
    println!("{later:<46} {:>12} {half_later:>10.1?} {most_later:>10.1?}", "");
    println!("{clients:<46} {:>12} {:>10} {:>10} {own:>8.1?} each", "", "", "");
    println!("{:<46} {resident:>9.1} MB", "  memory of the server");
    Ok(())
}

/// Reads all changes and returns when each was there, with the connection.
async fn follow(
    mut connection: Connection,
    changes: usize,
    read: Arc<Semaphore>,
) -> Result<(Vec<Instant>, Connection)> {
    let mut times = Vec::with_capacity(changes);
    for number in 0..changes {
        if let Err(error) = connection.read_until(mark(number).as_bytes()).await {
            read.close();
            return Err(error);
        }
        times.push(Instant::now());
        read.add_permits(1);
    }
    Ok((times, connection))
}

/// What tells one change from the others.
fn mark(number: usize) -> String {
    format!("change-{number}-end")
}

/// Memory with 20,000 pods of 4 KB.
pub(crate) async fn many_pods() -> Result<()> {
    const EACH: usize = 1_250;
    let server = Process::start("--serve").await?;
    // Pods are refused until their namespace has its service account.
    let account = request("GET", "/api/v1/namespaces/default/serviceaccounts/default", "");
    let mut connection = Connection::open(&server).await?;
    while connection.call(&account).await? != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut clients = JoinSet::new();
    for client in 0..16 {
        let mut connection = Connection::open(&server).await?;
        clients.spawn(async move {
            for number in 0..EACH {
                let pod = pod(&format!("pod-{client}-{number}"));
                let ask = request("POST", "/api/v1/namespaces/default/pods", &pod);
                expect(201, connection.call(&ask).await?)?;
            }
            Result::Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    println!("{:<46} {:>9.1} MB", "memory with 20,000 pods of 4 KB", server.resident()?);
    // The scheduler still has to say of each pod that it fits nowhere.
    for _ in 0..150 {
        let before = server.processor_time()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        if server.processor_time()?.saturating_sub(before) < Duration::from_millis(40) {
            break;
        }
    }
    println!("{:<46} {:>9.1} MB", "  and an event about each of them", server.resident()?);
    Ok(())
}

/// Sends the same request each time.
pub(crate) struct Asker {
    pub(crate) connection: Connection,
    pub(crate) request: Vec<u8>,
}

impl Caller for Asker {
    async fn call(&mut self, _number: usize) -> Result<()> {
        expect(200, self.connection.call(&self.request).await?)
    }
}

/// Creates another object each time.
struct Creator {
    connection: Connection,
    prefix: String,
}

impl Caller for Creator {
    async fn call(&mut self, number: usize) -> Result<()> {
        let body = config_map(&format!("{}-{number}", self.prefix), "x");
        expect(201, self.connection.call(&request("POST", CONFIG_MAPS, &body)).await?)
    }
}

async fn askers(process: &Process, request: &[u8], size: Size) -> Result<Vec<Asker>> {
    let mut askers = Vec::new();
    for _ in 0..size.clients {
        let connection = Connection::open(process).await?;
        askers.push(Asker { connection, request: request.to_vec() });
    }
    Ok(askers)
}

async fn etcd_callers(etcd: &Etcd, call: Call, size: Size) -> Result<Vec<baseline::EtcdCaller>> {
    let mut callers = Vec::new();
    for client in 0..size.clients {
        callers.push(etcd.caller(client, call).await?);
    }
    Ok(callers)
}

async fn measure(
    what: &str,
    process: &Process,
    callers: Vec<impl Caller>,
    size: Size,
) -> Result<()> {
    let before = process.processor_time()?;
    let load = load(callers, size.duration).await?;
    let used = process.processor_time()?.saturating_sub(before);
    show(what, &load, Some(used));
    Ok(())
}

pub(crate) fn show(what: &str, load: &Load, used: Option<Duration>) {
    let calls = u32::try_from(load.len()).unwrap_or(u32::MAX).max(1);
    let used = used.map_or(String::new(), |used| format!("{:.1?} each", used / calls));
    let (rate, half, most) = (load.rate(), load.percentile(50), load.percentile(99));
    println!("{what:<46} {rate:>10.0}/s {half:>10.1?} {most:>10.1?} {used:>13}");
}

pub(crate) fn expect(wanted: u16, code: u16) -> Result<()> {
    if code == wanted { Ok(()) } else { Err(format!("answered {code}, not {wanted}").into()) }
}

pub(crate) fn config_map(name: &str, value: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "bench", "tier": "load"}},
        "data": {"filler": "x".repeat(OBJECT - 300), "value": value},
    })
    .to_string()
}

fn pod(name: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "bench", "tier": "load"},
            "annotations": {"filler": "x".repeat(2_500)},
        },
        "spec": {"containers": [{
            "name": "main",
            "image": "registry.example/app:1",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    })
    .to_string()
}
