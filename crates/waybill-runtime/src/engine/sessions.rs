//! The records of exec sessions that the runtime holds, running and ended.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::sync::watch;
use waybill_core::chain::Chain;

use super::{
    Exit, ExitCause, SessionFilter, SessionRecord,
    cgroup::SessionIdentity,
    clock,
    record::{self, SessionFile},
};

/// How many ended sessions are remembered, besides those that left processes behind.
const MOST_ENDED: usize = 1000;

/// How many are looked at when one ends: more than are added, so the number goes down.
const LOOKED_AT: usize = 8;

/// All sessions, in the order in which they began.
#[derive(Debug)]
pub(super) struct Sessions {
    directory: PathBuf,
    /// Where on the disk they are kept for after a reboot, if anywhere.
    history: Option<PathBuf>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// A tree, because a hash table in which entries come and go grows to twice its size.
    sessions: BTreeMap<String, Known>,
    began: VecDeque<String>,
    ended: VecDeque<String>,
}

#[derive(Debug)]
struct Known {
    record: SessionRecord,
    exit: watch::Sender<Option<Exit>>,
}

impl Sessions {
    pub(super) fn new(directory: PathBuf, history: Option<PathBuf>) -> Self {
        Self { directory, history, table: Mutex::default() }
    }

    /// Reads what monitors wrote, and what is known of the time before the machine was started. A session without an exit counts
    /// as running only if `lives` says so.
    pub(super) fn load(&self, lives: impl Fn(&SessionRecord) -> bool) -> io::Result<()> {
        let mut found = read_all(&self.directory)?;
        let past: Vec<SessionFile> = match &self.history {
            Some(history) => read_all(history)?,
            None => Vec::new(),
        };
        let known: BTreeSet<String> = found.iter().map(|file| file.id.clone()).collect();
        let past = past.into_iter().filter(|file| !known.contains(&file.id));
        found.extend(past.map(SessionFile::of_another_boot));
        found.sort_by_key(|file| file.started_at);
        for file in found {
            let record = file.into_record();
            let (id, exit) = (record.id.clone(), record.exit.clone());
            let lost = exit.is_none() && !(known.contains(&id) && lives(&record));
            let exit = if lost { Some(lost_exit(&record)) } else { exit };
            self.add(SessionRecord { exit: None, ..record });
            if let Some(exit) = exit {
                self.end(&id, &exit);
            }
        }
        Ok(())
    }

    /// Adds a session that runs, or is about to; how it ends can be waited for. `None` if the id is taken.
    pub(super) fn add(&self, record: SessionRecord) -> Option<watch::Receiver<Option<Exit>>> {
        let mut table = self.table();
        if table.sessions.contains_key(&record.id) {
            return None;
        }
        let (exit, receiver) = watch::channel(None);
        table.began.push_back(record.id.clone());
        table.sessions.insert(record.id.clone(), Known { record, exit });
        Some(receiver)
    }

    /// Notes what became of a session that was about to run.
    pub(super) fn started(
        &self,
        id: &str,
        pid: i32,
        started_at: SystemTime,
        identity: SessionIdentity,
        privileged: bool,
    ) {
        if let Some(known) = self.table().sessions.get_mut(id) {
            known.record.pid = pid;
            known.record.started_at = started_at;
            known.record.cgroup_id = identity.cgroup_id;
            known.record.made_at = identity.made_at;
            known.record.privileged = privileged;
        }
        self.write_history(id);
    }

    /// Forgets a session that never ran.
    pub(super) fn forget(&self, id: &str) {
        let mut table = self.table();
        table.sessions.remove(id);
        table.began.retain(|other| other != id);
    }

    pub(super) fn end(&self, id: &str, exit: &Exit) {
        let mut table = self.table();
        let Some(known) = table.sessions.get_mut(id) else { return };
        if known.record.exit.is_some() {
            return;
        }
        known.record.exit = Some(exit.clone());
        known.exit.send_replace(Some(exit.clone()));
        table.ended.push_back(id.to_owned());
        drop(table);
        self.write_history(id);
    }

