//! What a crash may and may not take away.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;

use super::*;
use crate::store::Expected;

/// Tells the child where to write. Set, it makes [`child`] a program instead of a test.
const DIRECTORY: &str = "WAYBILL_CRASH_DIRECTORY";

/// Small, so that kills meet snapshots too.
const SETTINGS: Settings =
    Settings { snapshot_bytes: 100_000, history: Limits { changes: 1000, bytes: 1 << 20 } };

/// Kills a writing process in the middle, again and again, and looks at what it left.
#[test]
fn an_acknowledged_write_survives_kill_9() {
    let rounds = variable("WAYBILL_CRASH_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    let (mut directory, mut newest, mut objects) = (tempfile::tempdir().unwrap(), 0, 0);
    for round in 0..rounds {
        if round % 20 == 19 {
            // A long run is about kills, not about a large store.
            (directory, newest, objects) = (tempfile::tempdir().unwrap(), 0, 0);
        }
        let acknowledged = write_and_kill(directory.path(), round);
        let store = Embedded::open(directory.path(), SETTINGS).unwrap();
        let state = store.shared.read();
        for (key, revision) in &acknowledged {
            let object =
                state.object(key).unwrap_or_else(|| panic!("round {round}: {key} is gone"));
            assert_eq!(object.revision.get(), *revision, "{key}");
            assert_eq!(object.value, value(key), "{key}");
            assert!(*revision > newest, "round {round}: {revision} was used before");
            assert!(*revision <= state.revision().get());
        }
        // What was not acknowledged may be there, whole; what was seen once must stay.
        newest = state.revision().get();
        let held = state.range_after(None).count();
        assert!(!acknowledged.is_empty() && held >= objects + acknowledged.len());
        objects = held;
    }
}

/// Starts a writer and kills it after a moment; returns what it was told is on disk.
fn write_and_kill(directory: &Path, round: u32) -> Vec<(String, u64)> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "store::embedded::crash::child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("acknowledged ") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the writer ended by itself");
    }
    // Any moment is as good as another; these are spread over a third of a second.
    let moment = Instant::now() + Duration::from_millis(u64::from(round * 37 % 331));
    let mut lines = vec![line.clone()];
    while Instant::now() < moment {
        line.clear();
        output.read_line(&mut line).unwrap();
        lines.push(line.clone());
    }
    child.kill().unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    child.wait().unwrap();
    // The last line may be cut off.
    let whole = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
    lines.extend(whole.lines().map(String::from));
    lines.iter().filter_map(|line| acknowledgement(line)).collect()
}

/// The test harness prints before the first line, hence the marker.
fn acknowledgement(line: &str) -> Option<(String, u64)> {
    let (key, revision) = line.split_once("acknowledged ")?.1.trim().split_once(' ')?;
    Some((key.into(), revision.parse().unwrap()))
}

/// Writes from 16 places at once until it is killed.
#[tokio::test]
#[ignore = "a program for `an_acknowledged_write_survives_kill_9`"]
async fn child() {
    let Some(directory) = variable(DIRECTORY) else { return };
    let store = Embedded::open(Path::new(&directory), SETTINGS).unwrap();
    let start = store.shared.read().revision();
    let client = async |client: u32| {
        for at in 0.. {
            let key = format!("/{start}/{client}/{at}");
            let write =
                Write { value: Some(value(&key)), key: key.clone(), expected: Expected::Absent };
            let revision = store.write(write).await.unwrap();
            let mut output = std::io::stdout().lock();
            writeln!(output, "acknowledged {key} {revision}").unwrap();
            output.flush().unwrap();
        }
    };
    join_all((0..16).map(client)).await;
}

/// Up to a few kilobytes, different for each key.
fn value(key: &str) -> Bytes {
    let sum: usize = key.bytes().map(usize::from).sum();
    Bytes::from(key.repeat(1 + sum % 97))
}

#[expect(clippy::disallowed_methods, reason = "parent and child, and a long run, are told by it")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// A directory whose log has three commits, and the offset of the third.
async fn three_commits(directory: &Path) -> (PathBuf, usize) {
    let store = Embedded::open(directory, Settings::default()).unwrap();
    for key in ["/1", "/2"] {
        write(&store, key).await;
    }
    let log = directory.join("log.00000000000000000000");
    let before = used(&fs::read(&log).unwrap());
    write(&store, "/3").await;
    drop(store);
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..used(&bytes)]).unwrap();
    (log, before)
}

