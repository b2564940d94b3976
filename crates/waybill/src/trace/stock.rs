//! `waybill trace` on a stock cluster: gate tells what gates and nodes have on record, and needs no root.

mod table;

use std::{
    collections::HashMap,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use waybill_api::stock::{STOCK_GROUP, STOCK_VERSION, SessionList};
use waybill_client::Requests;
use waybill_trace::{AuditLog, End, Filter, Standing, StockTrace, join_stock};

use super::{Args, Output, filter};
use crate::{
    Outcome,
    cluster::ClusterArgs,
    terminal::{escaped, plain},
};

/// How often gate is asked while following. It asks all nodes.
const LOOK: Duration = Duration::from_secs(2);

/// Which cluster. With one of these, or where no `waybill up` is on this machine, the nodes of a cluster of ours are asked, or gate of a
/// stock cluster.
#[derive(clap::Args)]
pub(super) struct StockArgs {
    /// The kubeconfig of a cluster; without it $KUBECONFIG or ~/.kube/config, if no `waybill up` is on this machine.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,

    /// The context in it, rather than its current one.
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,

    /// Only sessions of this namespace; on a stock cluster that needs the right to list them there alone.
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

impl StockArgs {
    /// Of the pods.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// Whether a stock cluster is meant: somebody names one, or there is nothing else.
pub(super) fn is_meant(args: &Args) -> bool {
    let StockArgs { kubeconfig, context, .. } = &args.stock;
    let named = kubeconfig.is_some() || context.is_some();
    named || (args.runtime.is_none() && args.audit_log.is_none() && !args.state_dir.exists())
}

/// The cluster that the flags name.
pub(super) fn cluster(args: &Args) -> ClusterArgs {
    let StockArgs { kubeconfig, context, namespace } = &args.stock;
    ClusterArgs::of(kubeconfig.clone(), context.clone(), namespace.clone())
}

/// Where a cluster with gate says so.
pub(super) fn group_path() -> String {
    format!("/apis/{STOCK_GROUP}/{STOCK_VERSION}")
}

/// Shows sessions of a stock cluster.
pub(super) fn run(args: &Args) -> Result<Outcome> {
    if args.pid.is_some() {
        bail!(
            "--pid is about processes of this machine's `waybill up`; on a node of a stock cluster, look for the directory \
             waybill-<session> in /proc/PID/cgroup, and for that session here"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let filter = filter(args)?;
        let mut sources = StockSources::open(args, &filter).await?;
        if args.follow {
            return follow(&mut sources, &filter, args).await;
        }
        let (traces, missing) = sources.read(&filter, args.denied).await?;
        let mut output = io::stdout().lock();
        match args.output {
            Output::Json => {
                writeln!(output, "{}", escaped(&serde_json::to_string_pretty(&traces)?))?;
            }
            Output::Csv | Output::Table | Output::Wide => {
                write!(output, "{}", table::all(&traces))?;
            }
        }
        tell_missing(&missing)?;
        Ok(Outcome::Success)
    })
}

/// Where the parts of the answer come from.
struct StockSources {
    requests: Requests,
    path: String,
    audit: Option<AuditLog>,
}

impl StockSources {
    async fn open(args: &Args, filter: &Filter) -> Result<Self> {
        let namespace = &args.stock.namespace;
        let requests = cluster(args).connect().await?.requests;
        let (of_pod, pod) = match args.pod.as_deref().map(|pod| pod.split_once('/').ok_or(pod)) {
            Some(Ok((namespace, pod))) => (Some(namespace.to_owned()), Some(pod)),
            Some(Err(pod)) => (None, Some(pod)),
            None => (None, None),
        };
        if let (Some(named), Some(of_pod)) = (namespace, &of_pod)
            && named != of_pod
        {
            bail!("--namespace says {named} and --pod {of_pod}; leave one of them away");
        }
        let place = namespace.clone().or(of_pod);
        let place = place.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        let mut query = Vec::new();
        query.extend(pod.map(|pod| format!("pod={pod}")));
        query.extend(filter.since.map(|since| format!("since={}", since.as_second())));
        let path =
            format!("/apis/{STOCK_GROUP}/{STOCK_VERSION}{place}/sessions?{}", query.join("&"));
        let audit = args.audit_log.as_deref().map(AuditLog::at);
        Ok(Self { requests, path, audit })
    }

    /// What is wanted, and what could not be had.
    async fn read(
        &mut self,
        filter: &Filter,
        denied: bool,
    ) -> Result<(Vec<StockTrace>, Vec<String>)> {
        let answer = self.requests.get(&self.path).await.map_err(|error| {
            let advice = match &error {
                error if error.is_not_found() => {
                    "the cluster has no gate of ours; `waybill install` makes one, and `waybill up` has --state-dir"
                }
                error if error.is_forbidden() => {
                    "the ClusterRole waybill-trace has the right; with -n NAMESPACE it is enough to have it there"
                }
                _ => "gate answers below that path; `kubectl get apiservice v1.exec.waybill.dev` says whether it is there",
            };
            anyhow::Error::new(error).context(advice)
        })?;
        let list: SessionList =
            serde_json::from_value(answer).context("gate's answer is not understood")?;
        // After the sessions: a request is recorded before its session begins.
        let none = Default::default();
        let audited = match &mut self.audit {
            Some(log) => {
                log.refresh()?;
                log.requests()
            }
            None => &none,
        };
        let traces = join_stock(&list, audited).into_iter();
        let traces = traces.filter(|trace| trace.is_wanted(filter, denied)).collect();
        let missing = list.missing.iter().map(|it| format!("{}: {}", it.of, it.why)).collect();
        Ok((traces, missing))
    }
}

/// Shows each session when it is first seen, and again when something about it has changed.
async fn follow(sources: &mut StockSources, filter: &Filter, args: &Args) -> Result<Outcome> {
    let mut shown: HashMap<String, (Standing, bool)> = HashMap::new();
    let mut table = table::Lines::default();
    let mut told = Vec::new();
    loop {
        let (traces, missing) = sources.read(filter, args.denied).await?;
        for trace in traces {
            let now = (trace.standing, matches!(trace.end, End::Exited { .. } | End::Over { .. }));
            if shown.insert(identity(&trace), now) == Some(now) {
                continue;
            }
            let line = match args.output {
                Output::Json => escaped(&serde_json::to_string(&trace)?),
                Output::Csv | Output::Table | Output::Wide => table.line(&trace),
            };
            writeln!(io::stdout(), "{line}")?;
        }
        if missing != told {
            tell_missing(&missing)?;
            told = missing;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            result = tokio::signal::ctrl_c() => {
                result?;
                return Ok(Outcome::Success);
            }
        }
    }
}

/// What tells one from another. What has no session is told once by one node, at one time.
fn identity(trace: &StockTrace) -> String {
    match &trace.session {
        Some(session) => format!("{session} {}", trace.node.as_deref().unwrap_or_default()),
        None => format!(
            "{:?} {} {}/{} {:?}",
            trace.node, trace.started, trace.namespace, trace.pod, trace.caller
        ),
    }
}

/// Nobody should take a part for the whole.
fn tell_missing(missing: &[String]) -> io::Result<()> {
    let mut errors = io::stderr().lock();
    missing.iter().try_for_each(|it| writeln!(errors, "not here: {}", plain(it)))
}
