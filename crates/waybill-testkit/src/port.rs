//! Ports for servers that are killed and started again.

use std::{
    net::TcpListener,
    sync::atomic::{AtomicU32, Ordering},
};

/// Free ports below those that the system gives to outgoing connections, one of which could
/// otherwise take a port while its server is down.
pub fn lasting<const N: usize>() -> [u16; N] {
    [(); N].map(|()| lasting_port())
}

fn lasting_port() -> u16 {
    // Tests run at the same time, in one process or in many, so each begins its search apart.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(16);
    (0..20_000)
        .map(|_| first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)))
        .filter_map(|number| u16::try_from(10_000 + number % 20_000).ok())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port is free")
}