async fn write(store: &Embedded, key: &str) {
    let value = Some(Bytes::from("some value ".repeat(5)));
    store.write(Write { key: key.into(), expected: Expected::Absent, value }).await.unwrap();
}

/// The room after the last commit is zeros; values here end in a space.
fn used(log: &[u8]) -> usize {
    log.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// Opens the store and lists its keys, then writes one more to see that it goes on.
async fn reopen(directory: &Path) -> Result<String, StoreError> {
    let store = Embedded::open(directory, Settings::default())?;
    let keys: Vec<_> = store.list("").await?.objects.into_iter().map(|object| object.key).collect();
    write(&store, "/next").await;
    drop(store);
    let again = Embedded::open(directory, Settings::default())?;
    assert_eq!(again.list("").await?.objects.len(), keys.len() + 1);
    Ok(keys.join(" "))
}

#[tokio::test]
async fn a_log_cut_anywhere_in_its_last_commit_loses_only_that() {
    let directory = tempfile::tempdir().unwrap();
    let (log, third) = three_commits(directory.path()).await;
    let whole = fs::read(&log).unwrap();
    for length in third..=whole.len() {
        for room in [0, 1, 600] {
            let mut bytes = whole[..length].to_vec();
            bytes.resize(length + room, 0);
            fs::write(&log, &bytes).unwrap();
            let expected = if length == whole.len() { "/1 /2 /3" } else { "/1 /2" };
            match reopen(directory.path()).await {
                Ok(keys) => assert_eq!(keys, expected, "{length} and {room}"),
                // With zeros where the rest was, but not a whole sector of them, it is no crash.
                Err(StoreError::Damaged { offset, .. }) => {
                    assert!(room > 0 && offset == third as u64, "{length} and {room}");
                }
                Err(error) => panic!("{length} and {room}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn a_changed_byte_is_an_error_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let (log, third) = three_commits(directory.path()).await;
    let whole = fs::read(&log).unwrap();
    for at in 0..whole.len() {
        for change in [0x01, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            fs::write(&log, &bytes).unwrap();
            let Err(error) = reopen(directory.path()).await else {
                panic!("the change at {at} of {} was not noticed", whole.len());
            };
            let StoreError::Damaged { path, offset, .. } = error else { panic!("{error}") };
            assert_eq!(path, log);
            assert!(offset <= at as u64 && (at < third || offset == third as u64), "{at}");
            assert_eq!(fs::read(&log).unwrap(), bytes, "a damaged file is left as it is");
        }
    }
}

#[tokio::test]
async fn a_damaged_or_missing_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), SETTINGS).unwrap();
    let mut names = (0..).map(|at| format!("/{at}"));
    while !files(directory.path()).iter().any(|path| is_finished_snapshot(path)) {
        write(&store, &names.next().unwrap()).await;
    }
    drop(store);
    // Opening removes what the snapshot has replaced, and does not take another one.
    let store = Embedded::open(directory.path(), Settings::default()).unwrap();
    write(&store, &names.next().unwrap()).await;
    drop(store);

    let fails_at = async |path: &Path| match reopen(directory.path()).await {
        Err(StoreError::Damaged { path: named, .. }) => named == path,
        Err(error) => panic!("{}: {error}", path.display()),
        Ok(_) => panic!("{}: not noticed", path.display()),
    };
    let files = files(directory.path());
    for path in &files {
        let content = fs::read(path).unwrap();
        let mut changed = content.clone();
        changed[30] ^= 1;
        fs::write(path, &changed).unwrap();
        assert!(fails_at(path).await);
        fs::write(path, &content).unwrap();
    }
    // The oldest log and the snapshot; a newest log that never was cannot be missed.
    for path in [files.first(), files.last()].map(Option::unwrap) {
        let content = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        fails_at(path).await;
        fs::write(path, &content).unwrap();
    }
    assert!(reopen(directory.path()).await.is_ok());
}

/// Logs, then snapshots, each in the order of their revisions.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| !path.ends_with("lock")).collect();
    files.sort_unstable();
    files
}

fn is_finished_snapshot(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.starts_with("snapshot.") && !name.ends_with(".new")
}
