//! Work that may wait for a disk, where it stops nobody else.
//!
//! On a thread of its own, not of tokio's pool: that panics when it has no thread and the machine, out of processes, gives
//! it none. The node then does the work where it stands, and is slow for as long.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use tokio::sync::oneshot;

/// The work panicked.
#[derive(Debug, thiserror::Error)]
#[error("the work panicked")]
pub(crate) struct WorkPanicked;

/// Does `work`. It goes to its end also if nobody waits for it any more.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WorkPanicked> {
    let (sender, receiver) = oneshot::channel();
    // Shared, because a thread that cannot be made does not give its work back.
    let work = Arc::new(Mutex::new(Some(work)));
    let shared = Arc::clone(&work);
    let run = move || {
        if let Some(work) = take(&shared) {
            // Nobody may be waiting any more.
            let _ = sender.send(work());
        }
    };
    match thread::Builder::new().name("blocking".to_owned()).spawn(run) {
        Ok(_) => receiver.await.map_err(|_| WorkPanicked),
        Err(_) => take(&work).map(|work| work()).ok_or(WorkPanicked),
    }
}

fn take<F>(work: &Mutex<Option<F>>) -> Option<F> {
    work.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_and_its_panic_is_told() {
        let here = thread::current().id();
        let there = blocking(move || thread::current().id()).await.unwrap();
        assert_ne!(here, there);
        assert!(blocking(|| panic!("of the test")).await.is_err());
    }
}
