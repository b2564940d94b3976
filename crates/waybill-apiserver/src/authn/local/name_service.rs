//! Users and groups that only the name services of this machine know: LDAP, SSSD, systemd and the like.
//!
//! `getent` asks them as every program here would. It is a process of its own, because the modules behind it load much code
//! that has no business near our keys, may hang, and cannot be loaded into a static program. A process is killed when its
//! time is over.

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    process::Command,
    sync::{OnceCell, Semaphore},
    time::{Instant, timeout},
};
use tracing::warn;

/// Where distributions put it. The path of the environment is not searched.
const PROGRAMS: [&str; 3] = ["/usr/bin/getent", "/bin/getent", "/run/current-system/sw/bin/getent"];

/// For one answer. Two of them, user and group, fit into the time that a caller has.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many processes there are at once; more callers wait.
const PROCESSES: usize = 8;

/// A user who asks again and again does not start a process each time.
const KEEP: Duration = Duration::from_secs(60);

/// A service that was down may be back.
const KEEP_FAILURE: Duration = Duration::from_secs(5);

/// One entry is one line; groups list their members.
const MAX_ANSWER: u64 = 1 << 20;

/// What `getent` says of a key that no service knows.
const UNKNOWN: i32 = 2;

/// What is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Database {
    Group,
    Passwd,
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Group => "group",
            Self::Passwd => "passwd",
        })
    }
}

/// Asks the name services of this machine.
#[derive(Debug)]
pub(super) struct NameService {
    /// Absent on machines without it, where files know everybody.
    program: Option<PathBuf>,
    processes: Semaphore,
    known: Mutex<HashMap<(Database, u32), Arc<Slot>>>,
}

/// An answer, or the one attempt to get it.
#[derive(Debug)]
struct Slot {
    asked: Instant,
    answer: OnceCell<Answer>,
}

type Answer = Result<Option<Arc<str>>, NameServiceError>;

impl NameService {
    /// That of this machine.
    pub(super) fn new() -> Self {
        Self::with(PROGRAMS.map(Path::new).into_iter().find(|it| it.exists()).map(Path::to_owned))
    }

    pub(super) fn with(program: Option<PathBuf>) -> Self {
        Self { program, processes: Semaphore::new(PROCESSES), known: Mutex::default() }
    }

    /// The line of `id` as it would stand in the file of that name, or nothing if nobody knows it. A name is believed
    /// only if it leads back to `id`: services may give one name to several, and only one of them is meant by it.
    pub(super) async fn line(&self, database: Database, id: u32) -> Answer {
        let Some(program) = &self.program else { return Ok(None) };
        let slot = self.slot((database, id));
        let asked = slot.answer.get_or_init(|| async {
            let answer = timeout(PATIENCE, self.ask_both_ways(program, database, id)).await;
            answer.unwrap_or(Err(NameServiceError::Silent { database, id }))
        });
        asked.await.clone()
    }

    /// Callers at the same time share one, so that one user cannot use up all processes.
    fn slot(&self, key: (Database, u32)) -> Arc<Slot> {
        // Each change is a single operation of the map.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, slot| slot.is_fresh());
        let fresh = || Arc::new(Slot { asked: Instant::now(), answer: OnceCell::new() });
        Arc::clone(known.entry(key).or_insert_with(fresh))
    }

    async fn ask_both_ways(&self, program: &Path, database: Database, id: u32) -> Answer {
        let Some(line) = self.ask(program, database, id, &id.to_string()).await? else {
            return Ok(None);
        };
        let name = line.split(':').next().unwrap_or_default();
        // Such a one would be taken for an option.
        let back = if name.starts_with('-') {
            None
        } else {
            self.ask(program, database, id, name).await?
        };
        if back.is_some_and(|back| number(&back) == Some(id)) {
            return Ok(Some(line));
        }
        warn!(%database, id, name, "a name that means somebody else, or nobody, is not believed");
        Ok(None)
    }

    /// What there is about `key`, which is a number or a name.
    async fn ask(&self, program: &Path, database: Database, id: u32, key: &str) -> Answer {
        let failed = |source: io::Error| NameServiceError::Failed {
            database,
            id,
            cause: source.to_string().into(),
        };
        // It is never closed.
        let _process = self.processes.acquire().await;
        let mut child = Command::new(program)
            .args([&database.to_string(), key])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let mut printed = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_ANSWER).read_to_end(&mut printed).await.map_err(failed)?;
        }
        let status = child.wait().await.map_err(failed)?;
        match status.code() {
            Some(0) => Ok(Some(String::from_utf8_lossy(&printed).into())),
            Some(UNKNOWN) => Ok(None),
            _ => Err(failed(io::Error::other(status.to_string()))),
        }
    }
}

