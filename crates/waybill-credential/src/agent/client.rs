//! The client's side: asks the agent, starts it if there is none, and does without it if anything is wrong.

use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};
use waybill_core::secret::SecretBytes;

use super::{
    invocation::Invocation,
    place::Place,
    wire::{Ask, Failure, Holder, Listing, Reply, Report, Request, receive, send},
};

/// An agent that is there answers at once, except on a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that ends closes its connections before its socket: for a moment, who comes back is let in and turned away again.
const WHILE_IT_DIES: [u64; 5] = [1, 10, 50, 100, 200];

/// After it, whoever waits for somebody else is told so.
const UNTIL_NOTICE: Duration = Duration::from_secs(3);

/// The agent of this user.
#[derive(Debug)]
pub struct Agent {
    place: Place,
    launcher: Launcher,
}

/// How an agent is started: a program that calls [`super::serve()`].
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Under which name it appears.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// What came of an invocation.
pub enum Fetched {
    /// What the plugin printed, now or earlier.
    Printed(SecretBytes),
    /// The plugin failed.
    Failed(Failure),
}

/// Something that people may want to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Another process runs the plugin, and it takes a while.
    Waiting {
        /// Its number.
        pid: i32,
        /// Whether it talks to a person.
        interactive: bool,
    },
    /// The credential comes from the agent.
    Cached,
    /// The plugin is run now.
    Running,
    /// The agent could not help.
    NoAgent(AgentError),
}

/// Why an agent could not help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// It cannot be reached or started.
    #[error("the agent cannot be reached or started")]
    Start(#[source] io::Error),
    /// It was about to leave, or was killed.
    #[error("the agent is gone")]
    Gone(#[source] io::Error),
    /// It said nothing for too long.
    #[error("the agent does not answer")]
    Silent,
    /// It speaks of something else.
    #[error("the agent is not one of ours")]
    Nonsense,
    /// There is no such plugin.
    #[error("the plugin cannot be found")]
    Plugin(#[source] io::Error),
}

impl Agent {
    /// The agent at `place`, which is started with `launcher` if it is not there.
    pub fn new(place: Place, launcher: Launcher) -> Self {
        Self { place, launcher }
    }

    /// What the plugin of `invocation` says, from the agent if it has it. Tells `notify` how it goes.
    pub async fn fetch(&self, invocation: &Invocation, notify: &dyn Fn(Notice)) -> Fetched {
        let mut pauses = WHILE_IT_DIES.into_iter();
        let error = loop {
            match (self.try_fetch(invocation, notify).await, pauses.next()) {
                (Ok(fetched), _) => return fetched,
                (Err(AgentError::Gone(_)), Some(pause)) => {
                    sleep(Duration::from_millis(pause)).await;
                }
                (Err(error), _) => break error,
            }
        };
        notify(Notice::NoAgent(error));
        invocation.fetch_alone(notify).await
    }

    /// What it holds; `None` if there is no agent.
    pub async fn list(&self) -> Result<Option<Listing>, AgentError> {
        match self.request(&Request::List).await? {
            Some(Reply::Listing(listing)) => Ok(Some(listing)),
            Some(_) => Err(AgentError::Nonsense),
            None => Ok(None),
        }
    }

    /// Makes it forget what `plugin` gave, or everything. Says how many credentials that were.
    pub async fn forget(&self, plugin: Option<String>) -> Result<usize, AgentError> {
        match self.request(&Request::Forget { plugin }).await? {
            Some(Reply::Forgot { count }) => Ok(count),
            Some(_) => Err(AgentError::Nonsense),
            None => Ok(0),
        }
    }

    /// Starts no agent.
    async fn request(&self, request: &Request) -> Result<Option<Reply>, AgentError> {
        let mut stream = match self.place.connect().await {
            Ok(stream) => stream,
            Err(cause) if is_absent(&cause) => return Ok(None),
            Err(cause) => return Err(AgentError::Start(cause)),
        };
        send(&mut stream, request, &[]).await.map_err(AgentError::Gone)?;
        let (reply, _) = in_time(PATIENCE, receive(&mut stream)).await?;
        Ok(Some(reply))
    }

    async fn try_fetch(
        &self,
        invocation: &Invocation,
        notify: &dyn Fn(Notice),
    ) -> Result<Fetched, AgentError> {
        let ask = invocation.ask().map_err(AgentError::Plugin)?;
        let mut stream = self.connect().await.map_err(AgentError::Start)?;
        send(&mut stream, &Request::Ask(Ask::clone(&ask)), &[]).await.map_err(AgentError::Gone)?;
        let (mut reply, mut body) = in_time(PATIENCE, receive(&mut stream)).await?;
        while let Reply::Wait(holder) = reply {
            (reply, body) = wait(&mut stream, holder, invocation, notify).await?;
        }
        match reply {
            Reply::Have => {
                notify(Notice::Cached);
                Ok(Fetched::Printed(body))
            }
            Reply::Failed(failure) => Ok(Fetched::Failed(failure)),
            Reply::Run => {
                notify(Notice::Running);
                let outcome = invocation.run().await;
                report(&mut stream, &outcome).await;
                Ok(Fetched::from(outcome))
            }
            Reply::Renew => {
                notify(Notice::Running);
                let outcome = invocation.run_early().await;
                report(&mut stream, &outcome).await;
                Ok(Fetched::Printed(outcome.unwrap_or(body)))
            }
            Reply::Wait(_) | Reply::Noted | Reply::Listing(_) | Reply::Forgot { .. } => {
                Err(AgentError::Nonsense)
            }
        }
    }

    /// Connects; starts the agent if it is not there. Those who start one at the same time wait for the first.
    async fn connect(&self) -> io::Result<UnixStream> {
        match self.place.connect().await {
            Err(cause) if is_absent(&cause) => {}
            connected => return connected,
        }
        let lock = self.place.lock().await?;
        match self.place.connect().await {
            Err(cause) if is_absent(&cause) => {}
            connected => return connected,
        }
        // It listens from now on, so there is nothing to wait for.
        let listener = self.place.listen(&lock)?;
        self.launcher.start(listener.into())?;
        self.place.connect().await
    }
}

impl Launcher {
    /// With the socket as standard input and nothing else of ours: neither variables, which may be secret, nor a pipe for whose
    /// end somebody waits.
    fn start(&self, socket: OwnedFd) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.arg0(&self.name).args(&self.arguments).env_clear().current_dir("/");
        command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::null());
        // Nobody waits for it: it outlives us.
        command.spawn().map(drop)
    }
}

