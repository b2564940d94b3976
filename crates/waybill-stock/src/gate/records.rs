//! Who began which session: one line of JSON for each, written out before the API server is answered.
//!
//! The lines go to the standard output of the gate, from where the cluster's log collection takes them, and the newest are kept
//! in memory to be asked for, those of all replicas with them (`siblings.rs`). A session whose line cannot be written does not begin (D14). What was refused is kept in a
//! smaller room of its own, so that nobody without rights pushes out what others did. Values never get here, nor do commands: the record of
//! the node has those.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
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
use waybill_api::stock::{GateRecord, GateVerdict, RecordedUser};

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

/// From here on replicas of which there is no record are forgotten.
const MOST_REPLICAS: usize = 256;

/// More groups of a user are left out.
const MOST_GROUPS: usize = 64;

/// What names the credential of a user, in the extra fields of authentication.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

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
pub(super) fn recorded(user: &UserInfo) -> RecordedUser {
    let credential = user.extra.get(CREDENTIAL_ID).and_then(|values| values.first());
    RecordedUser {
        username: cut(&user.username),
        uid: cut(&user.uid),
        groups: user.groups.iter().take(MOST_GROUPS).map(|group| cut(group)).collect(),
        credential_id: credential.map(|id| cut(id)),
    }
}

fn cut(text: &str) -> String {
    text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default().to_owned()
}

/// How many records of each replica are known, by the replica's ID.
pub(super) type Known = BTreeMap<String, u64>;

/// A record of a replica, as replicas pass it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptRecord {
    /// The replica that made it.
    replica: Box<str>,
    /// Its place among those of that replica, which begin with 1.
    number: u64,
    /// The JSON of a [`GateRecord`].
    text: Box<str>,
}

/// The records of this replica, and of others as far as they told.
pub(super) struct Records {
    output: mpsc::Sender<Line>,
    replica: Box<str>,
    kept: Mutex<Kept>,
}

struct Line {
    text: Arc<str>,
    written: oneshot::Sender<bool>,
}

struct Kept {
    known: Known,
    sessions: Ring,
    refused: Ring,
}

