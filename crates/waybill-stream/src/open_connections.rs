//! How many connections a server has open, so that who is nobody shuts nobody out.
//!
//! A new connection is a stranger's until a request on it was one of somebody known. Strangers never find
//! the door closed: when there are too many, the one that came first must go. They cannot push out those
//! that are known, whose number has a bound of its own.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// The most connections that a server has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MostConnections {
    /// Of somebody known.
    pub known: usize,
    /// Of strangers; each may take some 50 KB.
    pub strangers: usize,
}

impl Default for MostConnections {
    fn default() -> Self {
        Self { known: 32 << 10, strangers: 2 << 10 }
    }
}

impl MostConnections {
    /// What a process may have that can open so many files; `None` is any number. A session needs up to
    /// three of them apart from its connection.
    pub fn within(open_files: Option<u64>) -> Self {
        let Self { known, strangers } = Self::default();
        let files = open_files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
        Self { known: known.min(files / 5).max(1), strangers: strangers.min(files / 8).max(1) }
    }
}

/// The connections of one server.
#[derive(Debug)]
pub struct OpenConnections {
    most: MostConnections,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers are given in the order of arrival.
    next: u64,
    strangers: BTreeMap<u64, CancellationToken>,
    known: HashSet<u64>,
}

/// One connection, which counts as long as this lives.
#[derive(Debug)]
pub struct OpenConnection {
    counted: Arc<OpenConnections>,
    number: u64,
    pushed_out: CancellationToken,
}

impl OpenConnections {
    /// No connections yet.
    pub fn new(most: MostConnections) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    /// Counts a new connection. If strangers have too many, the oldest of theirs is pushed out.
    pub fn open(self: &Arc<Self>) -> OpenConnection {
        let pushed_out = CancellationToken::new();
        let mut state = self.lock();
        while state.strangers.len() >= self.most.strangers.max(1) {
            state.push_out_oldest();
        }
        let number = state.next;
        state.next += 1;
        state.strangers.insert(number, pushed_out.clone());
        drop(state);
        OpenConnection { counted: Arc::clone(self), number, pushed_out }
    }

    /// Pushes out the oldest connection of a stranger: nothing more can be opened.
    pub fn make_room(&self) {
        self.lock().push_out_oldest();
    }

    // A panic leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push_out_oldest(&mut self) {
        if let Some((_, oldest)) = self.strangers.pop_first() {
            oldest.cancel();
        }
    }
}

impl OpenConnection {
    /// Notes that it is of somebody known, who is not pushed out. False if there are too many of them: it
    /// is served all the same, and remains a stranger's.
    pub fn note_known(&self) -> bool {
        let mut state = self.counted.lock();
        if state.known.contains(&self.number) {
            return true;
        }
        if state.known.len() >= self.counted.most.known
            || state.strangers.remove(&self.number).is_none()
        {
            return false;
        }
        state.known.insert(self.number)
    }

    /// Returns when the connection must make room for others.
    pub async fn pushed_out(&self) {
        self.pushed_out.cancelled().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut state = self.counted.lock();
        state.strangers.remove(&self.number);
        state.known.remove(&self.number);
    }
}

/// How long a server waits after a connection could not be accepted; others may close theirs meanwhile.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often a server tells that connections cannot be accepted.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Connections that could not be accepted, most likely for want of file descriptors.
#[derive(Debug, Default)]
pub struct AcceptTrouble {
    untold: u64,
    told: Option<Instant>,
}

impl AcceptTrouble {
    /// Counts one more; how many there were since it was told last, if it is time to.
    pub fn count(&mut self, now: Instant) -> Option<u64> {
        self.untold = self.untold.saturating_add(1);
        if self.told.is_some_and(|told| now.duration_since(told) < TELL_EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pushed_out(connection: &OpenConnection) -> bool {
        connection.pushed_out.is_cancelled()
    }

    /// Hole: some thousand connections that sent nothing shut everybody out.
    #[test]
    fn the_oldest_stranger_makes_room_and_nobody_else() {
        let all = OpenConnections::new(MostConnections { known: 2, strangers: 3 });
        let known = [all.open(), all.open()];
        assert!(known.iter().all(OpenConnection::note_known));
        let strangers: Vec<_> = (0..5).map(|_| all.open()).collect();
        let pushed: Vec<_> = strangers.iter().map(is_pushed_out).collect();
        assert_eq!(pushed, [true, true, false, false, false]);
        assert!(!known.iter().any(is_pushed_out));
        assert!(!strangers[0].note_known(), "who was pushed out stays out");
        all.make_room();
        assert!(is_pushed_out(&strangers[2]) && !is_pushed_out(&strangers[3]));
    }

    #[test]
    fn who_is_one_known_too_many_is_served_as_a_stranger() {
        let all = OpenConnections::new(MostConnections { known: 1, strangers: 2 });
        let first = all.open();
        assert!(first.note_known() && first.note_known());
        let second = all.open();
        assert!(!second.note_known() && !is_pushed_out(&second));
        drop(first);
        assert!(second.note_known());
        drop(second);
        let state = all.lock();
        assert!(state.known.is_empty() && state.strangers.is_empty());
    }

    #[test]
    fn a_process_with_few_files_has_few_connections() {
        let most = |files| MostConnections::within(files);
        assert_eq!(most(None), MostConnections::default());
        assert_eq!(most(Some(1024)), MostConnections { known: 204, strangers: 128 });
        assert_eq!(most(Some(0)), MostConnections { known: 1, strangers: 1 });
        for files in [1024, 20_000, 1 << 20] {
            let MostConnections { known, strangers } = most(Some(files));
            assert!((known * 4 + strangers) as u64 <= files, "{files}");
        }
    }

    #[test]
    fn trouble_is_told_seldom_and_with_a_number() {
        let (mut trouble, start) = (AcceptTrouble::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(trouble.count(at(0)), Some(1));
        assert_eq!((trouble.count(at(1)), trouble.count(at(9))), (None, None));
        assert_eq!(trouble.count(at(10)), Some(3));
    }
}
