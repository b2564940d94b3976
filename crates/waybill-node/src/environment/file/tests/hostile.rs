//! A pod that does its worst: what it writes is refused or read, in time, and never quoted.

use std::{fmt::Write as _, os::unix::fs::FileExt};

use super::*;

/// In every file here; no error may show it.
const CANARY: &str = "hunter2";

/// The error for what is in `path`, with nothing in it that it must not hold (FILE-20).
#[track_caller]
fn refused(volume: &Volume, path: &str) -> String {
    let error = volume.read(path).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(CANARY), "{shown}");
    for host in [volume.inside.path(), volume.outside.path()] {
        assert!(!shown.contains(host.to_str().unwrap()), "{shown}");
    }
    error.to_string()
}

/// Runs `disturb` over and over, beside `read`.
fn beside(disturb: impl Fn() + Sync, read: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                disturb();
            }
        });
        read();
        stop.store(true, Ordering::Relaxed);
    });
}

/// FILE-17, FILE-18, FILE-20, FILE-31, FILE-32, FILE-36, FILE-37
#[test]
fn bad_content_is_refused_by_its_place_alone_file_20() {
    let volume = Volume::new();
    let good = "K='inside'\n";
    let name = "N".repeat(129);
    let value = CANARY.repeat(4682);
    for (content, place) in [
        (format!("{good}V='{CANARY}\0'\n"), "line 2, column 11"),
        (format!("\u{feff}K='{CANARY}'\n"), "line 1"),
        (format!("{good}V='{CANARY}'\r\n"), "line 2"),
        (format!("{good}\n\nV='{CANARY}\n\n"), "line 4"),
        (format!("{good}V={CANARY}\n"), "line 2"),
        (format!("{good}V=\"{CANARY}\"\n"), "line 2"),
        (format!("{good}{CANARY}\n"), "line 2"),
        (format!("{good}{CANARY};='x'\n"), "line 2"),
        (format!("{good}{CANARY}[0]='x'\n"), "line 2"),
        (format!("{good}{name}='x'\n"), "line 2"),
        (format!("{good}V='{value}'\n"), "line 2"),
        (format!("{good}{}", "#x\n".repeat(22_000)), "65536"),
        (String::from_utf8_lossy(&[0; 70_000]).into_owned(), "65536"),
    ] {
        fs::write(volume.path("bad.env"), &content).unwrap();
        let error = refused(&volume, "bad.env");
        assert!(error.contains(place), "{error}");
        assert!(
            error.starts_with("couldn't parse env file \"bad.env\" in volume \"v\""),
            "{error}"
        );
    }
    // Inside quotes a carriage return is content.
    fs::write(volume.path("fine.env"), "K='a\r\nb'\n").unwrap();
    assert_eq!(volume.read("fine.env").unwrap().as_deref(), Some("a\r\nb"));
}

/// FILE-21
#[test]
fn deep_paths_and_long_chains_end_in_time_file_21() {
    let volume = Volume::new();
    let deep = vec!["d"; 900].join("/");
    fs::create_dir_all(volume.path(&deep)).unwrap();
    fs::write(volume.path(&format!("{deep}/app.env")), "K='deep'\n").unwrap();
    assert_eq!(volume.read(&format!("{deep}/app.env")).unwrap().as_deref(), Some("deep"));
    // Every step of the way leads back to the top, so the walk never leaves.
    symlink("/", volume.path("top")).unwrap();
    let round = format!("{}/real.env", vec!["top"; 30].join("/"));
    assert_eq!(volume.read(&round).unwrap().as_deref(), Some("inside"));
    for link in 0..60 {
        symlink(format!("chain-{}", link + 1), volume.path(&format!("chain-{link}"))).unwrap();
    }
    symlink("real.env", volume.path("chain-60")).unwrap();
    assert_eq!(volume.read("chain-50").unwrap().as_deref(), Some("inside"));
    for endless in ["chain-0".to_owned(), format!("{}/real.env", vec!["top"; 50].join("/"))] {
        assert!(refused(&volume, &endless).starts_with("couldn't read env file"));
    }
    let mut long = String::new();
    for _ in 0..3000 {
        write!(long, "d/").unwrap();
    }
    assert!(refused(&volume, &format!("{long}app.env")).starts_with("couldn't read env file"));
    assert!(refused(&volume, &"x".repeat(256)).starts_with("couldn't read env file"));
}

