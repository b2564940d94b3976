//! Records of sessions on this node: which have ended, what runs in those that have not, and the newest for whoever may ask.
//!
//! The wrapper writes a record before a session begins and is gone by then. So the agent looks when it is over: of an exec, when
//! nobody is in its cgroup any more; of a debug container, when the API's pod says so.

mod cgroup;
mod serve;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use waybill_api::stock::{NodeSession, NodeSessions, SessionId, SessionRecord, StockKind};

use self::cgroup::Cgroup;
pub use self::serve::ServeError;
pub(crate) use self::serve::{RecordsServer, SERVER_NAME};
use super::directory::RunDirectory;

/// How often is looked who has ended.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// A session whose runtime has not come to its end by then will not begin any more.
const BEGINNING: Duration = Duration::from_secs(120);

/// No more records than these are kept of sessions that have ended. Each takes a page at least, of 16,384 in all.
const KEPT: usize = 6_000;

/// Nor for longer, after their end.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// The most bytes of records in one answer.
const ANSWER_BYTES: usize = 1 << 20;

/// The most records in one answer.
const ANSWER_RECORDS: usize = 10_000;

/// The records of a node.
pub(super) struct Records {
    directory: RunDirectory,
    /// Where the node's `/` is.
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the folder was last changed that was looked at.
    listed: Option<SystemTime>,
    /// What was read of it, by the first half of the random ID in its name.
    seen: HashSet<u64>,
    /// What has not ended.
    open: HashMap<SessionId, Open>,
}

/// A session that has not ended.
enum Open {
    Exec {
        file: PathBuf,
        cgroup: Cgroup,
        /// The process that became the runtime.
        pid: Option<u32>,
        started: SystemTime,
    },
    Debug {
        file: PathBuf,
        uid: String,
        container: String,
    },
}

/// Which records are wanted; everything that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordsQuery {
    pub(super) namespace: Option<String>,
    pub(super) pod: Option<String>,
    /// Not what ended before, in nanoseconds since 1970.
    pub(super) since_ns: Option<u64>,
    pub(super) limit: Option<usize>,
}

impl RecordsQuery {
    fn takes(&self, record: &SessionRecord) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|it| it == found);
        // What never ran ended when it was refused.
        let ran = record.cgroup_id != 0 || record.kind == StockKind::Debug;
        let ended = record.ended_ns.or((!ran).then_some(record.started_ns));
        let since = self.since_ns.is_none_or(|since| ended.is_none_or(|ended| ended >= since));
        is(&self.namespace, &record.namespace) && is(&self.pod, &record.pod) && since
    }
}

impl Records {
    pub(super) fn new(directory: RunDirectory, root: &Path) -> Self {
        Self { directory, root: root.to_owned(), state: Mutex::default() }
    }

    /// Notes which sessions have ended.
    pub(super) fn look(&self, now: SystemTime) {
        let mut state = self.lock();
        self.sweep_if_scarce(&mut state);
        self.list(&mut state);
        let ended: Vec<_> = state
            .open
            .iter()
            .filter(|(_, open)| self.has_ended(open, now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in ended {
            if let Some(Open::Exec { file, cgroup, .. }) = state.open.remove(&id) {
                note_end(&self.directory, &file, nanoseconds(now), None);
                cgroup.remove();
            }
        }
    }

    /// Removes records of what has ended long ago, and makes room.
    pub(super) fn sweep(&self, now: SystemTime) {
        let mut state = self.lock();
        self.list(&mut state);
        let old = now.checked_sub(KEPT_FOR).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut ended = self.ended(&state);
        ended.retain(|(path, written)| {
            let is_old = *written < old;
            if is_old {
                let _ = fs::remove_file(path);
            }
            !is_old
        });
        make_room(&ended, KEPT);
    }

    /// Makes room at once where half of the memory is used: keys and facts of new pods must fit, and records of who begins now.
    fn sweep_if_scarce(&self, state: &mut State) {
        if self.directory.is_scarce() {
            self.list(state);
            let ended = self.ended(state);
            make_room(&ended, ended.len() / 2);
        }
    }

    /// Records of what has ended, the oldest first.
    fn ended(&self, state: &State) -> Vec<(PathBuf, SystemTime)> {
        let is_open = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(record_id).is_some_and(|id| state.open.contains_key(&id))
        };
        self.directory.records().into_iter().filter(|(path, _)| !is_open(path)).collect()
    }

    /// Notes that a debug container has ended, at a time and with a code that the API's pod tells.
    pub(super) fn end_debug(&self, uid: &str, container: &str, ended: SystemTime, code: i32) {
        self.end_debugs(
            |its_uid, its_container| (its_uid, its_container) == (uid, container),
            ended,
            Some(code),
        );
    }

    /// Notes that the debug containers of a pod have ended with it.
    pub(super) fn end_pod(&self, uid: &str, now: SystemTime) {
        self.end_debugs(|its_uid, _| its_uid == uid, now, None);
    }

    /// The same for all pods but these.
    pub(super) fn end_all_but(&self, living: &BTreeSet<String>, now: SystemTime) {
        self.end_debugs(|uid, _| !living.contains(uid), now, None);
    }

    fn end_debugs(&self, takes: impl Fn(&str, &str) -> bool, ended: SystemTime, code: Option<i32>) {
        let mut state = self.lock();
        self.list(&mut state);
        state.open.retain(|_, open| match open {
            Open::Debug { file, uid, container } if takes(uid, container) => {
                note_end(&self.directory, file, nanoseconds(ended), code);
                false
            }
            Open::Debug { .. } | Open::Exec { .. } => true,
        });
    }

    /// The newest that are wanted, oldest first.
    pub(super) fn newest(&self, query: &RecordsQuery) -> NodeSessions {
        let most = query.limit.unwrap_or(ANSWER_RECORDS).min(ANSWER_RECORDS);
        let mut answer = NodeSessions::default();
        let mut room = ANSWER_BYTES;
        for (path, _) in self.directory.records().iter().rev() {
            let Some((record, bytes)) = read(path) else { continue };
            if !query.takes(&record) {
                continue;
            }
            let session = self.living(record);
            let used =
                session.processes.iter().flat_map(|it| &it.argv).map(String::len).sum::<usize>();
            let left = room.checked_sub(bytes + used);
            let Some(left) = left.filter(|_| answer.sessions.len() < most) else {
                answer.truncated = true;
                break;
            };
            room = left;
            answer.sessions.push(session);
        }
        answer.sessions.reverse();
        answer
    }

    /// A record, and what runs of it now.
    fn living(&self, record: SessionRecord) -> NodeSession {
        let cgroup = Cgroup::of(&self.root, &record).filter(|_| record.ended_ns.is_none());
        let processes = cgroup.map(|cgroup| cgroup.processes(&self.root)).unwrap_or_default();
        NodeSession { node: String::new(), record, processes }
    }

    /// Takes note of records that are new. Only the wrapper and this agent write there, so what was read once is known.
    fn list(&self, state: &mut State) {
        let folder = self.directory.layout().sessions();
        let changed = fs::metadata(&folder).and_then(|found| found.modified()).ok();
        if changed.is_some() && changed == state.listed {
            return;
        }
        let mut there = HashSet::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(record_id) else { continue };
            let Some(half) = half(&id) else { continue };
            there.insert(half);
            if !state.seen.contains(&half)
                && let Some((record, _)) = read(&entry.path())
                && let Some(open) = self.open(entry.path(), &record)
            {
                state.open.insert(id, open);
            }
        }
        state.open.retain(|id, _| half(id).is_some_and(|half| there.contains(&half)));
        state.seen = there;
        state.listed = changed;
    }

