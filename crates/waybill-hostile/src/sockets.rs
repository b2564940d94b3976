//! CVE-2020-15257: abstract Unix sockets belong to a network namespace and to no directory, so whoever has the machine's network can
//! connect to those of the machine.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
};

use crate::Outcome;

/// Connects to abstract sockets with this word in their names.
pub(crate) fn connect(arguments: &[String]) -> Outcome {
    let word = arguments.first().ok_or("which word?")?;
    let table =
        fs::read_to_string("/proc/net/unix").map_err(|error| format!("/proc/net/unix: {error}"))?;
    let names = table.lines().filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let mut refused = Vec::new();
    for name in names.filter(|name| name.contains(word.as_str())) {
        let connected =
            SocketAddr::from_abstract_name(name).and_then(|it| UnixStream::connect_addr(&it));
        match connected {
            Ok(_) => return Ok(format!("is connected to @{name}")),
            Err(error) => refused.push(format!("@{name}: {error}")),
        }
    }
    match refused.as_slice() {
        [] => Err(format!("no abstract socket has {word:?} in its name")),
        refused => Err(refused.join(", ")),
    }
}
