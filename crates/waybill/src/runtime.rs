//! `waybill runtime`: the container runtime as a process of its own.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};
use waybill_runtime::{
    cri::{Config, Server, UnsetSeccompProfile},
    engine::Spawner,
};

use crate::{
    Outcome,
    log::{self, LogFormat},
    open_files, rest,
    state_dir::own_directory,
    swap,
};

/// Run a container runtime that kubelets talk to.
///
/// Serves CRI v1, runtime and images, on a Unix socket that only root can use. It is the first
/// runtime that gives exec sessions variables of their own (ExecRequest.envs), and each session a
/// cgroup, so that the kernel knows who runs what.
///
/// Containers do not depend on this process: stop it, upgrade it or kill it, and they go on running,
/// logging and ending; started again, it continues with them. Their environment is in memory only.
///
/// Pods get the machine's network or one with nothing but loopback. Not supported so far, and refused
/// when asked for: CNI.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill runtime &
  kubelet --container-runtime-endpoint unix:///run/waybill/runtime.sock …
  crictl --runtime-endpoint unix:///run/waybill/runtime.sock info

Two runtimes on one machine need different sockets, state and run directories.")]
pub(crate) struct Args {
    /// Socket to serve on.
    #[arg(
        long,
        value_name = "unix:///PATH",
        default_value = "unix:///run/waybill/runtime.sock",
        value_parser = parse_socket
    )]
    listen: PathBuf,

    /// Directory for images and what containers write; on a disk, made if it is missing.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/waybill/runtime")]
    state_dir: PathBuf,

    /// Directory for records of what runs. Never touches a disk: a tmpfs is mounted there.
    #[arg(long, value_name = "DIR", default_value = "/run/waybill/runtime")]
    run_dir: PathBuf,

    /// Address for exec, attach and port-forward streams; port 0 takes a free one.
    ///
    /// Whoever has a URL with a token can use it once, within a minute. Keep it on loopback.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    streaming_address: SocketAddr,

    /// Variable that every exec session gets, over all others; repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    exec_env: Vec<(String, Vec<u8>)>,

    /// Seccomp profile of containers whose request names none.
    ///
    /// `unconfined` is what containerd's setting of this name means by default, and what critest
    /// expects. Nodes of Waybill always name a profile, and so do kubelets with `seccompDefault`.
    #[arg(long, value_name = "PROFILE", default_value = "runtime/default")]
    unset_seccomp_profile: UnsetSeccomp,

    /// How log lines look.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// Log more; twice for everything. RUST_LOG overrides it.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// By containerd's words.
#[derive(Clone, Copy, clap::ValueEnum)]
enum UnsetSeccomp {
    #[value(name = "runtime/default")]
    RuntimeDefault,
    #[value(name = "unconfined")]
    Unconfined,
}

impl From<UnsetSeccomp> for UnsetSeccompProfile {
    fn from(asked: UnsetSeccomp) -> Self {
        match asked {
            UnsetSeccomp::RuntimeDefault => Self::RuntimeDefault,
            UnsetSeccomp::Unconfined => Self::Unconfined,
        }
    }
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    // Monitors need as many as the runtime; containers are told apart.
    let container_open_files = open_files::raise();
    // Before there is any thread: the spawner forks.
    let spawner = Spawner::start().context("starting the spawner process")?;
    log::start_at(args.log_format, args.verbose);
    swap::stay_out();
    let listen = args.listen.clone();
    let config = Config {
        listen: args.listen,
        state_dir: own_directory(&args.state_dir)?,
        run_dir: own_directory(&args.run_dir)?,
        streaming_address: args.streaming_address,
        exec_env: args.exec_env,
        container_open_files,
        unset_seccomp_profile: args.unset_seccomp_profile.into(),
        clock: Arc::new(nanoseconds),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut server = Server::start(config, spawner).await?;
        rest::hold_little_memory();
        writeln!(io::stdout(), "serving on unix://{}", listen.display())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = tokio::signal::ctrl_c() => result?,
            _ = terminate.recv() => {}
            reason = server.failed() => bail!("the server failed: {reason}"),
        }
        server.stop().await;
        Ok(Outcome::Success)
    })
}

fn nanoseconds() -> i64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// `unix:///path`, or a path alone.
pub(crate) fn parse_socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").unwrap_or(text);
    if !path.starts_with('/') {
        return Err("expected unix:///PATH with an absolute path".to_owned());
    }
    Ok(PathBuf::from(path))
}

fn parse_variable(text: &str) -> Result<(String, Vec<u8>), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.into())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_an_absolute_path_with_or_without_a_scheme() {
        assert_eq!(parse_socket("unix:///run/a.sock"), Ok("/run/a.sock".into()));
        assert_eq!(parse_socket("/run/a.sock"), Ok("/run/a.sock".into()));
        for wrong in ["unix://run/a.sock", "a.sock", "tcp://127.0.0.1:1", ""] {
            assert!(parse_socket(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_container_without_a_seccomp_profile_is_confined_unless_an_operator_says_so() {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: Args,
        }
        let parse = |words: &[&str]| {
            let words = ["runtime"].iter().chain(words);
            let parsed = <Command as clap::Parser>::try_parse_from(words).ok();
            parsed.map(|it| UnsetSeccompProfile::from(it.args.unset_seccomp_profile))
        };
        let flag = "--unset-seccomp-profile";
        assert_eq!(parse(&[]), Some(UnsetSeccompProfile::RuntimeDefault));
        assert_eq!(parse(&[flag, "runtime/default"]), Some(UnsetSeccompProfile::RuntimeDefault));
        assert_eq!(parse(&[flag, "unconfined"]), Some(UnsetSeccompProfile::Unconfined));
        assert_eq!(parse(&[flag, ""]), None);
    }

    #[test]
    fn a_variable_has_a_name() {
        assert_eq!(parse_variable("A=b=c"), Ok(("A".into(), b"b=c".to_vec())));
        assert_eq!(parse_variable("A="), Ok(("A".into(), Vec::new())));
        assert!(parse_variable("A").is_err() && parse_variable("=b").is_err());
    }
}
