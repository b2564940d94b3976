//! Runs every case against one stack, several at a time, and says which of them failed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    thread,
    time::Instant,
};

use waybill_testkit::stack::Stack;

use crate::cases::{self, Case};

/// As many at once; kubectl takes a good part of a core.
const WORKERS: usize = 5;

/// Runs all cases, stops the stack, and looks for what it left.
pub(crate) fn run(stack: Stack) {
    let waiting = Mutex::new(cases::ALL.iter().rev().collect::<Vec<_>>());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = { waiting.lock().unwrap().pop() } {
                    play(case, &stack, &failed);
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "cases that failed: {failed:#?}");
    stack.kubectl().line("delete pods --all --wait=true --grace-period=1").succeeds();
    stack.stop();
}

fn play(case: &Case, stack: &Stack, failed: &Mutex<Vec<String>>) {
    let (name, check) = case;
    let start = Instant::now();
    let played = catch_unwind(AssertUnwindSafe(|| check(stack)));
    println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
    if let Err(panic) = played {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        failed.lock().unwrap().push(format!("{name}: {text}"));
    }
}
