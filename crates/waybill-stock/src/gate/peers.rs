//! Who is connected. API servers show a certificate, or nothing where anybody may ask; each address has a share of the room for large
//! bodies, and cannot take what the others need. Connections that have shown nothing yet are in `unproven.rs`.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;

use super::body::kibibytes;

/// How many connections there are at once. Each may hold its buffers and a small body, about 100 KiB.
const CONNECTIONS: usize = 1024;

/// All who are connected and may go on.
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

    #[test]
    fn an_address_has_one_share_of_large_bodies_however_it_is_written() {
        let peers = Arc::new(Peers::default());
        let one = peers.admit(address(1)).unwrap();
        let mapped = IpAddr::V6(std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        let same = peers.admit(mapped).unwrap();
        assert!(Arc::ptr_eq(&one.large, &same.large), "the same address in other words");
        let other = peers.admit(address(2)).unwrap();
        assert!(!Arc::ptr_eq(&one.large, &other.large));
        drop((one, same, other));
        assert!(peers.lock().by_address.is_empty(), "nothing is kept of those who left");
        assert_eq!(peers.lock().all, 0);
    }

    #[test]
    fn there_is_an_end_of_connections_from_everywhere() {
        let peers = Arc::new(Peers::default());
        let numbers = (0..=255).flat_map(|number| [number; 5]);
        let all: Vec<_> = numbers.filter_map(|number| peers.admit(address(number))).collect();
        assert_eq!(all.len(), CONNECTIONS);
    }
}
