//! `csi-env-conformance SOCKET --key KEY …`: the suite for drivers of variables, against any driver.
//!
//! Ends with 0 if every case passed, with 3 if the driver does not serve variables but keeps all other
//! rules, and with 1 otherwise.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command that reports to people")]

use std::{env, process::ExitCode};

use waybill_core::chain::Chain;
use waybill_testkit::{
    conformance::Verdict,
    driver_conformance::{self, Key, Target},
};

const USAGE: &str = "usage: csi-env-conformance SOCKET --key KEY [--key KEY …]
           [--class-parameter NAME=VALUE …] [--context NAME=VALUE …] [--missing-key KEY]

  SOCKET             of a driver, such as /var/lib/kubelet/plugins/os.csi.waybill.dev/csi.sock
  --key              that has a value, with parameters of its variable if it needs any:
                     secret/data/db?field=password
  --missing-key      that has none; the first key with something behind it by default
  --class-parameter  that the class needs, such as an address
  --context          of the pod: namespace, serviceAccount, podName, podUID, nodeName, or
                     csi.storage.k8s.io/serviceAccount.tokens";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(target) = target(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match driver_conformance::run(&target).await {
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

fn target(mut arguments: impl Iterator<Item = String>) -> Option<Target> {
    let socket = arguments.next()?;
    let mut target = Target::new(socket.strip_prefix("unix://").unwrap_or(&socket), &[]);
    let mut missing = None;
    while let Some(flag) = arguments.next() {
        let value = arguments.next()?;
        let pair = || value.split_once('=').map(|(name, text)| (name.to_owned(), text.to_owned()));
        match flag.as_str() {
            "--key" => target.keys.push(Key::parse(&value)),
            "--missing-key" => missing = Some(Key::parse(&value)),
            "--class-parameter" => target.parameters.extend([pair()?]),
            "--context" => target.context.extend([pair()?]),
            _ => return None,
        }
    }
    target.missing = missing.unwrap_or(target.keys.first()?.sibling());
    Some(target)
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
