//! How much of a large answer is made at once, and by how many workers.
//!
//! The runtime has few workers, and a list of megabytes keeps one busy for as long as it takes to copy, compress, encrypt and
//! send it. Whoever asks for twenty of them at once would keep all workers busy, and a single object for somebody else would wait.
//! So a connection makes a few pieces of a large answer and then lets others go first, and connections with large answers
//! are worked on by all workers but one.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::sync::PollSemaphore;

/// So many pieces are made before others go first.
const PIECES: usize = 2;

/// The workers that large answers may have.
#[derive(Clone, Debug)]
pub(super) struct Workers(Arc<Semaphore>);

impl Workers {
    /// For the runtime that we are on: one worker stays free.
    pub(super) fn new() -> Self {
        let workers = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        Self(Arc::new(Semaphore::new(workers.saturating_sub(1).max(1))))
    }
}

/// How one connection is worked on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Large answers that are under way on it.
    large: AtomicUsize,
    /// Pieces that may still be made before others go first.
    pieces: AtomicUsize,
}

/// A large answer that is under way as long as this lives.
#[derive(Debug)]
pub(crate) struct LargeAnswer(Pace);

impl Pace {
    /// A large answer begins, of somebody who shares the server with others.
    pub(crate) fn begin_large(&self) -> LargeAnswer {
        self.0.large.fetch_add(1, Ordering::Relaxed);
        LargeAnswer(self.clone())
    }

    /// Whether another piece may be made now.
    pub(super) fn take_piece(&self) -> bool {
        let taken = |left: usize| left.checked_sub(1);
        self.0.pieces.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    fn is_large(&self) -> bool {
        self.0.large.load(Ordering::Relaxed) > 0
    }

    fn allow_pieces(&self) {
        self.0.pieces.store(PIECES, Ordering::Relaxed);
    }
}

impl Drop for LargeAnswer {
    fn drop(&mut self) {
        self.0.0.large.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The work for one connection, or a part of it, at its pace.
pub(super) struct Paced<F> {
    work: Pin<Box<F>>,
    pace: Pace,
    workers: Workers,
    /// While it waits for one of them.
    waiting: Option<PollSemaphore>,
}

impl<F> Paced<F> {
    pub(super) fn new(pace: Pace, workers: Workers, work: F) -> Self {
        Self { work: Box::pin(work), pace, workers, waiting: None }
    }
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let worker = if this.pace.is_large() {
            let workers = || PollSemaphore::new(Arc::clone(&this.workers.0));
            let waiting = this.waiting.get_or_insert_with(workers);
            ready!(waiting.poll_acquire(context))
        } else {
            None
        };
        // What waits is woken when it may go on, and then gives back a worker that it does not need any more.
        this.waiting = None;
        this.pace.allow_pieces();
        let done = this.work.as_mut().poll(context);
        drop(worker);
        done
    }
}

/// Runs the parts of an HTTP/2 connection at its pace.
#[derive(Clone, Debug)]
pub(super) struct PacedExecutor {
    pub(super) pace: Pace,
    pub(super) workers: Workers,
}

impl<F> Executor<F> for PacedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, part: F) {
        TokioExecutor::new().execute(Paced::new(self.pace.clone(), self.workers.clone(), part));
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};

    use super::*;

    fn workers(count: usize) -> Workers {
        Workers(Arc::new(Semaphore::new(count)))
    }

    fn poll<F: Future>(paced: &mut Paced<F>) -> Poll<F::Output> {
        Pin::new(paced).poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn so_many_pieces_are_made_each_time_a_connection_is_worked_on() {
        let pace = Pace::default();
        let mut made = Vec::new();
        let counted = pace.clone();
        let work = poll_fn(|_| {
            made.push(std::iter::repeat_with(|| counted.take_piece()).take_while(|it| *it).count());
            if made.len() < 3 { Poll::Pending } else { Poll::Ready(()) }
        });
        let mut paced = Paced::new(pace, workers(1), work);
        while poll(&mut paced).is_pending() {}
        drop(paced);
        assert_eq!(made, [PIECES; 3]);
    }

    #[test]
    fn large_answers_wait_for_a_worker_and_others_do_not() {
        let workers = workers(1);
        let busy = Arc::clone(&workers.0).try_acquire_owned().unwrap();
        let (large, small) = (Pace::default(), Pace::default());
        let mut waits = Paced::new(large.clone(), workers.clone(), ready(1));
        let begun = large.begin_large();
        assert!(poll(&mut waits).is_pending());
        assert_eq!(poll(&mut Paced::new(small, workers.clone(), ready(2))), Poll::Ready(2));
        drop(busy);
        assert_eq!(poll(&mut waits), Poll::Ready(1));
        assert_eq!(workers.0.available_permits(), 1);
        // The answer was sent, and what else comes on that connection is as any other.
        drop(begun);
        let _busy = workers.0.try_acquire().unwrap();
        assert_eq!(poll(&mut Paced::new(large, workers.clone(), ready(3))), Poll::Ready(3));
    }

    #[test]
    fn nobody_keeps_a_worker_that_they_do_not_need() {
        let workers = workers(1);
        let pace = Pace::default();
        let begun = pace.begin_large();
        let busy = Arc::clone(&workers.0).try_acquire_owned().unwrap();
        let mut waits = Paced::new(pace, workers.clone(), pending::<()>());
        assert!(poll(&mut waits).is_pending());
        // Another part of the connection ends the answer, and then the worker is offered to this one.
        drop(begun);
        drop(busy);
        assert!(poll(&mut waits).is_pending());
        assert_eq!(workers.0.available_permits(), 1);
    }
}
