//! A session that has begun: four streams over one connection.

use std::{future::pending, io, time::Duration};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split},
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use waybill_stream::{
    channel::Outgoing,
    command::{CommandEvent, CommandReader, RESIZE, STDIN, TerminalSize},
    connection::{ReceiveError, Receiver, SendError, Sender, Traffic},
    outcome::Outcome,
    protocol::Protocol,
    websocket::{Close, Role},
};

type Io = TokioIo<Upgraded>;

/// As often as other clients ask whether the server is there.
const PING: Duration = Duration::from_secs(5);

/// A server that hears a ping answers, so one that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Read from the standard input at once.
const CHUNK: usize = 32 * 1024;

/// A command that runs, or is about to.
pub struct ExecSession {
    sender: Sender<WriteHalf<Io>>,
    receiver: Receiver<ReadHalf<Io>, CommandReader>,
}

/// What the session is joined with on this side.
pub struct Local<I, O, E> {
    /// Sent to the command, up to its end; `None` if the command was started without.
    pub stdin: Option<I>,
    /// Gets what the command prints.
    pub stdout: O,
    /// Gets what it prints to standard error.
    pub stderr: E,
    /// The size of our terminal, and each new one.
    pub sizes: Option<watch::Receiver<TerminalSize>>,
}

/// Why a session ended without telling how the command did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The connection ended, or the peer broke the protocol.
    #[error("the session broke off")]
    Receive(#[from] ReceiveError),
    /// The connection ended while something was being sent.
    #[error("the session broke off")]
    Send(#[from] SendError),
    /// The server does not answer pings any more.
    #[error("the server has been silent for a minute")]
    Silent,
    /// The server closed the session without a status.
    #[error("the server ended the session without saying how the command ended")]
    NoStatus,
    /// Our own standard streams failed.
    #[error("cannot write what the command printed")]
    Local(#[source] io::Error),
    /// Our own standard input failed.
    #[error("cannot read the standard input")]
    Stdin(#[source] io::Error),
}

impl ExecSession {
    pub(super) fn new(io: Io, protocol: Protocol) -> Self {
        let (read, write) = split(io);
        let traffic = Traffic::default();
        let reader = CommandReader::new(protocol, Role::Client);
        Self {
            sender: Sender::new(write, protocol, Role::Client, traffic.clone()),
            receiver: Receiver::new(read, reader, &[], traffic),
        }
    }

    /// Carries the streams until the command has ended.
    pub async fn run<I, O, E>(self, local: Local<I, O, E>) -> Result<Outcome, SessionError>
    where
        I: AsyncRead + Unpin,
        O: AsyncWrite + Unpin,
        E: AsyncWrite + Unpin,
    {
        let Self { sender, mut receiver } = self;
        let Local { stdin, mut stdout, mut stderr, sizes } = local;
        let outcome = tokio::select! {
            outcome = receive(&sender, &mut receiver, &mut stdout, &mut stderr) => outcome,
            Err(error) = feed(&sender, stdin) => Err(error),
            Err(error) = resize(&sender, sizes) => Err(error),
            error = sender.send_pongs() => Err(error.into()),
            Err(error) = ping(&sender) => Err(error),
        };
        // The command has ended whether or not the server still hears us.
        let _ = sender.close(&Close::normal()).await;
        outcome
    }
}

async fn receive(
    sender: &Sender<WriteHalf<Io>>,
    receiver: &mut Receiver<ReadHalf<Io>, CommandReader>,
    stdout: &mut (impl AsyncWrite + Unpin),
    stderr: &mut (impl AsyncWrite + Unpin),
) -> Result<Outcome, SessionError> {
    loop {
        // Time that we need to print is not the server's silence.
        let event = timeout(SILENCE, receiver.next()).await.map_err(|_| SessionError::Silent)?;
        match event? {
            CommandEvent::Stdout(piece) => print(stdout, &piece.into_bytes()).await?,
            CommandEvent::Stderr(piece) => print(stderr, &piece.into_bytes()).await?,
            CommandEvent::Ended(outcome) => return Ok(outcome),
            CommandEvent::Ping(payload) => sender.pong(payload),
            CommandEvent::Close(_) => return Err(SessionError::NoStatus),
            CommandEvent::Stdin(_)
            | CommandEvent::StdinEnd
            | CommandEvent::Resize(_)
            | CommandEvent::Pong => {}
        }
    }
}

async fn print(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), SessionError> {
    to.write_all(bytes).await.map_err(SessionError::Local)?;
    to.flush().await.map_err(SessionError::Local)
}

/// Sends the standard input to its end, and then waits for the session's.
async fn feed<I: AsyncRead + Unpin>(
    sender: &Sender<WriteHalf<Io>>,
    stdin: Option<I>,
) -> Result<(), SessionError> {
    if let Some(mut stdin) = stdin {
        let mut outgoing = Outgoing::with_capacity(CHUNK);
        loop {
            let count = stdin.read(outgoing.space()).await.map_err(SessionError::Stdin)?;
            if count == 0 {
                break;
            }
            sender.send(STDIN, &mut outgoing, count).await?;
        }
        sender.close_channel(STDIN).await?;
    }
    pending().await
}

/// Sends the first size and each new one.
async fn resize(
    sender: &Sender<WriteHalf<Io>>,
    sizes: Option<watch::Receiver<TerminalSize>>,
) -> Result<(), SessionError> {
    if let Some(mut sizes) = sizes {
        loop {
            let size = *sizes.borrow_and_update();
            sender.send_copy(RESIZE, &size.to_message()).await?;
            if sizes.changed().await.is_err() {
                break;
            }
        }
    }
    pending().await
}

async fn ping(sender: &Sender<WriteHalf<Io>>) -> Result<(), SessionError> {
    let mut ticks = interval(PING);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        sender.ping().await?;
    }
}
