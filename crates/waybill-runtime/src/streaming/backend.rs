//! What streams are made of: processes and connections.

use std::{os::fd::OwnedFd, pin::Pin, sync::Arc};

use tokio::net::TcpStream;

use crate::engine::{AttachRequest, Engine, EngineError, ExecRequest, ProcessIo};

/// Starts and finds what clients are connected to. The engine, outside tests.
pub trait Backend: Send + Sync + 'static {
    /// Starts a program in a container.
    fn exec(
        &self,
        container: &str,
        request: ExecRequest,
    ) -> impl Future<Output = Result<Running, EngineError>> + Send;

    /// Joins a container's own streams.
    fn attach(
        &self,
        container: &str,
        request: AttachRequest,
    ) -> impl Future<Output = Result<Running, EngineError>> + Send;

    /// Connects to a port of a sandbox.
    fn dial(
        &self,
        sandbox: &str,
        port: u16,
    ) -> impl Future<Output = Result<TcpStream, EngineError>> + Send;
}

/// The end of a process, as an exit code.
pub type ExitFuture = Pin<Box<dyn Future<Output = Result<i32, EngineError>> + Send>>;

/// A process that runs. Dropping it closes its streams and does nothing else to it.
pub struct Running {
    /// Our ends of its streams.
    pub io: ProcessIo,
    /// The terminal to resize, if `io` is not that terminal itself.
    pub terminal: Option<OwnedFd>,
    /// What is told as its outcome, when it has ended. Dropped with the streams.
    pub exit: ExitFuture,
    /// Whether the session is over when its output ends, also before the process does. Who attached is let go when they
    /// have no more to say and the container's input stays open; a program that closes its output itself is waited for.
    pub ends_with_output: bool,
}

impl Backend for Arc<Engine> {
    async fn exec(&self, container: &str, request: ExecRequest) -> Result<Running, EngineError> {
        let session = Engine::exec(self, container, request).await?;
        let process = session.process;
        let exit = Box::pin(async move { Ok(process.wait().await?.code) });
        Ok(Running { io: session.io, terminal: None, exit, ends_with_output: false })
    }

    async fn attach(
        &self,
        container: &str,
        request: AttachRequest,
    ) -> Result<Running, EngineError> {
        let attachment = Engine::attach(self, container, &request).await?;
        let (engine, id) = (Self::clone(self), container.to_owned());
        let session = attachment.session;
        let exit = Box::pin(async move {
            let ended = engine.wait(&id).await;
            drop(session);
            // To attach succeeds, however the container ends: its code is in its own status.
            ended.map(|_| 0)
        });
        let (io, terminal) = (attachment.io, attachment.terminal);
        Ok(Running { io, terminal, exit, ends_with_output: true })
    }

    async fn dial(&self, sandbox: &str, port: u16) -> Result<TcpStream, EngineError> {
        Engine::dial(self, sandbox, port).await
    }
}
