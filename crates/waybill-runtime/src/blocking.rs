//! Work that may wait for a disk or for processes, where it stops nobody else.
//!
//! On a thread of its own, not of tokio's pool: that panics when it has no thread and the machine, out of processes, gives
//! it none. What makes something is then refused; what ends, frees or tells something is done where it stands and is
//! slow for as long, since a runtime that cannot end a pod cannot help a machine that has too many processes.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use tokio::sync::oneshot;

/// Why work was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotDone {
    /// No thread could be had.
    #[error(
        "the machine gives the runtime no thread; end processes or raise their limit, and try again"
    )]
    NoThread(#[source] io::Error),
    /// A bug, whose text is in the log.
    #[error("the work panicked")]
    Panicked,
}

/// Does `work` on a thread of its own, or refuses. It goes to its end also if nobody waits for it any more.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotDone> {
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        // Nobody may be waiting any more.
        let _ = sender.send(work());
    };
    let thread = thread::Builder::new().name("blocking".to_owned());
    thread.spawn(run).map_err(NotDone::NoThread)?;
    receiver.await.map_err(|_| NotDone::Panicked)
}

/// Does `work` on a thread of its own, or here if there is none. It must not wait for anything of this runtime's executor.
pub(crate) async fn on_a_thread_or_here<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NotDone> {
    // Shared, because a thread that cannot be made does not give its work back.
    let work = Arc::new(Mutex::new(Some(work)));
    let shared = Arc::clone(&work);
    let done = on_a_thread(move || take(&shared).map(|work| work())).await;
    let done = match done {
        Err(NotDone::NoThread(_)) => take(&work).map(|work| work()),
        done => done?,
    };
    done.ok_or(NotDone::Panicked)
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
        assert_ne!(on_a_thread(move || thread::current().id()).await.unwrap(), here);
        assert_ne!(on_a_thread_or_here(move || thread::current().id()).await.unwrap(), here);
        for failed in [
            on_a_thread(|| panic!("of the test")).await,
            on_a_thread_or_here(|| panic!("of the test")).await,
        ] {
            assert!(matches!(failed, Err(NotDone::Panicked)), "{failed:?}");
        }
    }
}