    fn open(&self, file: PathBuf, record: &SessionRecord) -> Option<Open> {
        if record.ended_ns.is_some() {
            return None;
        }
        if record.kind == StockKind::Debug {
            let (uid, container) = (record.uid.clone(), record.container.clone());
            return record.session.as_ref().map(|_| Open::Debug { file, uid, container });
        }
        let cgroup = Cgroup::of(&self.root, record)?;
        let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(record.started_ns);
        Some(Open::Exec { file, cgroup, pid: record.pid, started })
    }

    fn has_ended(&self, open: &Open, now: SystemTime) -> bool {
        let Open::Exec { cgroup, pid, started, .. } = open else { return false };
        // First of all: the runtime ends, or waits, when the session's process is in its place.
        let begins = pid.is_some_and(|pid| self.root.join(format!("proc/{pid}")).exists())
            && now.duration_since(*started).unwrap_or_default() < BEGINNING;
        !begins && !cgroup.is_populated()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes records until so many are left: always the oldest of the container that has most, so that nobody pushes out what others did.
fn make_room(records: &[(PathBuf, SystemTime)], kept: usize) {
    let Some(surplus) = records.len().checked_sub(kept).filter(|surplus| *surplus > 0) else {
        return;
    };
    let mut of_containers: HashMap<String, VecDeque<&Path>> = HashMap::new();
    for (path, _) in records {
        let container =
            read(path).map(|(record, _)| format!("{} {}", record.uid, record.container));
        of_containers.entry(container.unwrap_or_default()).or_default().push_back(path);
    }
    for _ in 0..surplus {
        let most = of_containers.values_mut().max_by_key(|paths| paths.len());
        if let Some(oldest) = most.and_then(VecDeque::pop_front) {
            let _ = fs::remove_file(oldest);
        }
    }
}

/// Of a session, and of what is nobody's.
fn record_id(name: &str) -> Option<SessionId> {
    let name = name.strip_suffix(".json")?;
    SessionId::parse(name.strip_prefix("unattributed-").unwrap_or(name)).ok()
}

fn half(id: &SessionId) -> Option<u64> {
    u64::from_str_radix(id.as_str().get(..16)?, 16).ok()
}

/// A record and its size; one of another version is not understood.
fn read(file: &Path) -> Option<(SessionRecord, usize)> {
    let text = fs::read(file).ok()?;
    let record: SessionRecord = serde_json::from_slice(&text).ok()?;
    (record.version == SessionRecord::VERSION).then_some((record, text.len()))
}

/// What cannot be written stays open, and is told as such.
fn note_end(directory: &RunDirectory, file: &Path, ended_ns: u64, exit_code: Option<i32>) {
    let Some((mut record, _)) = read(file) else { return };
    (record.ended_ns, record.exit_code) = (Some(ended_ns), exit_code);
    if let Err(error) = directory.write_json(file, &record) {
        tracing::warn!(%error, "the end of a session could not be noted");
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
