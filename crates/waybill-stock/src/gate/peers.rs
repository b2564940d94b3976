//! Who is connected. Clients show no certificate, so all that can be told apart is their addresses: each has a share of
//! the connections and of the room for large bodies, and cannot take what the others need.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;

use super::body::kibibytes;

/// How many connections there are at once. Each may hold its buffers and a small body, about 100 KiB.
const CONNECTIONS: usize = 1024;

/// How many of them one address may have. An API server asks no more than this at once by default.
const CONNECTIONS_OF_ONE: usize = 256;

/// All who are connected.
#[derive(Default)]
pub(super) struct Peers(Mutex<Connected>);

#[derive(Default)]
struct Connected {
    all: usize,
    by_address: HashMap<IpAddr, Share>,
}

struct Share {
    connections: usize,
    large: Arc<Semaphore>,
}

/// One connection. It counts until it is dropped.
pub(super) struct Peer {
    peers: Arc<Peers>,
    address: IpAddr,
    /// What its address may hold of large bodies, in KiB: one of the largest, or many of those that are seen.
    pub(super) large: Arc<Semaphore>,
}

impl Peers {
    /// A connection from `address`, unless there are too many.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Peer> {
        let address = address.to_canonical();
        let mut connected = self.lock();
        if connected.all >= CONNECTIONS {
            return None;
        }
        let share = connected.by_address.entry(address).or_insert_with(|| Share {
            connections: 0,
            large: Arc::new(Semaphore::new(kibibytes(super::BODY_BYTES))),
        });
        if share.connections >= CONNECTIONS_OF_ONE {
            return None;
        }
        share.connections += 1;
        let large = Arc::clone(&share.large);
        connected.all += 1;
        Some(Peer { peers: Arc::clone(self), address, large })
    }

    fn lock(&self) -> MutexGuard<'_, Connected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut connected = self.peers.lock();
        connected.all -= 1;
        if let Some(share) = connected.by_address.get_mut(&self.address) {
            share.connections -= 1;
            if share.connections == 0 {
                connected.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// CSI-22: whoever reaches the port cannot keep API servers out.
    #[test]
    fn an_address_has_a_share_of_the_connections_csi_22() {
        let peers = Arc::new(Peers::default());
        let mut many: Vec<_> = std::iter::from_fn(|| peers.admit(address(1))).collect();
        assert_eq!(many.len(), CONNECTIONS_OF_ONE);
        let mapped = IpAddr::V6(std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        assert!(peers.admit(mapped).is_none(), "the same address in other words");
        let other = peers.admit(address(2)).expect("another one is let in");
        many.pop();
        assert!(peers.admit(address(1)).is_some(), "what was closed is free again");
        drop((many, other));
        assert!(peers.lock().by_address.is_empty(), "nothing is kept of those who left");
        assert_eq!(peers.lock().all, 0);
    }

    #[test]
    fn there_is_an_end_of_connections_from_everywhere() {
        let peers = Arc::new(Peers::default());
        let all: Vec<_> =
            (0..=255).flat_map(|number| (0..5).filter_map(move |_| Some(number))).collect();
        let all: Vec<_> = all.into_iter().filter_map(|it| peers.admit(address(it))).collect();
        assert_eq!(all.len(), CONNECTIONS);
    }
}
