//! A plugin that asks a person: the token of a user is typed on the terminal.
//!
//! ```yaml
//! exec:
//!   apiVersion: client.authentication.k8s.io/v1
//!   command: login_plugin
//!   interactiveMode: Always
//!   provideClusterInfo: true
//! ```

use std::{
    error::Error,
    io::{self, Write},
    time::Duration,
};

use jiff::Timestamp;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use waybill_core::secret::SecretBytes;
use waybill_credential::provider::{ExecAnswer, load_exec_credential_from_env};

/// People do not like to type more often.
const LIFE: Duration = Duration::from_hours(8);

fn main() -> Result<(), Box<dyn Error>> {
    let (request, cluster) = load_exec_credential_from_env()?;
    if !request.interactive {
        return Err("there is nobody to ask; run the client on a terminal".into());
    }
    let token = read_hidden(&format!("Token for {}: ", cluster.cluster_url))?;
    let answer = ExecAnswer {
        token: Some(token),
        expires: Some(Timestamp::now() + LIFE),
        ..ExecAnswer::default()
    };
    io::stdout().write_all(answer.to_json(request.api_version)?.expose())?;
    Ok(())
}

/// Asks for one line, which the terminal does not show.
fn read_hidden(question: &str) -> io::Result<SecretBytes> {
    let stdin = io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &hidden)?;
    let mut line = String::new();
    // Standard output is for the answer.
    let asked = write!(io::stderr(), "{question}");
    let read = asked.and_then(|()| stdin.read_line(&mut line));
    tcsetattr(&stdin, OptionalActions::Now, &shown)?;
    writeln!(io::stderr())?;
    read?;
    let line = SecretBytes::from(line.into_bytes());
    Ok(SecretBytes::copy_of(line.expose().trim_ascii()))
}
