//! Queue, batches and overflow of the audit log, with a sink in memory.

use std::sync::{
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use super::*;
use crate::audit::{
    event::{EventKind, EventVersion, Level, MicroTime, Stage, UserInfo},
    mint_id,
};

/// A sink that tests look into.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    text: Arc<Mutex<String>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
    /// Nothing is written while this is set.
    pub(crate) full: Arc<AtomicBool>,
    /// Each write takes one; without it writes do not wait.
    turns: Arc<Mutex<Option<mpsc::Receiver<io::Result<()>>>>>,
}

impl Memory {
    pub(crate) fn events(&self) -> Vec<Event> {
        let text = self.text.lock().unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn gated() -> (Self, mpsc::Sender<io::Result<()>>) {
        let (sender, turns) = mpsc::channel();
        (Self { turns: Arc::new(Mutex::new(Some(turns))), ..Self::default() }, sender)
    }
}

impl Sink for Memory {
    fn append(&mut self, _now: Timestamp, lines: &[u8]) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(turns) = &*self.turns.lock().unwrap() {
            // A test that lets go of its end lets all writes pass.
            turns.recv().unwrap_or(Ok(()))?;
        }
        self.calls.lock().unwrap().push("append");
        self.text.lock().unwrap().push_str(str::from_utf8(lines).unwrap());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.calls.lock().unwrap().push("sync");
        Ok(())
    }

    fn make_room(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reopen(&mut self, _now: Timestamp) -> io::Result<()> {
        self.calls.lock().unwrap().push("reopen");
        Ok(())
    }
}

fn clock() -> Clock {
    Arc::new(|| Timestamp::UNIX_EPOCH)
}

fn start(sink: Memory, options: LogOptions) -> (AuditLog, AuditMetrics) {
    let metrics = AuditMetrics::default();
    (AuditLog::start(sink, options, metrics.clone(), clock()).unwrap(), metrics)
}

pub(crate) fn event(uri: &str) -> Event {
    let now = MicroTime(Timestamp::UNIX_EPOCH);
    Event {
        kind: EventKind::Event,
        api_version: EventVersion::V1,
        level: Level::Metadata,
        audit_id: mint_id().to_string(),
        stage: Stage::ResponseComplete,
        request_uri: uri.to_owned(),
        verb: "get".to_owned(),
        user: UserInfo::default(),
        impersonated_user: None,
        source_ips: Vec::new(),
        user_agent: String::new(),
        object_ref: None,
        response_status: None,
        request_object: None,
        response_object: None,
        request_received_timestamp: now,
        stage_timestamp: now,
        annotations: Default::default(),
    }
}

fn uris(sink: &Memory) -> Vec<String> {
    sink.events().into_iter().map(|event| event.request_uri).collect()
}

#[tokio::test]
async fn an_event_is_in_the_sink_when_the_wait_is_over() {
    let sink = Memory::default();
    let (log, metrics) = start(sink.clone(), LogOptions::default());
    let written = log.reserve(1).await.ok().unwrap().put(&event("/a"), Urgency::Awaited);
    log.wait(written).await.unwrap();
    assert_eq!(uris(&sink), ["/a"]);
    assert_eq!((metrics.events.get(), metrics.errors.get()), (1, 0));
}

#[tokio::test]
async fn what_nobody_waits_for_is_written_together_a_moment_later() {
    let sink = Memory::default();
    let (log, _) = start(sink.clone(), LogOptions::default());
    let mut last = None;
    for uri in ["/a", "/b", "/c"] {
        last = Some(log.reserve(1).await.ok().unwrap().put(&event(uri), Urgency::Unawaited));
    }
    log.wait(last.unwrap()).await.unwrap();
    assert_eq!(uris(&sink), ["/a", "/b", "/c"]);
}

#[tokio::test]
async fn what_gathers_during_a_write_goes_out_in_one_batch() {
    let (sink, turns) = Memory::gated();
    let options = LogOptions { durability: Durability::Disk, ..LogOptions::default() };
    let (log, _) = start(sink.clone(), options);
    let mut last = None;
    for uri in ["/first", "/b", "/c", "/d"] {
        last = Some(log.reserve(1).await.ok().unwrap().put(&event(uri), Urgency::Awaited));
    }
    drop(turns);
    log.wait(last.unwrap()).await.unwrap();
    assert_eq!(uris(&sink), ["/first", "/b", "/c", "/d"]);
    let calls = sink.calls.lock().unwrap();
    assert!(calls.len() <= 4, "{calls:?}");
    assert!(calls.chunks(2).all(|pair| pair == ["append", "sync"]), "{calls:?}");
}

#[tokio::test]
async fn a_full_queue_is_left_at_once_or_after_a_wait_and_the_loss_is_counted() {
    for (overflow, expected, lost, rejected) in [
        (Overflow::Wait(Duration::ZERO), Full::Unrecorded, 2, 0),
        (Overflow::Wait(Duration::from_millis(10)), Full::Unrecorded, 2, 0),
        (Overflow::Reject(Duration::from_millis(10)), Full::Rejected, 0, 1),
    ] {
        let options = LogOptions { places: 2, overflow, ..LogOptions::default() };
        let (log, metrics) = start(Memory::default(), options);
        let _held = log.reserve(1).await.ok().unwrap();
        assert_eq!(log.reserve(2).await.err(), Some(expected), "{overflow:?}");
        assert_eq!((metrics.errors.get(), metrics.rejected.get()), (lost, rejected));
    }
}

/// The hole: of what found no place only the server's own log told, though ADR 0024 promises an event.
#[tokio::test]
async fn what_found_no_place_is_told_in_the_log() {
    let overflow = Overflow::Wait(Duration::ZERO);
    let options = LogOptions { places: 1, overflow, ..LogOptions::default() };
    let sink = Memory::default();
    let (log, metrics) = start(sink.clone(), options);
    let held = log.reserve(1).await.ok().unwrap();
    for _ in 0..5 {
        assert!(log.reserve(2).await.is_err());
    }
    drop(held);
    let written = log.reserve(1).await.ok().unwrap().put(&event("/a"), Urgency::Awaited);
    log.wait(written).await.unwrap();
    // At once of the first, and of the rest at the end: not of each.
    log.shut_down();
    let events = sink.events();
    let notices: Vec<_> = events.iter().filter(|event| event.verb == "notice").collect();
    let told = notices.iter().map(|it| it.annotations["audit.waybill.dev/events"].parse::<u64>());
    assert_eq!(told.map(Result::unwrap).sum::<u64>(), metrics.errors.get());
    assert!(matches!(notices.len(), 1 | 2), "{notices:#?}");
    assert_eq!(notices[0].annotations["audit.waybill.dev/reason"], "the queue is full");
    assert_eq!(events.len() - notices.len(), 1);
}

#[tokio::test]
async fn places_come_back_when_events_are_written_or_never_come() {
    let options = LogOptions { places: 2, ..LogOptions::default() };
    let (log, metrics) = start(Memory::default(), options);
    for round in 0..50 {
        let mut places = log.reserve(2).await.ok().unwrap();
        if round % 2 == 0 {
            let _written = places.put(&event("/a"), Urgency::Awaited);
        }
    }
    assert_eq!(metrics.errors.get(), 0);
}

/// A log whose disk takes nothing at first.
fn on_a_full_disk() -> (AuditLog, Memory, AuditMetrics) {
    let sink = Memory::default();
    sink.full.store(true, Ordering::Relaxed);
    let (log, metrics) = start(sink.clone(), LogOptions::default());
    (log, sink, metrics)
}

/// The hole: on a full disk events were lost until a restart, and nobody was told.
#[tokio::test]
async fn what_a_full_disk_does_not_take_is_told_and_written_when_it_does() {
    let (log, sink, metrics) = on_a_full_disk();
    let written = log.reserve(1).await.ok().unwrap().put(&event("/late"), Urgency::Awaited);
    let error = log.wait(written).await.unwrap_err();
    assert_eq!(log.trouble(), Some(error.to_string()));
    assert_eq!(metrics.failing.get(), 1);
    sink.full.store(false, Ordering::Relaxed);
    let written = log.reserve(1).await.ok().unwrap().put(&event("/next"), Urgency::Awaited);
    log.wait(written).await.unwrap();
    assert_eq!(uris(&sink), ["/late", "/next"]);
    assert_eq!((metrics.events.get(), metrics.errors.get()), (2, 0));
    assert_eq!((log.trouble(), metrics.failing.get()), (None, 0));
}

#[tokio::test]
async fn the_log_heals_without_another_event() {
    let (log, sink, _) = on_a_full_disk();
    let written = log.reserve(1).await.ok().unwrap().put(&event("/late"), Urgency::Awaited);
    log.wait(written).await.unwrap_err();
    sink.full.store(false, Ordering::Relaxed);
    let healed = async {
        while log.trouble().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), healed).await.unwrap();
    assert_eq!(uris(&sink), ["/late"]);
}

