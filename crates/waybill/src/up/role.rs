//! One role of the stack as a process: started, watched, started again when it dies, stopped.

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncBufReadExt,
    process::{Child, ChildStdout, Command},
    time::{sleep, timeout},
};

use super::Progress;

/// How long a role may take to say that it serves. A machine may be slow, such as an emulated one; a role that ends
/// is noticed at once.
const PATIENCE: Duration = Duration::from_secs(120);

/// The first wait before a role is started again; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A role that ran so long is not one that cannot start.
const STEADY: Duration = Duration::from_secs(60);

/// A log that is larger is put aside at the next start.
const LOG_BYTES: u64 = 16 << 20;

/// How many lines of a log are shown when a role does not start.
const SHOWN_LINES: usize = 10;

/// What a role prints when it is ready.
const READY: &str = "serving on ";

/// A process of ours, and how to start it again.
pub(super) struct Role {
    name: &'static str,
    arguments: Vec<OsString>,
    log: PathBuf,
    /// Whether its log is for the terminal too.
    shown: bool,
    running: Option<Running>,
    wait: Duration,
}

struct Running {
    child: Child,
    /// Held open, so that the role can write to it.
    output: tokio::io::BufReader<ChildStdout>,
    since: Instant,
}

impl Role {
    /// A role that is not running yet. `arguments` follow the name of our program.
    pub(super) fn new(
        name: &'static str,
        arguments: Vec<OsString>,
        log: PathBuf,
        shown: bool,
    ) -> Self {
        Self { name, arguments, log, shown, running: None, wait: FIRST_WAIT }
    }

    /// What people read.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Starts it and waits until it serves; returns where.
    pub(super) async fn start(&mut self) -> Result<String> {
        put_aside(&self.log);
        self.spawn()?;
        match self.serving().await {
            Ok(place) => Ok(place),
            Err(error) => {
                self.kill().await;
                let tail = tail(&self.log);
                let log = self.log.display();
                Err(error.context(format!("the end of {log}:\n{tail}\nthe {} failed", self.name)))
            }
        }
    }

    /// Changes an argument for later starts.
    pub(super) fn replace_argument(&mut self, old: &str, new: &str) {
        for argument in &mut self.arguments {
            if argument == old {
                *argument = new.into();
            }
        }
    }

    /// Keeps it running. Never returns.
    pub(super) async fn keep(&mut self, progress: &Progress) -> Infallible {
        loop {
            let ended = self.ended().await;
            let wait = self.wait;
            self.wait = (wait * 2).min(LONGEST_WAIT);
            progress.note(&format!(
                "the {} {ended}; starting it again in {:.1} s; its log: {}",
                self.name,
                wait.as_secs_f64(),
                self.log.display()
            ));
            sleep(wait).await;
            match self.restart().await {
                Ok(()) => progress.note(&format!("the {} is back", self.name)),
                Err(error) => progress.note(&format!("{error:#}")),
            }
        }
    }

    /// Kills it and starts it again at once, such as for new certificates.
    pub(super) async fn replace(&mut self) -> Result<()> {
        self.kill().await;
        self.restart().await
    }

    /// Asks it to end, and waits for that.
    pub(super) async fn stop(&mut self, patience: Duration) -> Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        signal(&running.child, Signal::TERM);
        let status = match timeout(patience, running.child.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                self.kill().await;
                bail!(
                    "the {} did not end within {} s and was killed",
                    self.name,
                    patience.as_secs()
                );
            }
        };
        self.running = None;
        if !status.success() {
            bail!("the {} ended with {}; its log: {}", self.name, told(status), self.log.display());
        }
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        self.spawn()?;
        self.serving().await.map(drop).with_context(|| format!("the {} does not start", self.name))
    }

    /// Says how it ended, once it has.
    async fn ended(&mut self) -> String {
        let Some(running) = &mut self.running else { return "does not run".to_owned() };
        let status = running.child.wait().await;
        if running.since.elapsed() > STEADY {
            self.wait = FIRST_WAIT;
        }
        self.running = None;
        match status {
            Ok(status) => format!("ended with {}", told(status)),
            Err(error) => format!("is lost: {error}"),
        }
    }

    fn spawn(&mut self) -> Result<()> {
        let doing = || format!("cannot start the {}", self.name);
        let program = std::env::current_exe().context("finding this program")?;
        let log = File::options().create(true).append(true).open(&self.log).with_context(doing)?;
        let mut command = Command::new(program);
        command
            .args(["--supervisor", &std::process::id().to_string()])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Ctrl-C on the terminal is for us; we tell the roles in their order.
            .process_group(0)
            .kill_on_drop(true);
        if self.shown {
            let (reader, writer) = io::pipe().with_context(doing)?;
            command.stderr(OwnedFd::from(writer));
            show(self.name, reader, log).with_context(doing)?;
        } else {
            command.stderr(log);
        }
        let mut child = command.spawn().with_context(doing)?;
        let output = child.stdout.take().context("standard output is a pipe")?;
        let output = tokio::io::BufReader::new(output);
        self.running = Some(Running { child, output, since: Instant::now() });
        Ok(())
    }

    /// Waits for the line that says where it serves.
    async fn serving(&mut self) -> Result<String> {
        let Some(running) = &mut self.running else { bail!("it does not run") };
        let mut line = String::new();
        let read = timeout(PATIENCE, running.output.read_line(&mut line)).await;
        match read {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error).context("reading what it prints"),
            Err(_) => bail!("it was not ready within {} s", PATIENCE.as_secs()),
        }
        match line.trim_end().strip_prefix(READY) {
            Some(place) => Ok(place.to_owned()),
            None if line.is_empty() => {
                let status = running.child.wait().await?;
                bail!("it ended with {}", told(status))
            }
            None => bail!("it printed {line:?} instead of where it serves"),
        }
    }

    async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            // It may be gone by itself.
            let _ = running.child.kill().await;
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may be gone by itself, but nobody has taken its number: we have not waited for it.
        let _ = kill_process(pid, signal);
    }
}

fn told(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("code {code}"),
        None => status.to_string(),
    }
}

/// Copies a log to its file and to the terminal. The thread ends with the role. A machine that gives none is an error, after which
/// the role is started again like one that ended.
fn show(name: &'static str, log: io::PipeReader, mut file: File) -> io::Result<()> {
    let copy = move || {
        for line in BufReader::new(log).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            let _ = writeln!(file, "{line}");
            let _ = writeln!(io::stderr().lock(), "{name}: {line}");
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(copy).map(drop)
}

/// One older log is kept.
fn put_aside(log: &Path) {
    if fs::metadata(log).is_ok_and(|it| it.len() > LOG_BYTES) {
        // Without it the log only grows on.
        let _ = fs::rename(log, log.with_extension("log.old"));
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(SHOWN_LINES);
    lines.iter().skip(skipped).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
