//! The other sources of events, for kernels that take no program of ours: they run, say which they are, and that something may be missing.

use waybill_testkit::stack::{Setup, Stack};

use super::{BINARY, POD, eventually, programs, run_pod, trace};

/// A stack whose collector uses a lesser source.
fn start(source: &str) -> Option<Stack> {
    Setup::new(BINARY).flag(format!("--collector-flag=--source={source}")).start()
}

fn check(source: &str, words: &str) {
    let Some(stack) = start(source) else { return };
    run_pod(&stack);
    let named = |mark: &str| {
        let found = programs(&stack, mark);
        found.into_iter().filter(|it| it["waybill"]["eventSource"] == source).count()
    };
    // It lasts, so that whoever looks finds it.
    let script = "/bin/true; exec /bin/busybox sleep 7777";
    let lasting = stack.kubectl().follow(&["exec", POD, "--", "sh", "-c", script]);
    eventually(|| named("7777"), |found| *found == 1);
    let output = trace(&stack, &["--tree"]).output().unwrap();
    let (told, notes) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(told.contains(words), "{told}");
    assert!(notes.contains("programs that were short may be missing"), "{notes}");
    assert!(notes.contains("another source was asked for"), "{notes}");
    let status =
        stack.waybill().arg("status").arg("--state-dir").arg(stack.state()).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("short programs of sessions may be missing"), "{status}");
    let verified = trace(&stack, &["verify"]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
    drop(lasting);
    stack.kubectl().line(&format!("delete pod {POD}")).succeeds();
    stack.stop();
}

#[test]
fn the_proc_connector_records_and_says_that_it_does() {
    check("connector", "from the proc connector: short ones may be missing");
}

#[test]
fn scans_record_and_say_that_they_do() {
    check("scan", "from looks at what ran: short ones are missing");
}