impl Invocation {
    /// As if there were no agent.
    pub async fn fetch_alone(&self, notify: &dyn Fn(Notice)) -> Fetched {
        notify(Notice::Running);
        Fetched::from(self.run().await)
    }
}

impl From<Result<SecretBytes, Failure>> for Fetched {
    fn from(outcome: Result<SecretBytes, Failure>) -> Self {
        match outcome {
            Ok(printed) => Self::Printed(printed),
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// Waits for what becomes of somebody else's run. A person may take as long as they like.
async fn wait(
    stream: &mut UnixStream,
    holder: Holder,
    invocation: &Invocation,
    notify: &dyn Fn(Notice),
) -> Result<(Reply, SecretBytes), AgentError> {
    let mut receiving = std::pin::pin!(receive(stream));
    if let Ok(received) = timeout(UNTIL_NOTICE, receiving.as_mut()).await {
        return received.map_err(AgentError::Gone);
    }
    let Holder { pid, interactive } = holder;
    notify(Notice::Waiting { pid, interactive });
    if interactive {
        return receiving.await.map_err(AgentError::Gone);
    }
    in_time(invocation.timeout() + PATIENCE, receiving).await
}

/// Tells the agent what became of the plugin, and waits until it knows: our own program may come again at once. If the agent is gone,
/// there is nothing to be done about it.
async fn report(stream: &mut UnixStream, outcome: &Result<SecretBytes, Failure>) {
    let telling = async {
        match outcome {
            Ok(printed) => send(stream, &Report::Printed, printed.expose()).await?,
            Err(failure) => send(stream, &Report::Failed(failure.clone()), &[]).await?,
        }
        receive::<Reply>(stream).await.map(drop)
    };
    if let Err(error) = in_time(PATIENCE, telling).await {
        tracing::debug!(%error, "the agent was not told what became of the plugin");
    }
}

async fn in_time<T>(
    limit: Duration,
    receiving: impl Future<Output = io::Result<T>>,
) -> Result<T, AgentError> {
    match timeout(limit, receiving).await {
        Ok(received) => received.map_err(AgentError::Gone),
        Err(_) => Err(AgentError::Silent),
    }
}

/// There is no socket, or nobody serves it.
fn is_absent(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}
