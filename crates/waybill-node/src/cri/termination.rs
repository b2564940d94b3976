//! What a container said last: the file that it may write for this, or the end of its log.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;
use waybill_proto::cri::ContainerStatus;

use super::labels;

/// As much as a status may hold of it.
const MESSAGE_BYTES: u64 = 4096;
/// As much of the log as stands in for it.
const LOG_BYTES: u64 = 2048;
const LOG_LINES: usize = 80;

/// The message of a container that has ended: its own, or else what the runtime says.
pub(super) fn message(status: &ContainerStatus, file: &Path) -> String {
    let annotation = |name: &str| status.annotations.get(name).map_or("", String::as_str);
    if annotation(labels::MESSAGE_PATH).is_empty() {
        return status.message.clone();
    }
    let own = open(file).map(|file| text(file, MESSAGE_BYTES)).unwrap_or_default();
    if !own.is_empty() {
        return own;
    }
    let fall_back = annotation(labels::MESSAGE_POLICY) == "FallbackToLogsOnError";
    if fall_back && status.exit_code != 0 {
        let tail = log_tail(Path::new(&status.log_path));
        if !tail.is_empty() {
            return tail;
        }
    }
    status.message.clone()
}

/// The file is bound into the container, which may do anything to it but replace it.
fn open(path: &Path) -> Option<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    let flags = i32::try_from(flags).ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

fn text(file: File, limit: u64) -> String {
    let mut bytes = Vec::new();
    match file.take(limit).read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    }
}

/// The last lines of a log, without the fields that CRI puts before each.
fn log_tail(path: &Path) -> String {
    // Lines are longer in the file than what they hold.
    let Some(mut file) = open(path) else { return String::new() };
    let Ok(length) = file.seek(SeekFrom::End(0)) else { return String::new() };
    let from = length.saturating_sub(4 * LOG_BYTES);
    if file.seek(SeekFrom::Start(from)).is_err() {
        return String::new();
    }
    let content = text(file, 4 * LOG_BYTES);
    let mut lines: Vec<&str> = content.split_inclusive('\n').collect();
    if from > 0 && !lines.is_empty() {
        lines.remove(0);
    }
    let said: Vec<&str> =
        lines.iter().rev().take(LOG_LINES).filter_map(|line| said(line)).collect();
    let mut tail = String::new();
    for line in said.into_iter().rev() {
        tail.push_str(line);
    }
    let limit = usize::try_from(LOG_BYTES).unwrap_or(usize::MAX);
    let mut at = tail.len().saturating_sub(limit);
    while !tail.is_char_boundary(at) {
        at += 1;
    }
    tail.split_off(at)
}

/// `TIME STREAM TAG TEXT`. A line that the container did not end has the tag `P`, and an end in the file only.
fn said(line: &str) -> Option<&str> {
    let mut fields = line.splitn(4, ' ').skip(2);
    let (tag, text) = (fields.next()?, fields.next()?);
    match tag {
        "P" => Some(text.strip_suffix('\n').unwrap_or(text)),
        _ => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;

    fn status(policy: &str, exit_code: i32, log: &Path) -> ContainerStatus {
        let annotations = BTreeMap::from([
            (labels::MESSAGE_PATH.to_owned(), "/dev/termination-log".to_owned()),
            (labels::MESSAGE_POLICY.to_owned(), policy.to_owned()),
        ]);
        ContainerStatus {
            exit_code,
            annotations,
            message: "runtime".into(),
            log_path: log.display().to_string(),
            ..ContainerStatus::default()
        }
    }

    #[test]
    fn the_file_comes_before_the_log_and_that_before_the_runtime() {
        let directory = tempfile::tempdir().unwrap();
        let (file, log) = (directory.path().join("file"), directory.path().join("log"));
        let check = |policy, code, expected: &str| {
            assert_eq!(message(&status(policy, code, &log), &file), expected);
        };
        check("File", 1, "runtime");
        fs::write(&file, "").unwrap();
        fs::write(&log, "2026-01-01T00:00:00Z stdout F one two\n2026-01-01T00:00:00Z stderr F x\n")
            .unwrap();
        check("File", 1, "runtime");
        check("FallbackToLogsOnError", 1, "one two\nx\n");
        check("FallbackToLogsOnError", 0, "runtime");
        fs::write(&log, "2026-01-01T00:00:00Z stdout P DO\n2026-01-01T00:00:00Z stdout P NE\n")
            .unwrap();
        check("FallbackToLogsOnError", 1, "DONE");
        fs::write(&file, "own").unwrap();
        check("FallbackToLogsOnError", 1, "own");
        fs::write(&file, vec![b'x'; 10_000]).unwrap();
        assert_eq!(message(&status("File", 1, &log), &file).len(), 4096);
    }

    #[test]
    fn only_the_end_of_a_log_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let lines: String =
            (0..500).map(|n| format!("2026-01-01T00:00:00Z stdout F line {n}\n")).collect();
        fs::write(&log, lines).unwrap();
        let tail = log_tail(&log);
        assert!(tail.starts_with("line 420\n") && tail.ends_with("line 499\n"), "{tail}");
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, file) = (directory.path().join("target"), directory.path().join("file"));
        fs::write(&target, "secret").unwrap();
        std::os::unix::fs::symlink(&target, &file).unwrap();
        assert_eq!(message(&status("File", 1, Path::new("")), &file), "runtime");
    }
}