impl Slot {
    fn is_fresh(&self) -> bool {
        let keep = match self.answer.get() {
            Some(Err(_)) => KEEP_FAILURE,
            Some(Ok(_)) | None => KEEP,
        };
        self.asked.elapsed() < keep
    }
}

/// The number in a line `name:password:number:…`, of either database.
fn number(line: &str) -> Option<u32> {
    line.lines().next()?.split(':').nth(2)?.parse().ok()
}

/// A name service did not answer. Nobody is guessed at then: a user with a number in place of a name would have other
/// rights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameServiceError {
    #[error("getent {database} {id} failed: {cause}")]
    Failed { database: Database, id: u32, cause: Arc<str> },
    #[error("getent {database} {id} did not answer within {} s", PATIENCE.as_secs())]
    Silent { database: Database, id: u32 },
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// A program that leaves a line for each run.
    fn getent(dir: &Path, script: &str) -> NameService {
        let path = dir.join("getent");
        let runs = dir.join("runs").display().to_string();
        fs::write(&path, format!("#!/bin/sh\necho \"$@\" >>{runs}\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        NameService::with(Some(path))
    }

    fn runs(dir: &Path) -> String {
        fs::read_to_string(dir.join("runs")).unwrap_or_default()
    }

    #[tokio::test]
    async fn an_entry_is_asked_for_once_however_many_ask() {
        let dir = tempfile::tempdir().unwrap();
        let service = getent(dir.path(), "echo carol:x:4242:100::/:/bin/sh");
        let asks = (0..100).map(|_| service.line(Database::Passwd, 4242));
        for answer in futures_util::future::join_all(asks).await {
            assert_eq!(answer.unwrap().unwrap().trim(), "carol:x:4242:100::/:/bin/sh");
        }
        assert_eq!(runs(dir.path()), "passwd 4242\npasswd carol\n");
    }

    /// Hole: whoever a service called `root`, or as somebody else is called, was that user.
    #[tokio::test]
    async fn a_name_that_does_not_lead_back_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let check = async |script: &str, asked: &str| {
            let service = getent(dir.path(), script);
            assert_eq!(service.line(Database::Passwd, 7).await, Ok(None), "{script}");
            assert!(runs(dir.path()).ends_with(asked), "{}", runs(dir.path()));
        };
        check(
            "case $2 in 7) echo root:x:7:7::/:;; root) echo root:x:0:0::/:;; esac",
            "passwd root\n",
        )
        .await;
        check("case $2 in 7) echo dan:x:7:7::/:;; *) exit 2;; esac", "passwd dan\n").await;
        check("echo 12:x:7:7::/: | sed \"s/x:7/x:$2/\"", "passwd 12\n").await;
        // It is no option of `getent`.
        check("echo --service=x:x:7:7::/:", "passwd 7\n").await;
        let service = getent(dir.path(), "case $2 in 7) echo dan:x:7:7::/:;; *) exit 1;; esac");
        assert!(
            service.line(Database::Passwd, 7).await.is_err(),
            "a service that fails names nobody"
        );
    }

    #[tokio::test]
    async fn an_entry_that_nobody_knows_is_none_and_a_failure_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let service = getent(dir.path(), "exit 2");
        assert_eq!(service.line(Database::Group, 7).await, Ok(None));
        let service = getent(dir.path(), "exit 1");
        let error = service.line(Database::Group, 7).await.unwrap_err();
        assert_eq!(error.to_string(), "getent group 7 failed: exit status: 1");
        assert_eq!(NameService::with(None).line(Database::Group, 7).await, Ok(None));
    }

    #[tokio::test]
    async fn a_service_that_hangs_costs_a_bounded_time_and_leaves_no_process() {
        let dir = tempfile::tempdir().unwrap();
        let service = getent(dir.path(), "exec sleep 1000");
        let error = service.line(Database::Passwd, 7).await.unwrap_err();
        assert_eq!(error, NameServiceError::Silent { database: Database::Passwd, id: 7 });
        // Again, and at once: the failure is known.
        assert!(service.line(Database::Passwd, 7).await.is_err());
        assert_eq!(runs(dir.path()), "passwd 7\n");
        assert_eq!(service.processes.available_permits(), PROCESSES);
    }
}
