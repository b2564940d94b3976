//! `waybill trace` from elsewhere: the record of nodes, read through the API server by whoever may.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use futures_util::{AsyncBufRead, AsyncBufReadExt, StreamExt, stream};
use waybill_api::trace::TraceOptions;
use waybill_client::{RequestError, Requests};
use waybill_trace::{Heard, ReceivedRecord, SessionQuery};

use super::{Args, recorded, stock};

/// More than any line of a record.
const LINE: usize = 16 << 20;

/// What of sessions is wanted besides who asked for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Detail {
    /// Every program.
    pub(super) programs: bool,
    /// Who else was in their containers.
    pub(super) beside: bool,
    /// What comes after.
    pub(super) follow: bool,
}

/// Nodes that answer, and what they told.
pub(super) struct Remote {
    pub(super) record: ReceivedRecord,
    nodes: Vec<NodeLines>,
}

struct NodeLines {
    name: String,
    lines: Box<dyn AsyncBufRead + Send + Unpin>,
}

/// Whether the record is to be read through an API server.
pub(super) async fn is_meant(args: &Args) -> Result<bool> {
    if args.remote.node.is_some() {
        return Ok(true);
    }
    if !stock::is_meant(args) {
        return Ok(false);
    }
    // A stock cluster has gate; with our own API server the nodes have it all.
    let requests = stock::cluster(args).connect().await?.requests;
    match requests.get(&stock::group_path()).await {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(serves_trace(&requests).await),
        // It says itself what is wrong.
        Err(_) => Ok(false),
    }
}

/// Whether the API server is one of ours, as far as it says.
async fn serves_trace(requests: &Requests) -> bool {
    let Ok(list) = requests.get("/api/v1").await else { return false };
    let resources = list.get("resources").and_then(serde_json::Value::as_array);
    let mut names = resources.into_iter().flatten().filter_map(|it| it.get("name")?.as_str());
    names.any(|name| name == "nodes/trace")
}

impl Remote {
    /// Asks the nodes for what the flags say, and reads everything until now.
    pub(super) async fn open(args: &Args, query: &SessionQuery, detail: Detail) -> Result<Self> {
        let requests = stock::cluster(args).connect().await?.requests;
        let names = match &args.remote.node {
            Some(name) => vec![name.clone()],
            None => nodes(&requests).await?,
        };
        if args.pid.is_some() && names.len() > 1 {
            bail!("--pid is about the processes of one node; name it with --node");
        }
        let options = options(query, detail).to_query();
        let mut open = Vec::new();
        for name in names {
            let path = format!("/api/v1/nodes/{name}/trace?{options}");
            let lines = requests.stream(&path).await;
            let lines = lines.map_err(|error| explain(&name, error))?;
            open.push(NodeLines { name, lines: Box::new(lines) });
        }
        let mut remote = Self { record: ReceivedRecord::new(open.len()), nodes: open };
        remote.read_until_now().await?;
        Ok(remote)
    }

    /// Reads what nodes have on record.
    async fn read_until_now(&mut self) -> Result<()> {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            while hear_next(&self.record, at, node).await? == Heard::Something {}
        }
        Ok(())
    }

    /// Reads on, for as long as it is polled. Ends with the first node that does, and then says why.
    pub(super) async fn watch(&mut self) -> Result<()> {
        let record = &self.record;
        let watching = self.nodes.iter_mut().enumerate().map(|(at, node)| async move {
            loop {
                if let Err(error) = hear_next(record, at, node).await {
                    return error;
                }
            }
        });
        let mut watching: stream::FuturesUnordered<_> = watching.collect();
        match watching.next().await {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

async fn hear_next(record: &ReceivedRecord, at: usize, node: &mut NodeLines) -> Result<Heard> {
    let mut line = Vec::new();
    let name = &node.name;
    loop {
        let buffer = node.lines.fill_buf().await;
        let buffer = buffer.with_context(|| format!("reading the record of node {name}"))?;
        if buffer.is_empty() {
            bail!(
                "the record of node {name} ended before it was whole; its collector or the node may have been restarted"
            );
        }
        let (length, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at, true),
            None => (buffer.len(), false),
        };
        line.extend(buffer.iter().take(length));
        let taken = length + usize::from(is_end);
        node.lines.consume_unpin(taken);
        if is_end {
            let heard = record.hear(at, &line);
            return heard.with_context(|| format!("reading the record of node {name}"));
        }
        if line.len() > LINE {
            bail!("a line of the record of node {name} has no end");
        }
    }
}

/// All of the cluster.
async fn nodes(requests: &Requests) -> Result<Vec<String>> {
    let list = requests.get("/api/v1/nodes").await.map_err(|error| {
        let advice = "whoever may not list nodes names one with --node";
        anyhow::Error::new(error).context(advice)
    })?;
    let items = list.get("items").and_then(serde_json::Value::as_array);
    let names = items.into_iter().flatten().filter_map(|node| {
        node.pointer("/metadata/name").and_then(serde_json::Value::as_str).map(str::to_owned)
    });
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        bail!("the cluster has no nodes");
    }
    Ok(names)
}

fn options(query: &SessionQuery, detail: Detail) -> TraceOptions {
    TraceOptions {
        user: query.user.clone(),
        pod: query.pod.clone(),
        namespace: query.namespace.clone(),
        since: query.since.map(|time| time.to_string()),
        until: query.until.map(|time| time.to_string()),
        command: query.command.clone(),
        variable: query.variable.clone(),
        pid: query.pid,
        session: query.session.clone(),
        probes: query.probes,
        programs: detail.programs,
        beside: detail.beside,
        follow: detail.follow,
    }
}

fn explain(node: &str, error: RequestError) -> anyhow::Error {
    let advice = if error.is_forbidden() {
        format!(
            "the record of node {node} is for those who may `get` `nodes/trace`; the ClusterRole waybill:investigator has that right"
        )
    } else if error.is_not_found() {
        format!("there is no node {node}, or its API server is not ours")
    } else {
        format!("the record of node {node} cannot be read")
    };
    anyhow!(error).context(advice)
}

/// Everything that a page may ask for, and what comes after; the future keeps it up to date.
pub(super) async fn whole(
    args: &Args,
) -> Result<(Arc<ReceivedRecord>, impl Future<Output = Result<()>>)> {
    let query = SessionQuery {
        since: recorded::query(args)?.since,
        probes: true,
        ..SessionQuery::default()
    };
    let detail = Detail { programs: true, beside: false, follow: true };
    let mut remote = Remote::open(args, &query, detail).await?;
    let record = Arc::new(remote.record.clone());
    Ok((record, async move { remote.watch().await }))
}
