//! Ports that are free, and stay the same from one start to the next.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
};

/// Tried one after the other, so that a newcomer finds 6444 and not some number.
const NEIGHBOURS: u16 = 100;

/// Where to listen, and whether that is what was wanted.
pub(super) struct Chosen {
    pub(super) address: SocketAddr,
    /// The port that somebody else has.
    pub(super) taken: Option<u16>,
}

/// The port of the last start or the usual one, if it is free, and otherwise the next free one.
pub(super) fn choose(kept: Option<u16>, usual: u16) -> io::Result<Chosen> {
    let wanted = kept.unwrap_or(usual);
    if is_free(wanted) {
        return Ok(Chosen { address: loopback(wanted), taken: None });
    }
    let next = (usual..=usual.saturating_add(NEIGHBOURS)).find(|port| is_free(*port));
    let address = match next {
        Some(port) => loopback(port),
        None => TcpListener::bind(loopback(0))?.local_addr()?,
    };
    Ok(Chosen { address, taken: Some(wanted) })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(loopback(port)).is_ok()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_told_and_another_one_found() {
        let holder = TcpListener::bind(loopback(0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        let chosen = choose(Some(taken), taken).unwrap();
        assert_eq!(chosen.taken, Some(taken));
        assert_ne!(chosen.address.port(), taken);
        drop(holder);
        let chosen = choose(Some(taken), 1).unwrap();
        assert_eq!((chosen.address.port(), chosen.taken), (taken, None));
    }
}
