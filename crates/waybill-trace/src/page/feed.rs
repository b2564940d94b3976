//! What changed lately, for all browsers at once. Each session is in it once, with its last change: a reader that was away for a while
//! gets what it missed, and a busy session takes no more room than a quiet one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use tokio::{sync::watch, time::sleep};

use crate::{Change, Coverage, RecordedSession, TraceSource};

/// So many sessions are remembered; who missed more asks for all of them again.
const KEPT: usize = 4_096;

/// After a source has ended its stream.
const PAUSE: Duration = Duration::from_secs(1);

/// The changes of one source.
#[derive(Debug)]
pub(super) struct Feed {
    state: Mutex<State>,
    told: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last change.
    last: u64,
    /// Whoever has not read this one has missed something.
    floor: u64,
    order: BTreeMap<u64, String>,
    changed: HashMap<String, Changed>,
    coverage: Option<(u64, Coverage)>,
}

#[derive(Debug)]
struct Changed {
    number: u64,
    /// Absent if only its programs changed so far.
    session: Option<(u64, Arc<RecordedSession>)>,
}

/// What a reader gets.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The number of the last change in it.
    pub(super) last: u64,
    pub(super) sessions: Vec<Arc<RecordedSession>>,
    /// Sessions whose programs, or which themselves, changed.
    pub(super) touched: Vec<String>,
    pub(super) coverage: Option<Coverage>,
}

impl Feed {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), told: watch::Sender::new(0) })
    }

    /// Takes changes from a source, for as long as it is polled.
    pub(super) async fn follow(&self, source: &dyn TraceSource) {
        loop {
            let mut changes = source.changes();
            while let Some(change) = changes.next().await {
                self.take(change);
            }
            self.take(Change::Missed);
            sleep(PAUSE).await;
        }
    }

    /// The number of the last change. What is read from the source after this has it.
    pub(super) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Hears of numbers of changes.
    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    /// What is newer than `after`; `None` if that is not known any more.
    pub(super) fn since(&self, after: u64) -> Option<News> {
        let state = self.lock();
        if after < state.floor || after > state.last {
            return None;
        }
        let mut news = News { last: state.last, ..News::default() };
        for id in state.order.range(after + 1..).map(|(_, id)| id) {
            let Some(changed) = state.changed.get(id) else { continue };
            news.touched.push(id.clone());
            let session = changed.session.as_ref().filter(|(number, _)| *number > after);
            news.sessions.extend(session.map(|(_, session)| Arc::clone(session)));
        }
        let coverage = state.coverage.as_ref().filter(|(number, _)| *number > after);
        news.coverage = coverage.map(|(_, coverage)| coverage.clone());
        Some(news)
    }

    fn take(&self, change: Change) {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        match change {
            Change::Session(session) => {
                let id = session.id.clone();
                state.touch(id, number).session = Some((number, Arc::new(*session)));
            }
            Change::Process(process) => {
                state.touch(process.session, number);
            }
            Change::Coverage(coverage) => state.coverage = Some((number, coverage)),
            Change::Missed => state.floor = number,
        }
        state.shrink();
        drop(state);
        self.told.send_replace(number);
    }

    // A panic leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, id: String, number: u64) -> &mut Changed {
        let changed = self.changed.entry(id.clone()).or_insert(Changed { number, session: None });
        self.order.remove(&changed.number);
        changed.number = number;
        self.order.insert(number, id);
        changed
    }

    fn shrink(&mut self) {
        while self.order.len() > KEPT {
            let Some((number, id)) = self.order.pop_first() else { return };
            self.changed.remove(&id);
            self.floor = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::saved::tests::{process, session};

    fn began(id: &str) -> Change {
        Change::Session(Box::new(session(id, "anna", "web", "02:10:00", None)))
    }

    fn ids(news: &News) -> Vec<&str> {
        news.sessions.iter().map(|session| session.id.as_str()).collect()
    }

    #[test]
    fn a_reader_gets_what_is_new_to_it_once() {
        let feed = Feed::new();
        feed.take(began("s1"));
        let first = feed.since(0).unwrap();
        assert_eq!((ids(&first), first.last), (vec!["s1"], 1));
        feed.take(began("s2"));
        feed.take(Change::Process(Box::new(process("s1", 7, &["sh"], "02:10:00"))));
        let next = feed.since(first.last).unwrap();
        // The program changed s1 only by being there.
        assert_eq!(
            (ids(&next), next.touched.clone()),
            (vec!["s2"], vec!["s2".to_owned(), "s1".to_owned()])
        );
        assert!(feed.since(next.last).unwrap().touched.is_empty());
    }

    #[test]
    fn whoever_missed_too_much_or_knows_of_another_server_starts_again() {
        let feed = Feed::new();
        for number in 0..=KEPT {
            feed.take(began(&format!("s{number}")));
        }
        assert!(feed.since(0).is_none());
        assert_eq!(feed.since(1).unwrap().sessions.len(), KEPT);
        assert!(feed.since(u64::MAX).is_none());
        feed.take(Change::Missed);
        assert!(feed.since(feed.last() - 1).is_none());
        assert!(feed.since(feed.last()).is_some());
    }

    #[test]
    fn a_busy_session_takes_the_room_of_one() {
        let feed = Feed::new();
        feed.take(began("quiet"));
        for _ in 0..2 * KEPT {
            feed.take(began("busy"));
        }
        assert_eq!(ids(&feed.since(0).unwrap()), ["quiet", "busy"]);
    }
}
