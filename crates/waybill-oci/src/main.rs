//! `waybill-oci`: the wrapper around a node's OCI runtime. See the library.

use std::{env, process::ExitCode, time::SystemTime};

use waybill_oci::Wrapper;

#[expect(clippy::disallowed_methods, reason = "this is where the clock enters")]
fn main() -> ExitCode {
    let words = env::args_os().skip(1).collect();
    Wrapper::run(words, SystemTime::now());
    // It came back, so the real runtime was not started.
    ExitCode::FAILURE
}
