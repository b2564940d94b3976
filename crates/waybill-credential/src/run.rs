//! One run of a plugin: a process with bounded time and bounded output.
//!
//! The plugin gets our question in its environment and, if it talks to a person, our standard input. Its
//! standard error is ours. It is killed with all its children when it takes too long, prints too much, or when
//! nobody waits for it any more.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use waybill_core::secret::SecretBytes;

use crate::{
    ClusterInfo, DecodeError, ExecStanza, Options, PluginError,
    family::{Family, Running},
    lookup,
    message::{EXEC_INFO, question},
    process::has_terminal,
};

/// Far more than a token and a chain of certificates need.
pub(crate) const OUTPUT: usize = 1 << 20;

/// What the plugin itself wrote can be read at once when it has exited. A child that it left behind may keep the pipe open
/// for ever.
const AFTER_EXIT: Duration = Duration::from_secs(1);

/// For a process that was killed to be gone.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Runs the plugin and returns what it printed.
pub(crate) async fn run(
    stanza: &ExecStanza,
    cluster: &ClusterInfo,
    options: &Options,
) -> Result<SecretBytes, PluginError> {
    let interactive =
        options.stdin.is_for(stanza.interactive_mode).map_err(PluginError::Interactive)?;
    let cluster = stanza.provide_cluster_info.then_some(cluster);
    let question = question(stanza.api_version, interactive, cluster);
    run_with(stanza, options, &question, Talk::lent(interactive)).await
}

/// With whom a plugin may talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    /// With whoever sits at our standard input, for as long as they like.
    OnStdin,
    /// With whoever sits at the terminal, if there is one and the plugin opens it itself, within its time.
    OnTerminal,
    #[cfg(feature = "agent")]
    WithNobody,
}

impl Talk {
    /// Standard input is lent or not; the terminal is open to every process.
    pub(crate) fn lent(stdin: bool) -> Self {
        if stdin { Self::OnStdin } else { Self::OnTerminal }
    }
}

/// The same with a question that is already put.
pub(crate) async fn run_with(
    stanza: &ExecStanza,
    options: &Options,
    question: &str,
    talk: Talk,
) -> Result<SecretBytes, PluginError> {
    let program = lookup::find(&stanza.command, options.path()).ok_or_else(|| not_found(stanza))?;
    let program = options.policy.allowed(program, options.path());
    let program = program.ok_or_else(|| PluginError::Denied { command: stanza.command.clone() })?;
    let mut command = command(stanza, &program, options);
    command.env(EXEC_INFO, question);
    let stdin = if talk == Talk::OnStdin { Stdio::inherit() } else { Stdio::null() };
    command.stdin(stdin);
    let leads_group = match talk {
        Talk::OnStdin => false,
        Talk::OnTerminal => !has_terminal(),
        #[cfg(feature = "agent")]
        Talk::WithNobody => true,
    };
    if leads_group {
        command.process_group(0);
    }
    let family_of = |plugin| {
        if leads_group { Family::Group(plugin) } else { Family::in_our_group(plugin, question) }
    };
    let (family, child) = Running::start(|| command.spawn(), family_of)
        .map_err(|cause| start_error(stanza, &program, cause))?;
    let limit = (talk != Talk::OnStdin).then_some(options.timeout);
    Run { family: Some(family), child }.finish(stanza, limit).await
}

/// The program with its arguments and variables. No shell is involved.
fn command(stanza: &ExecStanza, program: &Path, options: &Options) -> Command {
    let mut command = Command::new(program);
    command.arg0(&stanza.command).args(&stanza.args);
    command.env_clear().envs(options.environment.iter().map(|(name, value)| (name, value)));
    for name in &stanza.drop_env {
        command.env_remove(name);
    }
    command.envs(stanza.env.iter().map(|(name, value)| (name, value)));
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    command
}

/// Its help is added by whoever knows how often it was given.
fn not_found(stanza: &ExecStanza) -> PluginError {
    PluginError::NotFound { command: stanza.command.clone(), help: String::new() }
}

fn start_error(stanza: &ExecStanza, program: &Path, cause: io::Error) -> PluginError {
    // A script whose interpreter is missing has the same error, and is there.
    if cause.kind() == io::ErrorKind::NotFound && !program.exists() {
        return not_found(stanza);
    }
    PluginError::Start { command: stanza.command.clone(), cause }
}

/// A plugin under way. Dropping it kills the plugin; its family goes first, while it has not been waited for.
struct Run {
    family: Option<Running>,
    child: Child,
}

impl Run {
    async fn finish(
        mut self,
        stanza: &ExecStanza,
        limit: Option<Duration>,
    ) -> Result<SecretBytes, PluginError> {
        let start_error = |cause| PluginError::Start { command: stanza.command.clone(), cause };
        let ended = match limit {
            None => self.read_to_end().await,
            Some(limit) => match timeout(limit, self.read_to_end()).await {
                Ok(ended) => ended,
                Err(_) => {
                    self.kill().await;
                    return Err(PluginError::Timeout { command: stanza.command.clone(), limit });
                }
            },
        };
        match ended.map_err(start_error)? {
            Ended::TooLong => {
                self.kill().await;
                Err(PluginError::Decode(DecodeError::TooLong { limit: OUTPUT }))
            }
            Ended::Exited(status, printed) if status.success() => Ok(printed),
            Ended::Exited(status, _) => Err(PluginError::Exit {
                command: stanza.command.clone(),
                code: status.code().unwrap_or(-1),
            }),
        }
    }

    /// Reads until the plugin has exited and everything that it printed is here.
    async fn read_to_end(&mut self) -> io::Result<Ended> {
        // It never grows, so no copy of a credential stays behind.
        let mut printed = Vec::with_capacity(OUTPUT + 1);
        let mut stdout = self.child.stdout.take();
        let status = loop {
            tokio::select! {
                biased;
                read = read(&mut stdout, &mut printed), if stdout.is_some() => match read? {
                    0 => stdout = None,
                    _ if printed.len() > OUTPUT => return Ok(Ended::TooLong),
                    _ => {}
                },
                status = self.child.wait() => break status?,
            }
        };
        if let Some(family) = self.family.as_ref().filter(|_| status.signal().is_some()) {
            family.kill_orphans();
        }
        self.leave_alone();
        let rest = async {
            while stdout.is_some() && printed.len() <= OUTPUT {
                if read(&mut stdout, &mut printed).await? == 0 {
                    break;
                }
            }
            io::Result::Ok(())
        };
        if let Ok(read) = timeout(AFTER_EXIT, rest).await {
            read?;
        }
        if printed.len() > OUTPUT {
            return Ok(Ended::TooLong);
        }
        Ok(Ended::Exited(status, SecretBytes::from(printed)))
    }

    async fn kill(mut self) {
        if let Some(family) = &self.family {
            family.kill();
        }
        let _ = self.child.start_kill();
        // Waiting for it leaves no zombie.
        let _ = timeout(AFTER_KILL, self.child.wait()).await;
        self.leave_alone();
    }

    /// The plugin has been waited for.
    fn leave_alone(&mut self) {
        if let Some(mut family) = self.family.take() {
            family.leave_alone();
        }
    }
}

async fn read(stdout: &mut Option<ChildStdout>, printed: &mut Vec<u8>) -> io::Result<usize> {
    match stdout {
        None => Ok(0),
        Some(stdout) => {
            let room = u64::try_from(OUTPUT + 1 - printed.len()).unwrap_or(0);
            stdout.take(room).read_buf(printed).await
        }
    }
}

enum Ended {
    Exited(ExitStatus, SecretBytes),
    TooLong,
}
