//! Who began which session: one line of JSON for each, written out before the API server is answered.
//!
//! The lines go to the standard output of the gate, from where the cluster's log collection takes them, and the newest are kept
//! in memory to be asked for. A session whose line cannot be written does not begin (D14). What was refused is kept in a
//! smaller room of its own, so that nobody without rights pushes out what others did. Values never get here, nor do commands: the record of
//! the node has those.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use waybill_api::stock::{SessionId, StockKind};

/// Where lines are written to.
pub type RecordOutput = Box<dyn Write + Send>;

/// How much of sessions is kept in memory.
const KEPT_BYTES: usize = 2 << 20;

/// How much of refusals is.
const REFUSED_BYTES: usize = 256 << 10;

/// How many lines may wait for their output.
const WAITING: usize = 256;

/// How long one may take; shorter than a webhook may.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longer texts of a request are cut; API servers let users have names of any length.
const TEXT_BYTES: usize = 512;

/// More groups of a user are left out.
const MOST_GROUPS: usize = 64;

/// What names the credential of a user, in the extra fields of authentication.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// One session, or one that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GateRecord {
    pub(super) version: u32,
    /// `waybill-gate-session`, to tell these lines from others.
    pub(super) record: &'static str,
    /// Seconds since 1970.
    pub(super) time: i64,
    /// None was made for what was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<SessionId>,
    pub(super) kind: StockKind,
    pub(super) verdict: GateVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) tty: bool,
    pub(super) user: RecordedUser,
    /// The names of the client's variables.
    pub(super) variables: Vec<String>,
}

impl GateRecord {
    pub(super) const VERSION: u32 = 1;
    pub(super) const RECORD: &'static str = "waybill-gate-session";
}

/// What became of a request for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum GateVerdict {
    /// The node can tell that we saw it.
    Signed,
    /// It begins, and its node cannot tell.
    Recorded,
    Refused,
}

/// Who asked, as the API server says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct UserInfo {
    pub(super) username: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// The same on record, bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedUser {
    pub(super) username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) credential_id: Option<String>,
}

impl RecordedUser {
    pub(super) fn of(user: &UserInfo) -> Self {
        let credential = user.extra.get(CREDENTIAL_ID).and_then(|values| values.first());
        Self {
            username: cut(&user.username),
            uid: cut(&user.uid),
            groups: user.groups.iter().take(MOST_GROUPS).map(|group| cut(group)).collect(),
            credential_id: credential.map(|id| cut(id)),
        }
    }
}

fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default().to_owned()
}

/// The records of this replica.
pub(super) struct Records {
    output: mpsc::Sender<Line>,
    kept: Mutex<Kept>,
}

struct Line {
    text: Arc<str>,
    written: oneshot::Sender<bool>,
}

struct Kept {
    sessions: Ring,
    refused: Ring,
}

impl Records {
    /// Writes to `output` from a thread of its own, which ends with the records.
    pub(super) fn new(output: RecordOutput) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        thread::spawn(move || write_lines(output, receiver));
        let kept = Kept { sessions: Ring::new(KEPT_BYTES), refused: Ring::new(REFUSED_BYTES) };
        Self { output: sender, kept: Mutex::new(kept) }
    }

    /// Returns when the record is written, and so its session may begin.
    pub(super) async fn write(&self, record: &GateRecord) -> Result<(), NotRecorded> {
        let text: Arc<str> = serde_json::to_string(record).map_err(|_| NotRecorded)?.into();
        let (written, ack) = oneshot::channel();
        let line = Line { text: Arc::clone(&text), written };
        let written = async {
            self.output.send(line).await.ok()?;
            ack.await.ok().filter(|written| *written)
        };
        timeout(PATIENCE, written).await.ok().flatten().ok_or(NotRecorded)?;
        let mut kept = self.lock();
        match record.verdict {
            GateVerdict::Signed | GateVerdict::Recorded => kept.sessions.push(text),
            GateVerdict::Refused => kept.refused.push(text),
        }
        Ok(())
    }

    /// The newest, oldest first: sessions, then refusals. Each is the JSON of a record.
    pub(super) fn newest(&self) -> Vec<Arc<str>> {
        let kept = self.lock();
        kept.sessions.lines.iter().chain(&kept.refused.lines).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record could not be written, so what it is about must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of the session could not be written")]
pub(super) struct NotRecorded;

fn write_lines(mut output: RecordOutput, mut lines: mpsc::Receiver<Line>) {
    while let Some(line) = lines.blocking_recv() {
        let whole = format!("{}\n", line.text);
        let written = output.write_all(whole.as_bytes()).and_then(|()| output.flush());
        // Whoever gave up waiting has refused the session.
        let _ = line.written.send(written.is_ok());
    }
}

/// The newest lines, within a number of bytes.
struct Ring {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
    most: usize,
}

impl Ring {
    fn new(most: usize) -> Self {
        Self { lines: VecDeque::new(), bytes: 0, most }
    }

    fn push(&mut self, line: Arc<str>) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > self.most {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// What a test reads afterwards.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(verdict: GateVerdict, user: &str) -> GateRecord {
        let user = UserInfo {
            username: user.to_owned(),
            extra: [(CREDENTIAL_ID.to_owned(), vec!["JTI=x".to_owned()])].into(),
            ..UserInfo::default()
        };
        GateRecord {
            version: GateRecord::VERSION,
            record: GateRecord::RECORD,
            time: 1,
            session: None,
            kind: StockKind::Exec,
            verdict,
            reason: None,
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "c".to_owned(),
            tty: false,
            user: RecordedUser::of(&user),
            variables: vec!["A".to_owned()],
        }
    }

    #[tokio::test]
    async fn a_record_is_written_before_its_session_begins() {
        let output = Shared::default();
        let records = Records::new(Box::new(output.clone()));
        records.write(&record(GateVerdict::Signed, "ann")).await.unwrap();
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(line["user"]["username"], "ann");
        assert_eq!(line["user"]["credentialId"], "JTI=x");
        assert_eq!(
            (&line["verdict"], &line["record"]),
            (&"signed".into(), &"waybill-gate-session".into())
        );
        assert_eq!(records.newest().len(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_an_error_and_not_kept() {
        let records = Records::new(Box::new(Full));
        assert_eq!(records.write(&record(GateVerdict::Signed, "ann")).await, Err(NotRecorded));
        assert!(records.newest().is_empty());
    }

    #[tokio::test]
    async fn refusals_push_out_no_session_and_memory_is_bounded() {
        let records = Records::new(Box::new(io::sink()));
        records.write(&record(GateVerdict::Signed, "ann")).await.unwrap();
        for _ in 0..2_000 {
            records.write(&record(GateVerdict::Refused, &"x".repeat(10_000))).await.unwrap();
        }
        let newest = records.newest();
        assert!(newest[0].contains("\"ann\""));
        assert!(newest[1..].iter().map(|line| line.len()).sum::<usize>() <= REFUSED_BYTES);
        assert!(newest[1].len() < 2_000, "names are cut");
    }
}
