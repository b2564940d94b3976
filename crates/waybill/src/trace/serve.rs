//! `waybill trace --serve`: the page, for a browser on this machine.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    thread,
};

use anyhow::{Context, Result, anyhow};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;
use waybill_core::chain::Chain;
use waybill_trace::{
    LiveSource, LocalRecord, PageAddress, PageServer, Runtime, SavedTrace, TraceSource,
};

use super::{Args, named_audit_log, now, remote, runtime_socket};
use crate::{Outcome, state_dir::trusted_directory};

/// Where the page is served, and of what.
#[derive(clap::Args)]
#[command(next_help_heading = "A page")]
pub(super) struct ServeArgs {
    /// Serve a page for a browser: timeline, programs, search, export. On this machine alone, behind a link that works once.
    #[arg(
        long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7434",
        conflicts_with_all = ["follow", "pid", "denied", "output"]
    )]
    serve: Option<PageAddress>,

    /// Serve what the page saved as JSON, also without a cluster, instead of this machine's record.
    #[arg(long, value_name = "FILE", requires = "serve")]
    from: Option<PathBuf>,
}

impl ServeArgs {
    /// Whether it is about what was saved, wherever that was.
    pub(super) fn is_of_file(&self) -> bool {
        self.from.is_some()
    }

    /// Whether the page is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.serve.is_some()
    }
}

/// Serves until a signal: what was saved, what nodes tell through the API server, or what is on this machine.
pub(super) fn run(args: &Args, is_remote: bool) -> Result<Outcome> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let address = args.serve.serve.unwrap_or_default();
        match &args.serve.from {
            Some(file) => {
                let saved = SavedTrace::read(file).map_err(|error| anyhow!("{}", Chain(&error)))?;
                serve(args, address, Arc::new(saved), std::future::pending()).await
            }
            None if is_remote => {
                let (record, watch) = remote::whole(args).await?;
                let watch = async move {
                    if let Err(error) = watch.await {
                        // The page goes on with what it has.
                        let _ = writeln!(
                            io::stderr(),
                            "waybill: {error:#}; start the page again for what is new"
                        );
                    }
                    std::future::pending::<()>().await;
                };
                serve(args, address, record, watch).await
            }
            None => {
                let record = open(args).await?;
                let watched = record.clone();
                serve(args, address, Arc::new(record), async move { watched.watch().await }).await
            }
        }
    })
}

/// The record of this machine. What is kept in files can be read without a runtime, too.
async fn open(args: &Args) -> Result<LocalRecord> {
    let state_dir = trusted_directory(&args.state_dir)?;
    let audit_log = named_audit_log(args)?;
    let socket = args.runtime.clone().unwrap_or_else(|| runtime_socket(&args.state_dir));
    let live = match Runtime::connect(&socket).await {
        Ok(runtime) => Some(LiveSource::new(&audit_log, runtime)),
        Err(error) => {
            let error = Chain(&error);
            writeln!(
                io::stderr(),
                "waybill: {error}: the page shows what was recorded, and nothing new"
            )?;
            None
        }
    };
    Ok(LocalRecord::new(&record_of(&state_dir), live))
}

fn record_of(state_dir: &Path) -> PathBuf {
    state_dir.join("trace")
}

async fn serve(
    args: &Args,
    address: PageAddress,
    source: Arc<dyn TraceSource>,
    watch: impl Future<Output = ()>,
) -> Result<Outcome> {
    let stop = CancellationToken::new();
    let server = PageServer::bind(address, source, now, stop.clone()).await.with_context(|| {
        format!(
            "cannot serve on {address}; is the page served already? `--serve 0` takes a free port"
        )
    })?;
    greet(&server, &query(args))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut wishes = wishes();
    let asked = async {
        loop {
            tokio::select! {
                result = tokio::signal::ctrl_c() => return result.map_err(Into::into),
                _ = terminate.recv() => return Ok(()),
                Some(()) = wishes.recv() => {
                    writeln!(io::stdout(), "{}", server.new_link(&query(args))?)?;
                }
            }
        }
    };
    let mut serving = pin!(server.serve());
    let ended: Result<()> = tokio::select! {
        ended = asked => ended,
        () = watch => Ok(()),
        () = serving.as_mut() => return Ok(Outcome::Success),
    };
    stop.cancel();
    // Whoever is being answered gets the rest.
    serving.await;
    ended.map(|()| Outcome::Success)
}

fn greet(server: &PageServer, query: &str) -> Result<()> {
    let link = server.new_link(query)?;
    let mut output = io::stdout().lock();
    writeln!(
        output,
        "Open this link within 15 minutes; it works once, in one browser of this machine:\n\n  {link}\n"
    )?;
    let port = server.address().port();
    writeln!(output, "From elsewhere, first: ssh -L {port}:127.0.0.1:{port} NODE")?;
    if io::stdin().is_terminal() {
        writeln!(output, "Enter makes a new link; Ctrl-C ends the page.")?;
    }
    output.flush()?;
    Ok(())
}

/// What the page shows at first: what the other flags ask for.
fn query(args: &Args) -> String {
    let pairs = [("user", args.user.as_deref()), ("pod", args.pod.as_deref())];
    let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let pairs = pairs.map(|(name, value)| (name, format!("\"{value}\"")));
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// One for each line that somebody types; none where nobody can. The thread ends with the process.
fn wishes() -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    if io::stdin().is_terminal() {
        thread::spawn(move || {
            for _ in io::stdin().lock().lines().map_while(Result::ok) {
                if sender.blocking_send(()).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}
