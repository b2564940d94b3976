//! A server with a record that tests can change, and a browser that looks at it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    thread::{self, JoinHandle},
};

use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use waybill_testkit::chromium::{Chromium, Tab};
use waybill_trace::{
    Change, Coverage, EventSource, PageServer, ProcessQuery, RecordedProcess, RecordedSession,
    SavedTrace, SessionList, SessionQuery, TraceSource, TraceSourceError,
};

/// What time it is in every test.
pub(super) fn clock() -> Timestamp {
    "2026-11-17T02:30:00Z".parse().unwrap()
}

/// Sessions and their programs.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) coverage: Coverage,
    pub(super) sessions: Vec<RecordedSession>,
    pub(super) processes: Vec<RecordedProcess>,
}

impl Record {
    /// As the kernel tells it.
    pub(super) fn of(sessions: Vec<RecordedSession>, processes: Vec<RecordedProcess>) -> Self {
        let since = "2026-11-03T08:00:00Z".parse().ok();
        let coverage = Coverage { source: Some(EventSource::Ebpf), since, ..Coverage::default() };
        Self { coverage, sessions, processes }
    }
}

/// A record that changes, or cannot be read.
pub(super) struct Changing {
    record: RwLock<Record>,
    saved: RwLock<Result<Arc<SavedTrace>, String>>,
    changes: broadcast::Sender<Change>,
}

impl Changing {
    fn new(record: Record) -> Self {
        // Only small ones change.
        let kept = if record.processes.len() > 10_000 { Record::default() } else { record.clone() };
        let saved = RwLock::new(Ok(Arc::new(saved(record))));
        Self { record: RwLock::new(kept), saved, changes: broadcast::Sender::new(1_024) }
    }

    /// A session begins or changes, and programs with it.
    pub(super) fn change(&self, session: RecordedSession, processes: &[RecordedProcess]) {
        let mut record = self.record.write().unwrap();
        record.sessions.retain(|it| it.id != session.id);
        record.sessions.push(session.clone());
        for process in processes {
            record.processes.retain(|it| (it.pid, it.started) != (process.pid, process.started));
            record.processes.push(process.clone());
        }
        *self.saved.write().unwrap() = Ok(Arc::new(saved(record.clone())));
        drop(record);
        for process in processes {
            let _ = self.changes.send(Change::Process(Box::new(process.clone())));
        }
        let _ = self.changes.send(Change::Session(Box::new(session)));
    }

    /// Nothing can be read any more.
    pub(super) fn break_down(&self, why: &str) {
        *self.saved.write().unwrap() = Err(why.to_owned());
    }

    fn now(&self) -> Result<Arc<SavedTrace>, TraceSourceError> {
        let saved = self.saved.read().unwrap_or_else(PoisonError::into_inner).clone();
        saved.map_err(|why| TraceSourceError::new("cannot read the record", why))
    }
}

fn saved(record: Record) -> SavedTrace {
    SavedTrace::new(record.coverage, record.sessions, record.processes)
}

impl TraceSource for Changing {
    fn sessions<'a>(
        &'a self,
        query: &'a SessionQuery,
    ) -> BoxFuture<'a, Result<SessionList, TraceSourceError>> {
        async { self.now()?.sessions(query).await }.boxed()
    }

    fn processes<'a>(
        &'a self,
        query: &'a ProcessQuery,
    ) -> BoxFuture<'a, Result<Vec<RecordedProcess>, TraceSourceError>> {
        async { self.now()?.processes(query).await }.boxed()
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let heard = self.changes.subscribe();
        let next = |mut heard: broadcast::Receiver<Change>| async {
            match heard.recv().await {
                Ok(change) => Some((change, heard)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Change::Missed, heard)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        };
        stream::unfold(heard, next).boxed()
    }
}

/// The page, served until the end of a test.
pub(super) struct Served {
    pub(super) record: Arc<Changing>,
    pub(super) server: Arc<PageServer>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub(super) fn start(record: Record) -> Self {
        let record = Arc::new(Changing::new(record));
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let source: Arc<dyn TraceSource> = record.clone();
        let bound = PageServer::bind("0".parse().unwrap(), source, clock, stop.clone());
        let server = Arc::new(runtime.block_on(bound).unwrap());
        let serves = Arc::clone(&server);
        let thread = thread::spawn(move || runtime.block_on(serves.serve()));
        Self { record, server, stop, thread: Some(thread) }
    }

    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Ends the server, as Ctrl-C does.
    pub(super) fn stop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A browser that is in, and sees a view of a record.
pub(super) struct Visit {
    pub(super) served: Served,
    pub(super) browser: Arc<Chromium>,
    pub(super) tab: Tab,
}

impl Visit {
    /// Opens the page with a link, at `query`; `None` if this machine has no browser.
    pub(super) fn start(record: Record, query: &str) -> Option<Self> {
        let browser = Arc::new(Chromium::start()?);
        let served = Served::start(record);
        let tab = browser.tab(1440, 900);
        tab.go(&served.server.new_link(query).unwrap());
        Some(Self { served, browser, tab })
    }

    /// The same, and waits until sessions are there.
    pub(super) fn of(record: Record, query: &str) -> Option<Self> {
        let visit = Self::start(record, query)?;
        visit.tab.wait_until("document.querySelectorAll('.row[data-id]').length > 0");
        Some(visit)
    }

    /// Goes to another view.
    pub(super) fn go(&self, query: &str) {
        self.tab.go(&format!("{}/?{query}", self.served.origin()));
    }

    /// Texts of the rows that are there, top to bottom.
    pub(super) fn rows(&self) -> Vec<String> {
        let rows = "[...document.querySelectorAll('.row[data-id]')].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)\
                    .map((row) => row.innerText.replaceAll('\\n', ' '))";
        texts(&self.tab.evaluate(rows))
    }

    /// Texts of the branches of the tree, top to bottom.
    pub(super) fn branches(&self) -> Vec<String> {
        let rows = "[...document.querySelectorAll('.branch')].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)\
                    .map((row) => (row.querySelector('.what .became') ? 'became ' : '') + row.querySelector('.what .raw').textContent)";
        texts(&self.tab.evaluate(rows)).iter().map(|text| text.trim_end().to_owned()).collect()
    }

    /// Keeps a picture below the target folder.
    pub(super) fn picture(&self, name: &str) {
        self.tab.picture(&self.path(name));
    }

    /// Where a picture is kept.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures").join(format!("{name}.png"))
    }

    /// Nothing went wrong, and nothing was asked of anybody else.
    #[track_caller]
    pub(super) fn check_clean(&self) {
        assert_eq!(self.tab.faults(), Vec::<String>::new());
        let own = format!("{}/", self.served.origin());
        let foreign = self
            .tab
            .requests()
            .into_iter()
            .filter(|address| !address.starts_with(&own) && !address.starts_with("blob:"));
        assert_eq!(foreign.collect::<Vec<_>>(), Vec::<String>::new());
    }
}

pub(super) fn texts(value: &serde_json::Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap_or_default().to_owned())
        .collect()
}
