//! `waybill driver mock`.

use std::path::PathBuf;

use anyhow::Result;
use waybill_csi::drivers::mock::{Mock, NAME};

use super::serve::{ServeArgs, serve};
use crate::Outcome;

/// What a file says, right or wrong: for tests, and for authors of drivers.
///
/// The file holds values, so it must be its owner's alone (chmod 600). It is read anew for each call: change a value
/// there, and it has been rotated.
#[derive(clap::Args)]
#[command(after_help = "\
A script, in YAML or JSON; every part may be left out:
  values: {db/password: hunter2}
  base64Values: {db/key: AAEC}
  errors:
    db/gone: {kind: not-found, message: there is no such key}
  # also denied, invalid, unavailable, backend
  hints: {maxPayloadBytes: 65536, maxValueBytes: 16384, rpcTimeout: 5s, maxInFlight: 100}
  capability: true         # whether it says that it serves variables
  cacheTTL: 0s
  sharing: identity        # who shares cached values: class, identity or pod
  journal: /tmp/journal    # gets a line of JSON for each call, without values
  calls:                   # what the first call does, the second, and so on
  - {delay: 200ms}
  - {status: {code: 14, message: come again}}
  - hang                   # also crash, wrong-order, missing-result, extra-result, wrong-name,
                           # value-and-error, nul, not-utf8, {oversize: BYTES}, {results: COUNT}
  otherwise: answer        # what all further calls do")]
pub(crate) struct Args {
    /// The script.
    #[arg(long, value_name = "FILE")]
    script: PathBuf,

    /// The name under which it registers.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn run(args: Args) -> Result<Outcome> {
    let driver = Mock::new(&args.name, args.script)?;
    serve(args.serve, |config| driver.serve(config))
}