/// FILE-21: whatever stands at the path at one moment is judged and read, not what stood there before.
#[test]
fn what_is_swapped_in_at_the_last_moment_is_not_read_file_21() {
    let volume = Volume::new();
    let target = volume.outside.path().join("app.env");
    symlink(&target, volume.path("link")).unwrap();
    mknodat(CWD, volume.path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::create_dir(volume.path("directory")).unwrap();
    for evil in ["link", "fifo", "directory"] {
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        let (real, evil) = (volume.path("real.env"), volume.path(evil));
        let mut read = 0;
        beside(
            || rustix::fs::renameat_with(CWD, &real, CWD, &evil, exchange).unwrap(),
            || {
                for _ in 0..2000 {
                    match volume.read("real.env") {
                        Ok(Some(value)) => {
                            assert_eq!(value, "inside");
                            read += 1;
                        }
                        // A link that leads nowhere.
                        Ok(None) => {}
                        Err(FileError::NotRegular { .. } | FileError::Unreadable { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            },
        );
        assert!(read > 0, "the good file was there half of the time");
        // Whichever way the last exchange went, the next round begins with the good file in place.
        if fs::symlink_metadata(&real).unwrap().is_file() {
            continue;
        }
        rustix::fs::renameat_with(CWD, &real, CWD, &evil, exchange).unwrap();
    }
}

/// A file that is replaced by renaming is seen whole, before or after.
#[test]
fn a_file_that_is_replaced_is_read_whole() {
    let volume = Volume::new();
    let contents = ["a", "b"].map(|letter| format!("K='{}'\n", letter.repeat(30_000)));
    fs::write(volume.path("app.env"), &contents[0]).unwrap();
    let turn = AtomicBool::new(false);
    let replace = || {
        let next = usize::from(turn.fetch_not(Ordering::Relaxed));
        fs::write(volume.path("next"), &contents[next]).unwrap();
        fs::rename(volume.path("next"), volume.path("app.env")).unwrap();
    };
    beside(replace, || {
        for _ in 0..500 {
            let value = volume.read("app.env").unwrap().unwrap();
            assert_eq!(value.len(), 30_000);
            assert!(value.bytes().all(|byte| byte == value.as_bytes()[0]));
        }
    });
}

/// One that is written while it is read gives some of it or an error; never a wait, never content in
/// the error. This is why only init containers should mount the volume (OP-20).
#[test]
fn a_file_that_is_written_meanwhile_is_read_or_refused() {
    let volume = Volume::new();
    let content = format!("K='{}'\n", CANARY.repeat(4_000));
    fs::write(volume.path("app.env"), &content).unwrap();
    let rewrite = || fs::write(volume.path("app.env"), &content).unwrap();
    beside(rewrite, || {
        for _ in 0..1000 {
            match volume.read("app.env") {
                Ok(found) => assert!(found.is_none_or(|value| content.contains(&value))),
                Err(FileError::Parse { .. }) => drop(refused_text(&volume)),
                Err(other) => panic!("{other}"),
            }
        }
    });
}

/// The text of an error that may be gone by now.
fn refused_text(volume: &Volume) -> Option<String> {
    let error = volume.read("app.env").err()?;
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(CANARY), "{shown}");
    Some(shown)
}

/// A file that grows as fast as it is read is read up to its limit.
#[test]
fn a_file_without_an_end_is_read_up_to_the_limit() {
    let volume = Volume::new();
    let file = File::create(volume.path("app.env")).unwrap();
    let line = [b'\n'; 4096];
    file.write_all_at(&line.repeat(17), 0).unwrap();
    let at = std::sync::atomic::AtomicU64::new(17 * 4096);
    let most = 256 << 20;
    let grow = || {
        let at = at.fetch_add(4096, Ordering::Relaxed) % most;
        file.write_all_at(&line, at).unwrap();
    };
    beside(grow, || {
        for _ in 0..200 {
            assert!(refused(&volume, "app.env").contains("65536"));
        }
    });
}
