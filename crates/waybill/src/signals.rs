//! Signals that end a command, and the credential plugins that it waits for with it.
//!
//! A thread of its own listens, because a command may be busy writing to somebody who does not read. Without a plugin everything
//! is as if nobody listened.

use std::{
    fs, io, process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use futures_util::future::select_all;
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};
use waybill_credential::end_plugins;
use waybill_runtime::end_by_signal;

/// For a plugin on the terminal that hears the signal itself, and may have to make keys visible again.
const GRACE: Duration = Duration::from_secs(1);

/// Whether a signal ends this process soon.
static ENDING: AtomicBool = AtomicBool::new(false);

/// From now on a signal that ends this process ends its plugins, too.
pub(crate) fn end_plugins_too() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let kinds = [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
    ];
    let ignored = ignored(&fs::read_to_string("/proc/self/status")?);
    let mut signals = Vec::new();
    {
        let _within = runtime.enter();
        // Whoever ignores a signal for us, as `nohup` does, wants us to go on.
        for kind in kinds.into_iter().filter(|kind| !is_in(ignored, kind.as_raw_value())) {
            signals.push((kind.as_raw_value(), signal(kind)?));
        }
    }
    let listen = move || end_by(&runtime, &mut signals);
    thread::Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

/// Waits for the end, if there is one to wait for: what failed because of it is no news.
pub(crate) fn wait_if_ending() {
    while ENDING.load(Ordering::Acquire) {
        thread::park();
    }
}

fn end_by(runtime: &Runtime, signals: &mut [(i32, Signal)]) {
    if signals.is_empty() {
        return;
    }
    let number = runtime.block_on(heard(signals));
    ENDING.store(true, Ordering::Release);
    thread::spawn(move || end(number, GRACE));
    // Somebody who is in a hurry says it again.
    let number = runtime.block_on(heard(signals));
    end(number, Duration::ZERO);
}

#[expect(clippy::exit, reason = "the first process of a container ends by no signal")]
fn end(number: i32, grace: Duration) {
    end_plugins(grace);
    end_by_signal(number);
    process::exit(128 + number);
}

/// The number of the first signal that comes.
async fn heard(signals: &mut [(i32, Signal)]) -> i32 {
    let each = signals.iter_mut().map(|(number, signal)| {
        Box::pin(async {
            signal.recv().await;
            *number
        })
    });
    select_all(each).await.0
}

/// The set of signals that this process was told to ignore, from proc(5).
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(set: u64, number: i32) -> bool {
    u32::try_from(number - 1).is_ok_and(|bit| set.checked_shr(bit).is_some_and(|set| set & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_known() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001005\nSigCgt:\t0000000000000440\n";
        let set = ignored(status);
        assert!(is_in(set, 1) && is_in(set, 3) && is_in(set, 13));
        assert!(!is_in(set, 2) && !is_in(set, 15) && !is_in(set, 0) && !is_in(set, 99));
        assert_eq!(ignored("Name:\tx\n"), 0);
    }
}
