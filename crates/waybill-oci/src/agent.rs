//! Asking the agent of the node for values.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    sockopt::{Timeout, set_socket_timeout, socket_peercred},
};
use waybill_api::stock::{Answer, AnsweredValue, AskedValues, SOCKET_LINE_BYTES, SOCKET_SECONDS};
use waybill_core::secret::SecretBytes;

use crate::{fault::CreateFault, node::Node};

/// A value for each reference, in the order in which they were asked for.
pub(crate) fn ask(node: &Node, asked: &AskedValues) -> Result<Vec<AnsweredValue>, CreateFault> {
    let line = exchange(node, &asked.to_line()).map_err(|_| CreateFault::Agent)?;
    match Answer::parse(line.expose()).map_err(|_| CreateFault::Agent)? {
        Answer::Refused { error, .. } => Err(CreateFault::Refused(plain(&error))),
        Answer::Values(mut values) => asked
            .references
            .iter()
            .map(|reference| {
                let at = values.iter().position(|value| value.name == reference.name);
                Ok(values.swap_remove(at.ok_or(CreateFault::Agent)?))
            })
            .collect(),
    }
}

/// One line each way, within the limit of both.
fn exchange(node: &Node, line: &[u8]) -> io::Result<SecretBytes> {
    let limit = Duration::from_secs(SOCKET_SECONDS);
    let start = Instant::now();
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // It limits the wait for a server that does not accept, too.
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &SocketAddrUnix::new(node.layout().socket())?)?;
    if !socket_peercred(&socket)?.uid.is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut stream = UnixStream::from(socket);
    stream.write_all(line)?;
    let mut answer = Vec::new();
    let mut part = [0; 8192];
    loop {
        let left = limit
            .checked_sub(start.elapsed())
            .filter(|left| !left.is_zero())
            .ok_or(io::ErrorKind::TimedOut)?;
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut part)?;
        let received = part.get(..count).unwrap_or_default();
        answer.extend_from_slice(received);
        if count == 0 || received.contains(&b'\n') {
            return Ok(SecretBytes::from(answer));
        }
        if answer.len() > SOCKET_LINE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

/// A text for a log and a person: printable, and no longer than a line.
fn plain(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(300).collect()
}
