//! `exec-env-conformance SOCKET IMAGE`: the suite of EXEC-57 against any CRI runtime.
//!
//! Ends with 0 if every case passed, with 3 if the runtime does not know variables of exec sessions but
//! keeps all other rules, and with 1 otherwise.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command that reports to people")]

use std::{env, process::ExitCode};

use waybill_core::chain::Chain;
use waybill_testkit::conformance::{self, Target, Verdict};

const USAGE: &str = "usage: exec-env-conformance SOCKET IMAGE

  SOCKET  of a CRI runtime, such as /run/containerd/containerd.sock
  IMAGE   that the runtime has, holding the static program /busybox";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [socket, image] = arguments.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let socket = socket.strip_prefix("unix://").unwrap_or(socket);
    match conformance::run(&Target::new(socket, image.clone())).await {
        Ok(reports) => {
            for report in &reports {
                println!("{report}");
            }
            verdict(reports.iter().map(|report| &report.verdict))
        }
        Err(error) => {
            eprintln!("error: {}", Chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn verdict<'r>(mut verdicts: impl Iterator<Item = &'r Verdict> + Clone) -> ExitCode {
    if verdicts.clone().any(|verdict| matches!(verdict, Verdict::Failed(_))) {
        return ExitCode::FAILURE;
    }
    match verdicts.any(|verdict| *verdict == Verdict::Unsupported) {
        true => ExitCode::from(3),
        false => ExitCode::SUCCESS,
    }
}
