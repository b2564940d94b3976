//! The records of attach sessions: who had the streams of a container's own process, and when.
//!
//! What is typed into such a process belongs to no session cgroup, so the time in which a client could
//! type is all that is known, and it must not be lost: a client whose record cannot be written gets no
//! streams. The streams end with the runtime, so one that starts again ends what it finds open.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use waybill_core::{chain::Chain, id::AuditId};

use super::{SessionFilter, clock, record};
use crate::versioned::Versioned;

/// How many ended sessions are remembered; the audit log knows of the others.
const MOST_ENDED: usize = 1000;

/// What somebody who attaches asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// Whether they write standard input.
    pub stdin: bool,
    /// The audit ID of the API request, if the node passed one on.
    pub audit_id: Option<AuditId>,
}

/// What is remembered of somebody who attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachRecord {
    /// The session.
    pub id: String,
    /// Whose streams.
    pub container: String,
    /// When they were given.
    pub started_at: SystemTime,
    /// When they were given back. If the runtime was killed meanwhile, when it was started again.
    pub ended_at: Option<SystemTime>,
    /// Whether standard input was among them.
    pub stdin: bool,
    /// The audit ID of the API request, if the node passed one on.
    pub audit_id: Option<AuditId>,
}

/// Somebody who is attached; their session ends when this is dropped.
#[derive(Debug)]
pub struct AttachSession {
    id: String,
    sessions: Arc<AttachSessions>,
}

impl Drop for AttachSession {
    fn drop(&mut self) {
        self.sessions.end(&self.id);
    }
}

/// All attach sessions, in the order in which they began.
#[derive(Debug)]
pub(super) struct AttachSessions {
    directory: PathBuf,
    /// Where on the disk they are kept for after a reboot, if anywhere.
    history: Option<PathBuf>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    records: BTreeMap<String, AttachRecord>,
    began: VecDeque<String>,
    ended: VecDeque<String>,
}

/// A record on the tmpfs.
#[derive(Debug, Deserialize, Serialize)]
struct AttachFile {
    id: String,
    container: String,
    started_at: SystemTime,
    ended_at: Option<SystemTime>,
    stdin: bool,
    audit_id: Option<String>,
}

impl Versioned for AttachFile {
    const VERSION: u32 = 1;
}

impl AttachSessions {
    pub(super) fn new(directory: PathBuf, history: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self { directory, history, table: Mutex::default() })
    }

    /// Reads what the runtime before this one wrote. Whoever was attached is not any more.
    pub(super) fn load(&self) -> io::Result<()> {
        let mut found = read_all(&self.directory)?;
        if let Some(history) = &self.history {
            let known: BTreeSet<String> = found.iter().map(|file| file.id.clone()).collect();
            let past = read_all(history)?.into_iter();
            found.extend(past.filter(|file| !known.contains(&file.id)));
        }
        found.sort_by_key(|file| file.started_at);
        let mut open = Vec::new();
        for file in found {
            let record = file.into_record();
            let id = record.id.clone();
            let mut table = self.table();
            table.began.push_back(id.clone());
            if record.ended_at.is_some() {
                table.ended.push_back(id.clone());
            } else {
                open.push(id.clone());
            }
            table.records.insert(id, record);
        }
        open.iter().for_each(|id| self.end(id));
        Ok(())
    }

    /// Records somebody who attaches now, or fails.
    pub(super) fn begin(
        self: &Arc<Self>,
        container: &str,
        request: &AttachRequest,
    ) -> io::Result<AttachSession> {
        let id = Uuid::new_v4().simple().to_string();
        let record = AttachRecord {
            id: id.clone(),
            container: container.to_owned(),
            started_at: clock::now(),
            ended_at: None,
            stdin: request.stdin,
            audit_id: request.audit_id.clone(),
        };
        self.save(&record)?;
        let mut table = self.table();
        table.began.push_back(id.clone());
        table.records.insert(id.clone(), record);
        drop(table);
        Ok(AttachSession { id, sessions: Arc::clone(self) })
    }

    /// Forgets somebody who got no streams after all.
    pub(super) fn cancel(&self, session: &AttachSession) {
        self.forget(&session.id);
    }

    pub(super) fn list(&self, filter: &SessionFilter) -> Vec<AttachRecord> {
        let table = self.table();
        let records = table.began.iter().filter_map(|id| table.records.get(id));
        records
            .filter(|record| filter.takes(&record.container, record.started_at, record.ended_at))
            .cloned()
            .collect()
    }

    fn end(&self, id: &str) {
        let mut table = self.table();
        let Some(record) = table.records.get_mut(id) else { return };
        record.ended_at = Some(clock::now());
        let record = record.clone();
        table.ended.push_back(id.to_owned());
        let surplus = table.ended.len().saturating_sub(MOST_ENDED);
        let oldest: Vec<String> = table.ended.drain(..surplus).collect();
        drop(table);
        // Without it the session counts as open until the runtime is started again, and that is told then.
        if let Err(error) = self.save(&record) {
            tracing::warn!(session = id, %error, "the end of an attach session cannot be recorded");
        }
        oldest.iter().for_each(|id| self.forget(id));
    }

    fn forget(&self, id: &str) {
        let mut table = self.table();
        table.records.remove(id);
        table.began.retain(|other| other != id);
        drop(table);
        for directory in [Some(&self.directory), self.history.as_ref()].into_iter().flatten() {
            let _ = record::remove(&record::session_file(directory, id));
        }
    }

    fn save(&self, record: &AttachRecord) -> io::Result<()> {
        let file = AttachFile {
            id: record.id.clone(),
            container: record.container.clone(),
            started_at: record.started_at,
            ended_at: record.ended_at,
            stdin: record.stdin,
            audit_id: record.audit_id.as_ref().map(ToString::to_string),
        };
        record::save(&record::session_file(&self.directory, &record.id), &file)?;
        if let Some(history) = &self.history
            && let Err(error) = record::save(&record::session_file(history, &record.id), &file)
        {
            tracing::warn!(session = record.id, %error, "an attach session will not be known after a reboot");
        }
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All records in a directory that are understood.
fn read_all(directory: &Path) -> io::Result<Vec<AttachFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(record::HALF_WRITTEN.as_bytes()) {
            let _ = fs::remove_file(&path);
            continue;
        }
        match record::load::<AttachFile>(&path) {
            Ok(file) => found.extend(file),
            Err(error) => {
                let (path, error) = (path.display(), Chain(&error));
                tracing::warn!(%path, %error, "a record of an attach session is left alone");
            }
        }
    }
    Ok(found)
}

