//! Where log lines of long-running commands go: standard error, as text or JSON.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

/// Starts logging; `RUST_LOG` chooses what, `info` by default.
pub(crate) fn start(format: LogFormat) {
    start_at(format, 0);
}

/// The same with more by default: `debug` for 1, `trace` for more.
pub(crate) fn start_at(format: LogFormat, verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let mut filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    // It logs whole answers that it does not understand, Secrets among them; what fails we tell ourselves.
    if let Ok(silence) = "kube_client=off".parse() {
        filter = filter.add_directive(silence);
    }
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match format {
        LogFormat::Json => builder.json().init(),
        LogFormat::Text => builder.init(),
    }
}