#[tokio::test]
async fn what_is_too_much_to_keep_is_lost_and_the_log_itself_tells() {
    let (log, sink, metrics) = on_a_full_disk();
    let long = "x".repeat(5 << 20);
    for uri in ["/kept", &long, &long, "/small"] {
        let written = log.reserve(1).await.ok().unwrap().put(&event(uri), Urgency::Awaited);
        log.wait(written).await.unwrap_err();
    }
    assert_eq!(metrics.errors.get(), 1);
    sink.full.store(false, Ordering::Relaxed);
    let written = log.reserve(1).await.ok().unwrap().put(&event("/next"), Urgency::Awaited);
    log.wait(written).await.unwrap();
    let events = sink.events();
    let lengths: Vec<_> = events.iter().map(|event| event.request_uri.len()).collect();
    assert_eq!(lengths, [5, 5 << 20, 6, 0, 5]);
    assert_eq!(events[3].annotations["audit.waybill.dev/events"], "1");
}

#[tokio::test]
async fn dropping_the_log_writes_what_is_left() {
    let sink = Memory::default();
    let (log, metrics) = start(sink.clone(), LogOptions::default());
    let mut late = log.reserve(1).await.ok().unwrap();
    for _ in 0..100 {
        let _written = log.reserve(1).await.ok().unwrap().put(&event("/a"), Urgency::Awaited);
    }
    log.reopen();
    drop(log);
    assert_eq!(sink.events().len(), 100);
    assert_eq!(sink.calls.lock().unwrap().last(), Some(&"reopen"));
    let _written = late.put(&event("/late"), Urgency::Awaited);
    assert_eq!((sink.events().len(), metrics.errors.get()), (100, 1));
}
