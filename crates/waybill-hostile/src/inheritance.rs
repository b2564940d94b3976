//! What a process finds that it was not given on purpose: descriptors, a directory outside of its root, keys.

use std::{env, fs, os::unix::fs::MetadataExt};

use crate::Outcome;

/// Names descriptors besides the three streams, and directories among those.
pub(crate) fn descriptors(_arguments: &[String]) -> Outcome {
    let entries =
        fs::read_dir("/proc/self/fd").map_err(|error| format!("/proc/self/fd: {error}"))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let stream = ["0", "1", "2"].iter().any(|it| entry.file_name() == *it);
        // The one that lists the others.
        let own = target.starts_with("/proc") && target.ends_with("fd");
        let directory = fs::metadata(entry.path()).is_ok_and(|it| it.is_dir());
        if !own && (!stream || directory) {
            found.push(format!("{} is {}", entry.file_name().display(), target.display()));
        }
    }
    if found.is_empty() { Err("nothing else is open".to_owned()) } else { Ok(found.join("\n")) }
}

/// Whether the working directory lies outside of the root.
pub(crate) fn directory(_arguments: &[String]) -> Outcome {
    let here = fs::metadata(".").map_err(|error| format!("working directory: {error}"))?;
    let named = env::current_dir().ok().and_then(|path| Some((fs::metadata(&path).ok()?, path)));
    match named {
        Some((there, path)) if (there.dev(), there.ino()) == (here.dev(), here.ino()) => {
            Err(format!("the working directory is {}", path.display()))
        }
        _ => Ok(format!("the working directory is inode {} of somewhere else", here.ino())),
    }
}

/// The number of the session keyring, the only one that others than root see of their own.
pub(crate) fn keyring(_arguments: &[String]) -> Outcome {
    let keys = fs::read_to_string("/proc/keys").map_err(|error| format!("/proc/keys: {error}"))?;
    let sessions = keys.lines().filter(|line| line.contains("keyring") && line.contains(" _ses"));
    let ids: Vec<&str> = sessions.filter_map(|line| line.split_whitespace().next()).collect();
    if ids.is_empty() { Err("no session keyring is seen".to_owned()) } else { Ok(ids.join(" ")) }
}