impl AttachFile {
    fn into_record(self) -> AttachRecord {
        AttachRecord {
            id: self.id,
            container: self.container,
            started_at: self.started_at,
            ended_at: self.ended_at,
            stdin: self.stdin,
            audit_id: self.audit_id.and_then(|id| AuditId::parse(&id).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(audit_id: &str) -> AttachRequest {
        AttachRequest { stdin: true, audit_id: Some(AuditId::parse(audit_id).unwrap()) }
    }

    fn ids(sessions: &AttachSessions, filter: &SessionFilter) -> Vec<String> {
        let found = sessions.list(filter);
        found.iter().map(|record| record.audit_id.as_ref().unwrap().to_string()).collect()
    }

    fn running() -> SessionFilter {
        SessionFilter { running: true, ..SessionFilter::default() }
    }

    #[test]
    fn a_session_lasts_as_long_as_its_streams() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = AttachSessions::new(directory.path().to_owned(), None);
        let first = sessions.begin("c1", &request("a")).unwrap();
        let second = sessions.begin("c2", &request("b")).unwrap();
        assert_eq!(ids(&sessions, &running()), ["a", "b"]);
        drop(first);
        assert_eq!(ids(&sessions, &running()), ["b"]);
        let filter =
            SessionFilter { container: Some("c1".to_owned()), running: false, changed_since: None };
        assert_eq!(ids(&sessions, &filter), ["a"]);
        drop(second);
        assert!(sessions.list(&running()).is_empty());
    }

    /// The streams were the runtime's own: when it was killed, nobody was attached any more.
    #[test]
    fn a_runtime_that_is_started_again_ends_what_was_open() {
        let directory = tempfile::tempdir().unwrap();
        let killed = AttachSessions::new(directory.path().to_owned(), None);
        std::mem::forget(killed.begin("c1", &request("a")).unwrap());
        drop(killed.begin("c1", &request("b")).unwrap());
        let again = AttachSessions::new(directory.path().to_owned(), None);
        again.load().unwrap();
        assert_eq!(ids(&again, &SessionFilter::default()), ["a", "b"]);
        assert!(again.list(&running()).is_empty());
        let record = again.list(&SessionFilter::default()).remove(0);
        assert!(record.stdin && record.ended_at.is_some());
        // And it stays so.
        let third = AttachSessions::new(directory.path().to_owned(), None);
        third.load().unwrap();
        assert_eq!(third.list(&SessionFilter::default()).remove(0), record);
    }

    /// Whoever cannot be recorded does not attach.
    #[test]
    fn without_a_record_there_is_no_session() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = AttachSessions::new(directory.path().join("gone"), None);
        assert!(sessions.begin("c1", &request("a")).is_err());
        assert!(sessions.list(&SessionFilter::default()).is_empty());
    }

    #[test]
    fn what_is_newer_or_broken_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let newer = directory.path().join("newer.json");
        fs::write(&newer, r#"{"version": 2, "who": "knows"}"#).unwrap();
        fs::write(directory.path().join("broken.json"), "{").unwrap();
        fs::write(directory.path().join("x.json.new"), "{").unwrap();
        let sessions = AttachSessions::new(directory.path().to_owned(), None);
        sessions.load().unwrap();
        assert!(sessions.list(&SessionFilter::default()).is_empty());
        assert!(newer.exists() && !directory.path().join("x.json.new").exists());
    }

    #[test]
    fn ended_sessions_are_remembered_up_to_a_number() {
        let directory = tempfile::tempdir().unwrap();
        let sessions = AttachSessions::new(directory.path().to_owned(), None);
        let open = sessions.begin("c1", &request("open")).unwrap();
        for id in 0..MOST_ENDED + 5 {
            drop(sessions.begin("c1", &request(&format!("s{id}"))).unwrap());
        }
        let all = ids(&sessions, &SessionFilter::default());
        assert_eq!(all.len(), MOST_ENDED + 1);
        assert_eq!((all[0].as_str(), all[1].as_str()), ("open", "s5"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), MOST_ENDED + 1);
        drop(open);
    }
}
