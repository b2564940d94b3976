//! Files that somebody else writes while we read.

mod hostile;

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::fs::{FileType, Mode, mknodat};

use super::*;

struct Volume {
    inside: tempfile::TempDir,
    outside: tempfile::TempDir,
}

impl Volume {
    fn new() -> Self {
        let volume =
            Self { inside: tempfile::tempdir().unwrap(), outside: tempfile::tempdir().unwrap() };
        fs::write(volume.outside.path().join("app.env"), "K='outside'\n").unwrap();
        fs::write(volume.inside.path().join("real.env"), "K='inside'\n").unwrap();
        volume
    }

    fn path(&self, name: &str) -> PathBuf {
        self.inside.path().join(name)
    }

    /// The value of `K` in that file; nothing if it or the file is missing.
    fn read(&self, path: &str) -> Result<Option<String>, FileError> {
        let place = FilePlace { volume: "v".to_owned(), path: path.to_owned() };
        let keys = ["K".to_owned()];
        match read_blocking(self.inside.path(), &place, &keys, NameRules::Relaxed)? {
            FileAnswer::Missing => Ok(None),
            FileAnswer::Found(found) => {
                let value = found.get("K").map(|value| value.expose().to_vec());
                Ok(value.map(|value| String::from_utf8(value).unwrap()))
            }
        }
    }
}

/// FILE-21
#[test]
fn links_are_resolved_inside_the_volume_file_21() {
    let volume = Volume::new();
    let outside = volume.outside.path();
    symlink("real.env", volume.path("relative")).unwrap();
    symlink("/real.env", volume.path("absolute")).unwrap();
    symlink("relative", volume.path("chained")).unwrap();
    symlink("../../../../../../real.env", volume.path("up")).unwrap();
    symlink(outside.join("app.env"), volume.path("out")).unwrap();
    symlink(outside, volume.path("directory")).unwrap();
    symlink("/proc/self/root/etc/hostname", volume.path("magic")).unwrap();
    symlink("circle", volume.path("circle")).unwrap();
    for good in ["relative", "absolute", "chained", "up", "real.env"] {
        assert_eq!(volume.read(good).unwrap().as_deref(), Some("inside"), "{good}");
    }
    for missing in ["out", "directory/app.env", "magic"] {
        assert_eq!(volume.read(missing).unwrap(), None, "{missing}");
    }
    assert!(matches!(volume.read("circle"), Err(FileError::Unreadable { .. })));
}

/// FILE-21: without blocking, or the test would hang.
#[test]
fn only_regular_files_are_opened_file_21() {
    let volume = Volume::new();
    let make = |name: &str, kind, device| {
        mknodat(CWD, volume.path(name), kind, Mode::from_raw_mode(0o600), device)
    };
    make("fifo", FileType::Fifo, 0).unwrap();
    make("socket", FileType::Socket, 0).unwrap();
    fs::create_dir(volume.path("directory")).unwrap();
    symlink("fifo", volume.path("link")).unwrap();
    let mut refused = vec!["fifo", "socket", "directory", "link"];
    // Only root can make one, and not in every container.
    if make("zero", FileType::CharacterDevice, rustix::fs::makedev(1, 5)).is_ok() {
        refused.push("zero");
    }
    for name in refused {
        let error = volume.read(name).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("env file {name:?} in volume \"v\" is not a regular file")
        );
    }
}

/// FILE-36
#[test]
fn files_are_read_up_to_their_limit_file_36() {
    let volume = Volume::new();
    let filled = |length: usize| {
        let start = "K='inside'\n#";
        format!("{start}{}", "x".repeat(length - start.len()))
    };
    fs::write(volume.path("fits"), filled(65_536)).unwrap();
    fs::write(volume.path("long"), filled(65_537)).unwrap();
    assert_eq!(volume.read("fits").unwrap().as_deref(), Some("inside"));
    let error = volume.read("long").unwrap_err().to_string();
    assert!(error.contains("more than 65536 bytes"), "{error}");
}

/// FILE-21: a link that is swapped in while the path is resolved leads nowhere else.
#[test]
fn links_swapped_in_meanwhile_do_not_lead_out_file_21() {
    let volume = Volume::new();
    fs::create_dir(volume.path("dir")).unwrap();
    fs::write(volume.path("dir/app.env"), "K='inside'\n").unwrap();
    symlink(volume.outside.path(), volume.path("evil")).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            while !stop.load(Ordering::Relaxed) {
                let (dir, evil) = (volume.path("dir"), volume.path("evil"));
                rustix::fs::renameat_with(CWD, dir, CWD, evil, exchange).unwrap();
            }
        });
        for _ in 0..2000 {
            // The swapped directory may be missing, or the walk never have a moment of rest.
            if let Ok(Some(value)) = volume.read("dir/app.env") {
                assert_eq!(value, "inside");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
