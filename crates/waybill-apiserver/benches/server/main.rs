//! The API server under load, over real TLS, against baselines in the same run.
//!
//! The server is a process of its own, this program started again with `--serve`, so that its memory
//! and processor time are its own. Clients are plain HTTP/1.1 on persistent connections. The machine
//! is shared by server and clients, so only the ratio to a baseline in the same run counts;
//! `docs/performance.md` records it. `--test` does one small round of everything, `--large` adds the
//! memory of 20,000 pods, and `--only get|list|create|watch|fair|connection|pods` leaves out the rest.

#![expect(clippy::print_stdout, reason = "the numbers are what this program is for")]

mod baseline;
mod client;
mod process;
mod scenario;
mod shares;

use std::{error::Error, path::Path};

use self::{baseline::Etcd, process::Process, scenario::Size};

/// Most steps can fail in many ways, none of which this program can mend.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.as_slice() {
        [mode, directory] if mode == "--serve" => {
            runtime.block_on(process::serve(Path::new(directory)))
        }
        [mode, directory] if mode == "--hello" => {
            runtime.block_on(baseline::serve_hello(Path::new(directory)))
        }
        [mode, address, authority] if mode == "--greedy" => {
            runtime.block_on(shares::list_without_end(address, Path::new(authority)))
        }
        _ => {
            let size = if has("--test") { Size::SMOKE } else { Size::FULL };
            let only = arguments.iter().skip_while(|argument| *argument != "--only").nth(1);
            let wanted = |name: &str| match only {
                Some(only) => only == name,
                None => name != "pods" || has("--large"),
            };
            runtime.block_on(run(size, wanted))
        }
    }
}

async fn run(size: Size, wanted: impl Fn(&str) -> bool) -> Result<()> {
    println!(
        "{:<46} {:>12} {:>10} {:>10} {:>13}",
        "what", "rate or size", "p50", "p99", "server CPU"
    );
    if wanted("start") {
        scenario::start_and_rest(size).await?;
    }
    let server = Process::start("--serve").await?;
    let hello = Process::start("--hello").await?;
    let etcd = Etcd::start().await?;
    if etcd.is_none() {
        println!("SKIPPED: no etcd found; see store/etcd/server.rs for where it is looked for");
    }
    if wanted("get") {
        scenario::get(&server, &hello, etcd.as_ref(), size).await?;
    }
    if wanted("list") {
        scenario::list(&server, &hello, size).await?;
    }
    if wanted("create") {
        scenario::create(&server, etcd.as_ref(), size).await?;
    }
    if wanted("watch") {
        scenario::watch(&server, &hello, size).await?;
    }
    println!("{:<46} {:>9.1} MB", "memory after all that", server.resident()?);
    if wanted("fair") {
        shares::fair(size).await?;
    }
    if wanted("connection") {
        shares::connection(size).await?;
    }
    if wanted("pods") {
        scenario::many_pods().await?;
    }
    Ok(())
}