impl Records {
    /// Writes to `output` from a thread of its own, which ends with the records. `replica` names this one for ever.
    pub(super) fn new(output: RecordOutput, replica: &str) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        thread::spawn(move || write_lines(output, receiver));
        let (sessions, refused) = (Ring::new(KEPT_BYTES), Ring::new(REFUSED_BYTES));
        let kept = Mutex::new(Kept { known: Known::new(), sessions, refused });
        Self { output: sender, replica: replica.into(), kept }
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
        let number = kept.known.get(&*self.replica).map_or(1, |known| known.saturating_add(1));
        let (replica, text) = (self.replica.clone(), text.as_ref().into());
        kept.push(KeptRecord { replica, number, text }, record.verdict);
        Ok(())
    }

    /// The newest, oldest first.
    pub(super) fn newest(&self) -> Vec<GateRecord> {
        let texts: Vec<_> = self.lock().all().map(|kept| kept.text.clone()).collect();
        let records = texts.iter().filter_map(|text| serde_json::from_str(text).ok());
        let mut records: Vec<GateRecord> = records.collect();
        records.sort_by_key(|record| record.time);
        records
    }

    /// How far those of each replica are known.
    pub(super) fn known(&self) -> Known {
        self.lock().known.clone()
    }

    /// What is not in `known`, up to so many bytes, and whether there is more. Those of one replica come in their order.
    pub(super) fn newer(&self, known: &Known, bytes: usize) -> (Vec<KeptRecord>, bool) {
        let kept = self.lock();
        let is_new =
            |it: &&KeptRecord| known.get(&*it.replica).is_none_or(|known| it.number > *known);
        let mut found: Vec<_> = kept.all().filter(is_new).collect();
        found.sort_by_key(|it| (&it.replica, it.number));
        let mut room = bytes;
        let fits = found.iter().take_while(|it| {
            let left = room.checked_sub(it.text.len());
            room = left.unwrap_or_default();
            left.is_some()
        });
        let some: Vec<KeptRecord> = fits.map(|it| (*it).clone()).collect();
        let more = some.len() < found.len();
        (some, more)
    }

    /// Keeps what another replica told, each once.
    pub(super) fn take(&self, told: Vec<KeptRecord>) {
        let mut kept = self.lock();
        for record in told {
            let known = kept.known.get(&*record.replica).copied().unwrap_or_default();
            // Of ourselves nobody knows better.
            if record.number <= known || record.replica == self.replica {
                continue;
            }
            // What is not understood is passed over, once.
            match serde_json::from_str::<GateRecord>(&record.text) {
                Ok(understood) => kept.push(record, understood.verdict),
                Err(_) => kept.note(&record),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn push(&mut self, record: KeptRecord, verdict: GateVerdict) {
        self.note(&record);
        match verdict {
            GateVerdict::Signed | GateVerdict::Recorded => self.sessions.push(record),
            GateVerdict::Refused => self.refused.push(record),
        }
    }

    /// Replicas come and go; of those that were long ago nothing is kept.
    fn note(&mut self, record: &KeptRecord) {
        self.known.insert(record.replica.to_string(), record.number);
        if self.known.len() > MOST_REPLICAS {
            let kept: HashSet<Box<str>> = self.all().map(|it| it.replica.clone()).collect();
            self.known
                .retain(|replica, _| kept.contains(&**replica) || **replica == *record.replica);
        }
    }

    fn all(&self) -> impl Iterator<Item = &KeptRecord> {
        self.sessions.lines.iter().chain(&self.refused.lines)
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
    lines: VecDeque<KeptRecord>,
    bytes: usize,
    most: usize,
}

impl Ring {
    fn new(most: usize) -> Self {
        Self { lines: VecDeque::new(), bytes: 0, most }
    }

    fn push(&mut self, line: KeptRecord) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.bytes > self.most {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use waybill_api::stock::StockKind;

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
            record: GateRecord::RECORD.to_owned(),
            time: 1,
            session: None,
            kind: StockKind::Exec,
            verdict,
            reason: None,
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "c".to_owned(),
            node: "n".to_owned(),
            tty: false,
            user: recorded(&user),
            variables: vec!["A".to_owned()],
        }
    }

    #[tokio::test]
    async fn a_record_is_written_before_its_session_begins() {
        let output = Shared::default();
        let records = Records::new(Box::new(output.clone()), "r");
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
        let records = Records::new(Box::new(Full), "r");
        assert_eq!(records.write(&record(GateVerdict::Signed, "ann")).await, Err(NotRecorded));
        assert!(records.newest().is_empty());
    }

    #[tokio::test]
    async fn refusals_push_out_no_session_and_memory_is_bounded() {
        let records = Records::new(Box::new(io::sink()), "r");
        records.write(&record(GateVerdict::Signed, "ann")).await.unwrap();
        for _ in 0..2_000 {
            records.write(&record(GateVerdict::Refused, &"x".repeat(10_000))).await.unwrap();
        }
        let newest = records.newest();
        assert!(newest.iter().any(|record| record.user.username == "ann"));
        let refused = newest.iter().filter(|record| record.verdict == GateVerdict::Refused);
        let lengths = refused.map(|record| serde_json::to_string(record).unwrap().len());
        let lengths: Vec<_> = lengths.collect();
        assert!(lengths.iter().sum::<usize>() <= REFUSED_BYTES);
        assert!(lengths[0] < 2_000, "names are cut");
    }

    fn users(records: &Records) -> Vec<String> {
        let mut users: Vec<_> = records.newest().into_iter().map(|it| it.user.username).collect();
        users.sort();
        users
    }

    /// Tells `to` everything that `from` has and it has not, a few bytes at a time.
    fn tell(from: &Records, to: &Records) {
        loop {
            let (told, more) = from.newer(&to.known(), 700);
            to.take(told);
            if !more {
                return;
            }
        }
    }

    /// A replica that ends takes nothing along which another has heard of.
    #[tokio::test]
    async fn replicas_have_the_records_of_all_each_once() {
        let replica = |name: &str| Records::new(Box::new(io::sink()), name);
        let (one, other, third) = (replica("1"), replica("2"), replica("3"));
        for (records, user) in [(&one, "ann"), (&one, "ben"), (&other, "cleo"), (&one, "dan")] {
            let verdict = if user == "ben" { GateVerdict::Refused } else { GateVerdict::Signed };
            records.write(&record(verdict, user)).await.unwrap();
        }
        for _ in 0..2 {
            tell(&one, &other);
            tell(&other, &one);
        }
        assert_eq!(users(&one), ["ann", "ben", "cleo", "dan"]);
        assert_eq!(users(&other), users(&one));
        drop(one);
        tell(&other, &third);
        assert_eq!(users(&third), users(&other));
        other.write(&record(GateVerdict::Signed, "eve")).await.unwrap();
        tell(&other, &third);
        assert_eq!(users(&third).last().unwrap(), "eve");
        assert!(other.newer(&third.known(), 10_000).0.is_empty());
    }

    #[test]
    fn nobody_else_tells_what_a_replica_did_and_what_is_not_understood_is_passed_over() {
        let records = Records::new(Box::new(io::sink()), "r");
        let told = |replica: &str, number: u64, text: &str| KeptRecord {
            replica: replica.into(),
            number,
            text: text.into(),
        };
        let good = serde_json::to_string(&record(GateVerdict::Signed, "ann")).unwrap();
        records.take(vec![told("r", 9, &good), told("s", 1, "{}"), told("s", 2, &good)]);
        assert_eq!(users(&records), ["ann"]);
        assert_eq!(records.known(), Known::from([("s".to_owned(), 2)]));
    }
}
