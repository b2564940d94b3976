//! Reads a kubeconfig: a file, or what a program writes to a pipe, as in `--kubeconfig <(…)`.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use kube::config::{Kubeconfig, KubeconfigError};
use tokio::{sync::oneshot, time::timeout};

/// Longer than a program takes that was started to write to a pipe with a name. One without a name is waited for as long
/// as its program runs.
const PATIENCE: Duration = Duration::from_secs(30);

/// No kubeconfig is larger.
const LIMIT: u64 = 16 << 20;

/// Reads it. Paths in a file are relative to the file; in a pipe there is nothing that they could be relative to.
pub(super) async fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    read_within(path, PATIENCE).await
}

async fn read_within(path: &Path, patience: Duration) -> Result<Kubeconfig, KubeconfigError> {
    let kind = fs::metadata(path).map(|found| found.file_type());
    let is_stream = kind.as_ref().is_ok_and(|kind| kind.is_fifo() || kind.is_char_device());
    if !is_stream {
        return Kubeconfig::read_from(path);
    }
    let failed = |error| KubeconfigError::ReadConfig(error, path.to_owned());
    // What has no name in any directory was opened by whoever started us.
    let is_named = kind.is_ok_and(|kind| kind.is_fifo()) && path.canonicalize().is_ok();
    let text = read_stream(path.to_owned());
    let text = match is_named {
        true => timeout(patience, text).await.unwrap_or_else(|_| Err(nobody_writes())),
        false => text.await,
    };
    Kubeconfig::from_yaml(&text.map_err(failed)?)
}

/// On a thread of its own, which is given up with the process if nobody ever writes: tokio would wait for one of its own.
async fn read_stream(path: PathBuf) -> io::Result<String> {
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new().name("kubeconfig".to_owned()).spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(read_all(&path));
    })?;
    receiver.await.map_err(io::Error::other)?
}

fn read_all(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LIMIT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LIMIT {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it does not end"));
    }
    Ok(text)
}

fn nobody_writes() -> io::Error {
    let why = "it is a pipe, and nobody writes to it; start the program that does, or name a file";
    io::Error::new(io::ErrorKind::TimedOut, why)
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsRawFd, process::Command};

    use super::*;

    const TEXT: &str = "{apiVersion: v1, kind: Config, current-context: here}";

    fn pipe_with_a_name(dir: &Path) -> PathBuf {
        let path = dir.join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    async fn context_of(path: &Path) -> Option<String> {
        read_within(path, Duration::from_secs(60)).await.unwrap().current_context
    }

    /// A pipe that nobody writes to held every command up for ever.
    #[tokio::test]
    async fn a_pipe_that_nobody_writes_to_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = pipe_with_a_name(dir.path());
        let error = read_within(&path, Duration::from_millis(50)).await.unwrap_err();
        assert!(format!("{error:?}").contains("nobody writes"), "{error:?}");
        // So that the thread ends.
        drop(File::options().write(true).open(&path).unwrap());
    }

    #[tokio::test]
    async fn pipes_are_read_with_a_name_and_without() {
        let dir = tempfile::tempdir().unwrap();
        let named = pipe_with_a_name(dir.path());
        let writer = thread::spawn({
            let named = named.clone();
            move || fs::write(named, TEXT).unwrap()
        });
        assert_eq!(context_of(&named).await.as_deref(), Some("here"));
        writer.join().unwrap();

        // As a shell does it for `<(…)`.
        let (reader, mut writer) = io::pipe().unwrap();
        let writer = thread::spawn(move || io::Write::write_all(&mut writer, TEXT.as_bytes()));
        let unnamed = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        assert_eq!(context_of(&unnamed).await.as_deref(), Some("here"));
        writer.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_does_not_end_is_refused() {
        let error = read_within(Path::new("/dev/zero"), PATIENCE).await.unwrap_err();
        assert!(format!("{error:?}").contains("does not end"), "{error:?}");
        assert_eq!(context_of(Path::new("/dev/null")).await, None);
        assert!(read_within(Path::new("/nowhere/at/all"), PATIENCE).await.is_err());
    }
}