    /// Keeps a session of somebody for after a reboot; probes and hooks have no audit ID, and are too many for a disk. Nobody fails
    /// because of it.
    fn write_history(&self, id: &str) {
        let Some(history) = &self.history else { return };
        let known =
            |known: &Known| known.record.audit_id.is_some().then(|| SessionFile::of(&known.record));
        let file = self.table().sessions.get(id).and_then(known);
        if let Some(file) = file
            && let Err(error) = record::save(&record::session_file(history, id), &file)
        {
            tracing::warn!(session = id, %error, "a session will not be known after a reboot");
        }
    }

    /// Forgets the oldest that have ended, if there are too many. One that `lingers`, because a process of it is still
    /// there, is remembered: somebody may ask who is behind that process.
    pub(super) fn forget_old(&self, lingers: impl Fn(&SessionRecord) -> bool) {
        for record in self.surplus() {
            let stays = lingers(&record);
            let mut table = self.table();
            let Some(at) = table.ended.iter().position(|id| *id == record.id) else { continue };
            let Some(id) = table.ended.remove(at) else { continue };
            if stays {
                table.ended.push_back(id);
                continue;
            }
            table.sessions.remove(&id);
            table.began.retain(|other| *other != id);
            for directory in [Some(&self.directory), self.history.as_ref()].into_iter().flatten() {
                let _ = fs::remove_file(record::session_file(directory, &id));
            }
        }
    }

    fn surplus(&self) -> Vec<SessionRecord> {
        let table = self.table();
        let count = table.ended.len().saturating_sub(MOST_ENDED).min(LOOKED_AT);
        let oldest = table.ended.iter().take(count).filter_map(|id| table.sessions.get(id));
        oldest.map(|known| known.record.clone()).collect()
    }

    /// Ends every session of a container that is gone, for this reason.
    pub(super) fn lose(&self, container: &str, cause: ExitCause) {
        let filter = SessionFilter {
            container: Some(container.to_owned()),
            running: true,
            changed_since: None,
        };
        for record in self.list(&filter) {
            self.end(&record.id, &Exit { cause, ..lost_exit(&record) });
        }
    }

    /// Ends every session of a container that its monitor does not know, which runs those of `living`.
    pub(super) fn lose_but(&self, container: &str, living: &[String]) {
        let filter = SessionFilter {
            container: Some(container.to_owned()),
            running: true,
            changed_since: None,
        };
        for record in self.list(&filter).iter().filter(|record| !living.contains(&record.id)) {
            self.end(&record.id, &lost_exit(record));
        }
    }

    pub(super) fn list(&self, filter: &SessionFilter) -> Vec<SessionRecord> {
        let table = self.table();
        let records = table.began.iter().filter_map(|id| table.sessions.get(id));
        let ended = |record: &SessionRecord| record.exit.as_ref().map(|exit| exit.finished_at);
        records
            .map(|known| &known.record)
            .filter(|record| filter.takes(&record.container, record.started_at, ended(record)))
            .cloned()
            .collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All records in a directory that are understood.
fn read_all(directory: &Path) -> io::Result<Vec<SessionFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        // Its writer died; a monitor that lives and writes this very moment writes it again when the session ends.
        if path.as_os_str().as_encoded_bytes().ends_with(record::HALF_WRITTEN.as_bytes()) {
            let _ = fs::remove_file(&path);
        }
        if path.extension().is_some_and(|kind| kind == "json") {
            match record::load::<SessionFile>(&path) {
                Ok(file) => found.extend(file),
                Err(error) => {
                    let (path, error) = (path.display(), Chain(&error));
                    tracing::warn!(%path, %error, "a record of a session is left alone");
                }
            }
        }
    }
    Ok(found)
}

