//! Ports for servers that are killed and started again.

use std::{
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{Mutex, PoisonError},
};

/// Free ports below those that the system gives to outgoing connections, one of which could
/// otherwise take a port while its server is down.
pub fn lasting<const N: usize>() -> [u16; N] {
    [(); N].map(|()| lasting_port())
}

fn lasting_port() -> u16 {
    // Many tests run at the same time, so each begins its search apart.
    let first = std::process::id().wrapping_mul(16);
    (0..20_000)
        .filter_map(|number| u16::try_from(10_000 + first.wrapping_add(number) % 20_000).ok())
        .find(|port| is_ours(*port) && TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port is free")
}

/// Takes the port for as long as this process lives, from all others that come here. A server that is down holds no port, so there is
/// a socket with the port's name instead, which the kernel removes with the process.
fn is_ours(port: u16) -> bool {
    static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = format!("waybill-test-port-{port}");
    let name = SocketAddr::from_abstract_name(name).expect("a short name");
    let Ok(listener) = UnixListener::bind_addr(&name) else { return false };
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    true
}
