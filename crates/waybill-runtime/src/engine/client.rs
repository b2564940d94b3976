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
    message::{Failure, FromMonitor, Gist, Numbered, PROTOCOL, Reply, Request},
    wire::{Frame, Outgoing, Read, Reader},
};

type Answer = (Reply, Vec<OwnedFd>);

/// What comes from a monitor, apart from answers.
#[derive(Debug)]
pub(super) enum Heard {
    Message(FromMonitor),
    /// It speaks a version that we do not know.
    Newer {
        version: u32,
    },
    /// What came is no message at all.
    Garbage,
    /// It is not there any more.
    Gone,
}

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
        let request = Numbered { version: PROTOCOL, number, until: Some(until), request };
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

    /// The first word of a monitor that was there before us.
    pub(super) async fn greeting(&self, reader: &mut Reader) -> Heard {
        let frame = match self.frame(reader).await {
            Ok(frame) => frame,
            Err(heard) => return heard,
        };
        let spoken = frame.parse::<Gist>().ok().and_then(|gist| gist.hello);
        match (spoken, frame.parse()) {
            (Some(spoken), _) if spoken.version > PROTOCOL => {
                Heard::Newer { version: spoken.version }
            }
            (_, Ok(hello @ FromMonitor::Hello { .. })) => Heard::Message(hello),
            _ => Heard::Garbage,
        }
    }

    /// The next message that is no answer; answers go to those who wait. Messages that only a newer runtime would know
    /// are passed over.
    pub(super) async fn receive(&self, reader: &mut Reader) -> Heard {
        loop {
            let frame = match self.frame(reader).await {
                Ok(frame) => frame,
                Err(heard) => return heard,
            };
            match frame.parse() {
                Ok(FromMonitor::Reply { number, reply }) => {
                    self.answer(number, (reply, frame.fds));
                }
                Ok(message) => return Heard::Message(message),
                Err(_) => self.pass_over(&frame),
            }
        }
    }

    async fn frame(&self, reader: &mut Reader) -> Result<Frame, Heard> {
        loop {
            match self.read(reader).await {
                Ok(Read::Frame(frame)) => return Ok(frame),
                Ok(Read::Later) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(Heard::Garbage);
                }
                Ok(Read::End) | Err(_) => return Err(Heard::Gone),
            }
        }
    }

    fn answer(&self, number: u64, answer: Answer) {
        let waiting = self.waiting().as_mut().and_then(|waiting| waiting.remove(&number));
        if let Some(waiting) = waiting {
            // Whoever stopped waiting lets go of the descriptors.
            let _ = waiting.send(answer);
        }
    }

    /// Whoever waits for an answer that we cannot read hears that.
    fn pass_over(&self, frame: &Frame) {
        tracing::warn!("a monitor says what this runtime does not know");
        if let Some(asked) = frame.parse::<Gist>().ok().and_then(|gist| gist.reply) {
            let reason = "its monitor answers what this runtime does not know";
            self.answer(
                asked.number,
                (Reply::Failed(Failure::Refused(reason.to_owned())), Vec::new()),
            );
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
