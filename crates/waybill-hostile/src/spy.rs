//! Lies in wait for processes that enter the container: between entering and executing they are a program of the machine, with what
//! that has in memory and open.

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::Outcome;

/// Looks at every process again and again until standard input ends: at its program, at what it has open, at its variables. The
/// arguments are the programs of the container itself.
pub(crate) fn on_those_who_enter(arguments: &[String]) -> Outcome {
    let over = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&over);
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        tell.store(true, Ordering::Relaxed);
    });
    println!("waiting");
    while !over.load(Ordering::Relaxed) {
        if let Some(seen) = strangers(arguments).next() {
            return Ok(seen);
        }
    }
    Err("nobody who entered could be looked at".to_owned())
}

/// What can be seen of processes whose program is none of the container's.
fn strangers(own: &[String]) -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.bytes().all(|byte| byte.is_ascii_digit())
    });
    processes.filter_map(|process: PathBuf| {
        let program = fs::read_link(process.join("exe")).ok()?;
        let program = program.to_string_lossy().into_owned();
        let known = own.iter().any(|it| program == *it || program == format!("{it} (deleted)"));
        (!known).then(|| format!("{} runs {program}", process.display()))
    })
}
