//! A plugin that asks nobody: it passes on a token that something else renews in a file.
//!
//! ```yaml
//! exec:
//!   apiVersion: client.authentication.k8s.io/v1
//!   command: token_plugin
//!   args: [/run/agent/token]
//!   interactiveMode: Never
//! ```

use std::{
    error::Error,
    fs,
    io::{self, Write},
    time::Duration,
};

use jiff::Timestamp;
use waybill_core::secret::SecretBytes;
use waybill_credential::provider::{ExecAnswer, load_exec_request_from_env};

/// Clients ask again so often, whatever becomes of the file.
const LIFE: Duration = Duration::from_mins(10);

fn main() -> Result<(), Box<dyn Error>> {
    let (request, _) = load_exec_request_from_env()?;
    let path = std::env::args_os().nth(1).ok_or("usage: token_plugin FILE")?;
    let file = SecretBytes::from(fs::read(path)?);
    let token = SecretBytes::copy_of(file.expose().trim_ascii());
    let answer = ExecAnswer {
        token: Some(token),
        expires: Some(Timestamp::now() + LIFE),
        ..ExecAnswer::default()
    };
    io::stdout().write_all(answer.to_json(request.api_version)?.expose())?;
    Ok(())
}