fn lost_exit(record: &SessionRecord) -> Exit {
    Exit {
        code: 128 + libc::SIGKILL,
        cause: ExitCause::MonitorLost,
        started_at: Some(record.started_at),
        finished_at: clock::now(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use waybill_core::id::AuditId;

    use super::*;

    fn session(id: usize) -> SessionRecord {
        SessionRecord {
            id: format!("s{id}"),
            container: format!("c{}", id % 2),
            pid: 1,
            started_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
            cgroup_id: 0,
            made_at: 0,
            privileged: false,
            exit: None,
            injected: Vec::new(),
            audit_id: None,
        }
    }

    fn exit() -> Exit {
        Exit {
            code: 0,
            cause: ExitCause::Own,
            started_at: None,
            finished_at: SystemTime::UNIX_EPOCH,
        }
    }

    /// A collector asks again and again, and a thousand that it knows already are none of the answer.
    #[test]
    fn only_what_changed_since_a_time_can_be_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(directory.path().to_owned(), None);
        let second = |at| SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        for (id, started) in [(0, 1), (1, 1), (2, 5)] {
            sessions.add(SessionRecord { started_at: second(started), ..session(id) }).unwrap();
        }
        sessions.end("s1", &Exit { finished_at: second(5), ..exit() });
        let changed = |since| {
            let filter =
                SessionFilter { changed_since: Some(second(since)), ..SessionFilter::default() };
            sessions.list(&filter).into_iter().map(|it| it.id).collect::<Vec<_>>()
        };
        assert_eq!(changed(1), ["s0", "s1", "s2"]);
        assert_eq!(changed(5), ["s1", "s2"]);
        assert!(changed(6).is_empty());
    }

    #[test]
    fn ended_sessions_are_remembered_up_to_a_number_and_running_ones_always() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(directory.path().to_owned(), None);
        sessions.add(session(0));
        for id in 1..=MOST_ENDED + 5 {
            sessions.add(session(id));
            sessions.end(&format!("s{id}"), &exit());
            sessions.forget_old(|_| false);
        }
        let all = sessions.list(&SessionFilter::default());
        assert_eq!(all.len(), MOST_ENDED + 1);
        assert_eq!((all[0].id.as_str(), all[1].id.as_str()), ("s0", "s6"));
        let running =
            SessionFilter { container: Some("c0".to_owned()), running: true, changed_since: None };
        assert_eq!(sessions.list(&running).len(), 1);
    }

    /// EXEC-48: a process that outlives its session can still be traced.
    #[test]
    fn an_ended_session_with_a_process_left_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(directory.path().to_owned(), None);
        for id in 0..2 * MOST_ENDED {
            sessions.add(session(id));
            sessions.end(&format!("s{id}"), &exit());
            sessions.forget_old(|record| record.id == "s3");
        }
        let all = sessions.list(&SessionFilter::default());
        assert!(all.iter().any(|record| record.id == "s3"));
        assert!(all.len() <= MOST_ENDED + 1, "{}", all.len());
    }

    #[test]
    fn sessions_of_a_lost_monitor_end_as_lost_and_only_once() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(directory.path().to_owned(), None);
        let waiter = sessions.add(session(2)).unwrap();
        sessions.lose("c0", ExitCause::MonitorLost);
        sessions.end("s2", &exit());
        let exit = waiter.borrow().clone().unwrap();
        assert_eq!((exit.code, exit.cause), (137, ExitCause::MonitorLost));
    }

    /// After a reboot the tmpfs is empty. What ran then is still known, has ended, and has no cgroup: the kernel gives its number to
    /// another one.
    #[test]
    fn sessions_are_remembered_over_a_reboot_without_their_cgroups() {
        let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let history = tempfile::tempdir().unwrap();
        let open = |run: &Path| Sessions::new(run.to_owned(), Some(history.path().to_owned()));
        let sessions = open(before.path());
        for id in 0..4 {
            // The last one is a probe.
            let audit_id = (id < 3).then(|| AuditId::parse("a").unwrap());
            sessions.add(SessionRecord { audit_id, ..session(id) });
            let identity = SessionIdentity { cgroup_id: 70, made_at: 9 };
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(id as u64);
            sessions.started(&format!("s{id}"), 5, time, identity, false);
        }
        sessions.end("s1", &exit());
        let again = open(after.path());
        again.load(|_| true).unwrap();
        let all = again.list(&SessionFilter::default());
        assert_eq!(all.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["s0", "s1", "s2"]);
        assert!(all.iter().all(|it| (it.cgroup_id, it.made_at) == (0, 0)));
        let causes: Vec<_> = all.iter().map(|it| it.exit.as_ref().unwrap().cause).collect();
        let lost = ExitCause::MonitorLost;
        assert_eq!(causes, [lost, ExitCause::Own, lost]);
    }
}
