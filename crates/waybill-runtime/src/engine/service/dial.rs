//! Connections into a sandbox's network.

use std::{io, net::SocketAddr, path::Path};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::oneshot,
};

use super::{Engine, Result, io_error};
use crate::engine::{EngineError, Kind, sandbox};

impl Engine {
    pub(super) async fn dial_sandbox(&self, id: &str, port: u16) -> Result<TcpStream> {
        let file = self.sandbox_file(id)?;
        let file =
            file.ok_or_else(|| EngineError::NotFound { kind: Kind::Sandbox, id: id.to_owned() })?;
        let pin = file.network.then(|| self.pins(id).join(sandbox::NETWORK));
        let failed = |source| EngineError::Dial { sandbox: id.to_owned(), port, source };
        let mut last = io::Error::from(io::ErrorKind::ConnectionRefused);
        for address in [
            SocketAddr::from(([127, 0, 0, 1], port)),
            SocketAddr::from(([0_u16, 0, 0, 0, 0, 0, 0, 1], port)),
        ] {
            let socket = match &pin {
                Some(pin) => {
                    socket_in(pin, address.is_ipv4()).await.map_err(io_error("enter", pin))?
                }
                None => socket(address.is_ipv4()),
            };
            let connected = match socket {
                Ok(socket) => socket.connect(address).await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

/// A socket stays in the namespace it was made in, so a thread of its own enters, makes it and ends.
async fn socket_in(pin: &Path, ipv4: bool) -> io::Result<io::Result<TcpSocket>> {
    let namespace = std::fs::File::open(pin)?;
    let (sender, receiver) = oneshot::channel();
    let handle = tokio::runtime::Handle::current();
    std::thread::Builder::new().name("dial".to_owned()).spawn(move || {
        let _runtime = handle.enter();
        let entered = move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&namespace),
            Some(LinkNameSpaceType::Network),
        );
        let _ = sender.send(entered.map_err(io::Error::from).map(|()| socket(ipv4)));
    })?;
    receiver.await.map_err(io::Error::other)?
}

fn socket(ipv4: bool) -> io::Result<TcpSocket> {
    if ipv4 { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}
