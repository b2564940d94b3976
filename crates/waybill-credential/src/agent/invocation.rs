//! The plugin behind `--`, and what the client that runs us wants of it.

use std::{io, path::PathBuf, time::Duration};

use waybill_core::secret::SecretBytes;

use super::{
    asker::Asker,
    key::{Key, KeyParts},
    wire::{Ask, Failure},
};
use crate::{
    Credential, EXEC_INFO, ExecStanza, InteractiveMode, Options, PluginError, lookup,
    provider::{ExecRequest, LoadError, parse_request},
    run::{Talk, run_with},
};

/// The most that renewal before the end may take: there is a credential that serves meanwhile.
const EARLY: Duration = Duration::from_secs(10);

/// A plugin that somebody wants to be run.
pub struct Invocation {
    stanza: ExecStanza,
    request: ExecRequest,
    /// As it came: what we do not know in it the plugin may.
    question: String,
    options: Options,
    holding: Holding,
    pub(super) asker: Option<Asker>,
}

/// For how long a credential is kept, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// One that does not say when it expires.
    pub max_age: Duration,
    /// One for which nobody asks.
    pub idle: Duration,
    /// Variables that do not separate askers; a star at the end stands for anything.
    pub ignored: Vec<String>,
    /// The working directory, if it is known.
    pub directory: Option<PathBuf>,
    /// Whether it separates askers in any case, and not only where a relative path in an argument or a variable leads to
    /// something in it.
    pub per_directory: bool,
}

/// Why there is nothing to run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvocationError {
    /// No client runs us, or one that speaks something else.
    #[error("this command stands in a kubeconfig, and is run by kubectl and other clients")]
    Question(#[source] LoadError),
}

impl Invocation {
    /// `command` with `args`, in the environment of `options`, which has the client's question.
    pub fn new(
        command: String,
        args: Vec<String>,
        options: Options,
        holding: Holding,
    ) -> Result<Self, InvocationError> {
        let question = options.environment.iter().rev().find(|(name, _)| name == EXEC_INFO);
        let question =
            question.and_then(|(_, value)| value.to_str()).filter(|text| !text.is_empty());
        let question = question.ok_or(InvocationError::Question(LoadError::Unset))?.to_owned();
        let request = parse_request(question.as_bytes()).map_err(InvocationError::Question)?;
        let stanza = ExecStanza {
            api_version: request.api_version,
            command,
            args,
            env: Vec::new(),
            drop_env: Vec::new(),
            install_hint: String::new(),
            interactive_mode: InteractiveMode::IfAvailable,
            provide_cluster_info: request.cluster.is_some(),
        };
        let asker = Asker::of_this_process(&question, request.interactive);
        Ok(Self { stanza, request, question, options, holding, asker })
    }

    /// Whether the plugin gets our terminal.
    pub fn is_interactive(&self) -> bool {
        self.request.interactive
    }

    /// How long a plugin may take that talks to nobody.
    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    pub(super) async fn run(&self) -> Result<SecretBytes, Failure> {
        run_with(&self.stanza, &self.options, &self.question, Talk::lent(self.request.interactive))
            .await
            .map_err(|error| failure(&error))
    }

    /// Nobody needs the answer yet, so nobody waits long for it, nobody is asked anything, and what is no credential is a failure.
    pub(super) async fn run_early(&self) -> Result<SecretBytes, Failure> {
        let options = Options { timeout: self.options.timeout.min(EARLY), ..self.options.clone() };
        let printed = run_with(&self.stanza, &options, &self.question, Talk::WithNobody)
            .await
            .map_err(|error| failure(&error))?;
        Credential::from_answer(&printed, self.request.api_version, options.clock.now())
            .map_err(|error| failure(&error))?;
        Ok(printed)
    }

    /// An error means that there is no such plugin.
    pub(super) fn ask(&self) -> io::Result<Ask> {
        let command = &self.stanza.command;
        let program = lookup::find(command, self.options.path())
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let key = Key::of(&KeyParts {
            program: &std::path::absolute(program)?,
            command,
            args: &self.stanza.args,
            environment: &self.options.environment,
            ignored: &self.holding.ignored,
            question: &self.question,
            directory: self.holding.directory.as_deref(),
            per_directory: self.holding.per_directory,
        })?;
        Ok(Ask {
            key,
            plugin: shown(command),
            server: self.request.cluster.as_ref().map(|cluster| shown(&cluster.server)),
            api_version: self.request.api_version.as_str().to_owned(),
            interactive: self.request.interactive,
            asker: self.asker,
            max_age: self.holding.max_age,
            idle: self.holding.idle,
        })
    }
}

/// What others are told of a plugin goes to their terminals.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn failure(error: &PluginError) -> Failure {
    let code = match error {
        PluginError::Exit { code, .. } => u8::try_from(*code).ok().filter(|&code| code != 0),
        _ => None,
    };
    Failure { code: code.unwrap_or(1), message: error.to_string() }
}
