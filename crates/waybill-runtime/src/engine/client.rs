//! The runtime's side of the connection to a monitor.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::Interest,
    net::UnixStream,
    sync::{Mutex as AsyncMutex, oneshot},
};

use super::{
    message::{FromMonitor, Numbered, Reply, Request},
    wire::{Outgoing, Read, Reader},
};

type Answer = (Reply, Vec<OwnedFd>);

/// The place among those who wait, given up with the waiting.
struct Place<'a> {
    client: &'a Client,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.client.waiting().as_mut() {
            waiting.remove(&self.number);
        }
    }
}

/// A connection on which any number of requests wait for their answers. Somebody must keep calling [`Client::receive`].
#[derive(Debug)]
pub(super) struct Client {
    socket: UnixStream,
    /// Held while a message is sent, so that messages do not mix. Holds what somebody began to send who does not wait any
    /// more: half a message must not be followed by another.
    sending: AsyncMutex<Option<Outgoing>>,
    /// `None` once the monitor is gone.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
    next_number: AtomicU64,
}

impl Client {
    pub(super) fn new(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixStream::from_std(socket)?,
            sending: AsyncMutex::new(None),
            waiting: Mutex::new(Some(HashMap::new())),
            next_number: AtomicU64::new(0),
        })
    }

    /// Asks the monitor, which has until `until` to begin; `None` if it is gone before it answered. `block` may hold values.
    pub(super) async fn ask(&self, request: Request, until: u64, block: &[u8]) -> Option<Answer> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting().as_mut()?.insert(number, sender);
        let _place = Place { client: self, number };
        let request = Numbered { number, until: Some(until), request };
        self.send(Outgoing::new(&request, block, Vec::new()).ok()?).await.ok()?;
        receiver.await.ok()
    }

    async fn send(&self, message: Outgoing) -> io::Result<()> {
        let mut turn = self.sending.lock().await;
        self.send_begun(&mut turn).await?;
        *turn = Some(message);
        self.send_begun(&mut turn).await
    }

    async fn send_begun(&self, begun: &mut Option<Outgoing>) -> io::Result<()> {
        while let Some(message) = begun {
            self.socket.writable().await?;
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                if message.send(self.socket.as_fd())? {
                    Ok(())
                } else {
                    Err(io::ErrorKind::WouldBlock.into())
                }
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    *begun = None;
                    result?;
                }
            }
        }
        Ok(())
    }

    /// The next message that is no answer; answers go to those who wait. `None` when the monitor is gone.
    pub(super) async fn receive(&self, reader: &mut Reader) -> Option<FromMonitor> {
        loop {
            let frame = match self.read(reader).await {
                Ok(Read::Frame(frame)) => frame,
                Ok(Read::Later) => continue,
                Ok(Read::End) | Err(_) => return None,
            };
            match frame.parse().ok()? {
                FromMonitor::Reply { number, reply } => {
                    let waiting = self.waiting().as_mut()?.remove(&number);
                    if let Some(waiting) = waiting {
                        // Whoever stopped waiting lets go of the descriptors.
                        let _ = waiting.send((reply, frame.fds));
                    }
                }
                other => return Some(other),
            }
        }
    }

    /// Lets go of all who wait.
    pub(super) fn close(&self) {
        *self.waiting() = None;
    }

    async fn read(&self, reader: &mut Reader) -> io::Result<Read> {
        self.socket.readable().await?;
        let read =
            self.socket.try_io(Interest::READABLE, || match reader.read(self.socket.as_fd())? {
                Read::Later => Err(io::ErrorKind::WouldBlock.into()),
                read => Ok(read),
            });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Read::Later),
            read => read,
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
