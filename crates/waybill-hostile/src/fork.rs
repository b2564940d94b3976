//! Processes without end, to leave none for anybody else.

use std::{
    env, io,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::Outcome;

/// What each process is, by name: it does nothing.
pub(crate) const STAND_STILL: &str = "stand-still";

/// Longer than any test waits. Processes end after it should nobody be left to kill them.
const LIFE: Duration = Duration::from_secs(120);

/// Starts as many processes as its argument says, unless the kernel refuses one before. All of them live until standard
/// input ends.
pub(crate) fn until_refused(arguments: &[String]) -> Outcome {
    let wanted = arguments.first().and_then(|text| text.parse().ok());
    let wanted: usize = wanted.ok_or("expected how many processes to start")?;
    let program = env::current_exe().map_err(|error| format!("my own program: {error}"))?;
    let mut running = Vec::new();
    let mut refused = None;
    while running.len() < wanted && refused.is_none() {
        let child = Command::new(&program).arg(STAND_STILL).stdin(Stdio::null()).spawn();
        match child {
            Ok(child) => running.push(child),
            Err(error) => refused = Some(error),
        }
    }
    let told = format!("{} of {wanted} processes run", running.len());
    println!("{told}");
    let waited = io::copy(&mut io::stdin(), &mut io::sink());
    running.iter_mut().for_each(end);
    waited.map_err(|error| format!("standard input: {error}"))?;
    match refused {
        None => Ok(told),
        Some(error) => Err(format!("{told}: {error}")),
    }
}

/// One of those processes.
pub(crate) fn stand_still(_arguments: &[String]) -> Outcome {
    thread::sleep(LIFE);
    Ok("nobody ended me".to_owned())
}

fn end(child: &mut Child) {
    // One that has ended cannot be killed, and is waited for all the same.
    let _ = child.kill();
    let _ = child.wait();
}
