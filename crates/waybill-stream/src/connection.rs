//! Sessions over tokio: one that receives, one that sends, and both may be slow.
//!
//! Nothing is queued. What arrives is handed on before more is read, and what is sent has left before
//! the sender returns, so a slow peer slows whoever feeds it and memory stays as it is. Only the last
//! unanswered ping is kept: its answer must not wait for a process that does not read.

mod receiver;
mod sender;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;

pub use receiver::{EventReader, ReceiveError, Receiver};
pub use sender::{SendError, Sender};

/// Counts what a session moves, so that one that is silent for too long can be ended.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<AtomicU64>);

impl Traffic {
    /// Returns when nothing was sent or received for `limit`; after one to two times that long.
    pub async fn idle(&self, limit: Duration) {
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            sleep(limit).await;
            if self.0.load(Ordering::Relaxed) == seen {
                return;
            }
        }
    }

    /// All bytes so far, in both directions and with their headers.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, count: usize) {
        self.0.fetch_add(count.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
