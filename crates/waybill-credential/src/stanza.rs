//! The `exec` stanza of a kubeconfig, checked.
//!
//! An [`ExecStanza`] is proof that its plugin can be run; nobody checks again.

use std::fmt;

use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde_json::Value;

/// What `Debug` shows in place of arguments, variables and cluster configuration, as client-go does.
pub(crate) const REDACTED: &str = "--- REDACTED ---";

/// How to run a plugin.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ExecStanza {
    pub(crate) api_version: ApiVersion,
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) drop_env: Vec<String>,
    pub(crate) install_hint: String,
    pub(crate) interactive_mode: InteractiveMode,
    pub(crate) provide_cluster_info: bool,
}

/// The versions of `client.authentication.k8s.io` that are served today; `v1alpha1` is gone upstream too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApiVersion {
    /// The final one.
    V1,
    /// Its predecessor, with the same fields.
    V1Beta1,
}

/// Whether a plugin gets standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InteractiveMode {
    /// Never.
    Never,
    /// If it is a terminal that the client does not need.
    IfAvailable,
    /// The plugin is not run without.
    Always,
}

impl ExecStanza {
    /// The plugin of `user`, unless there is none or a static credential takes precedence.
    pub fn of_user(user: &str, auth: &AuthInfo) -> Result<Option<Self>, StanzaError> {
        let Some(exec) = &auth.exec else {
            return match &auth.auth_provider {
                Some(provider) => legacy(&provider.name).map_or(Ok(None), Err),
                None => Ok(None),
            };
        };
        let mut faults = Vec::new();
        if auth.auth_provider.is_some() {
            faults.push(Fault::AuthProvider);
        }
        let stanza = Self::parse(exec, &mut faults);
        if !faults.is_empty() {
            return Err(StanzaError::Invalid { user: user.to_owned(), faults });
        }
        let stanza = stanza?;
        Ok((!has_static_credential(auth)).then_some(stanza))
    }

    /// Gathers every fault; what it returns counts only if there is none.
    fn parse(exec: &ExecConfig, faults: &mut Vec<Fault>) -> Result<Self, StanzaError> {
        let command = exec.command.clone().unwrap_or_default();
        if command.is_empty() {
            faults.push(Fault::NoCommand);
        }
        let api_version = exec.api_version.as_deref().unwrap_or_default();
        if api_version.is_empty() {
            faults.push(Fault::NoApiVersion);
        }
        let env = variables(exec, faults);
        let interactive_mode = match &exec.interactive_mode {
            Some(mode) => mode.into(),
            None => {
                if !defaults_interactive_mode(api_version) {
                    faults.push(Fault::NoInteractiveMode);
                }
                InteractiveMode::IfAvailable
            }
        };
        Ok(Self {
            api_version: ApiVersion::parse(api_version)?,
            command,
            args: exec.args.clone().unwrap_or_default(),
            env,
            drop_env: exec.drop_env.clone().unwrap_or_default(),
            install_hint: exec.install_hint.clone().unwrap_or_default(),
            interactive_mode,
            provide_cluster_info: exec.provide_cluster_info,
        })
    }

    /// The program, as the kubeconfig has it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// How many arguments it gets; they may hold secrets.
    pub fn arguments(&self) -> usize {
        self.args.len()
    }

    /// How many variables it gets besides ours; they may hold secrets.
    pub fn variables(&self) -> usize {
        self.env.len()
    }

    /// The version in which client and plugin speak.
    pub fn api_version(&self) -> ApiVersion {
        self.api_version
    }

    /// Whether the plugin gets standard input.
    pub fn interactive_mode(&self) -> InteractiveMode {
        self.interactive_mode
    }

    /// Whether the plugin is told of the cluster.
    pub fn provides_cluster_info(&self) -> bool {
        self.provide_cluster_info
    }
}

impl fmt::Debug for ExecStanza {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecStanza")
            .field("api_version", &self.api_version)
            .field("command", &self.command)
            .field("args", &REDACTED)
            .field("env", &REDACTED)
            .field("interactive_mode", &self.interactive_mode)
            .field("provide_cluster_info", &self.provide_cluster_info)
            .finish_non_exhaustive()
    }
}

impl ApiVersion {
    /// As it is written in kubeconfigs and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }

    /// Reads it as it is written in kubeconfigs and answers.
    pub fn parse(text: &str) -> Result<Self, StanzaError> {
        [Self::V1, Self::V1Beta1]
            .into_iter()
            .find(|version| version.as_str() == text)
            .ok_or_else(|| StanzaError::ApiVersion { found: text.to_owned() })
    }
}

impl From<&ExecInteractiveMode> for InteractiveMode {
    fn from(mode: &ExecInteractiveMode) -> Self {
        match mode {
            ExecInteractiveMode::Never => Self::Never,
            ExecInteractiveMode::IfAvailable => Self::IfAvailable,
            ExecInteractiveMode::Always => Self::Always,
        }
    }
}

/// Why a user's plugin cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StanzaError {
    /// The stanza lacks something, or says what cannot be.
    #[error("invalid configuration: {}", Faults { user, faults })]
    Invalid {
        /// Whose.
        user: String,
        /// All that is wrong with it.
        faults: Vec<Fault>,
    },
    /// Nobody speaks this version.
    #[error("exec plugin: invalid apiVersion {found:?}")]
    ApiVersion {
        /// What was found.
        found: String,
    },
    /// The built-in provider is gone.
    #[error(
        "the {name} auth plugin has been removed; please use {replacement} as an exec credential plugin \
         instead"
    )]
    RemovedProvider {
        /// Its name.
        name: &'static str,
        /// What took its place.
        replacement: &'static str,
    },
}

/// One thing that is wrong with a stanza.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It stands beside an `auth-provider`.
    AuthProvider,
    /// It names no program.
    NoCommand,
    /// It names no version.
    NoApiVersion,
    /// A variable has no name.
    NoVariableName,
    /// It does not say whether the plugin talks to people, which `v1` demands.
    NoInteractiveMode,
    /// It says what no client knows.
    InteractiveMode(String),
}

impl Fault {
    fn text(&self, user: &str) -> String {
        let missing =
            |what| format!("{what} must be specified for {user} to use exec authentication plugin");
        match self {
            Self::AuthProvider => {
                format!(
                    "authProvider cannot be provided in combination with an exec plugin for {user}"
                )
            }
            Self::NoCommand => missing("command"),
            Self::NoApiVersion => missing("apiVersion"),
            Self::NoVariableName => missing("env variable name"),
            Self::NoInteractiveMode => missing("interactiveMode"),
            Self::InteractiveMode(found) => {
                format!("invalid interactiveMode for {user}: {found:?}")
            }
        }
    }
}

/// One fault by itself, several in brackets, as upstream's aggregates are printed.
struct Faults<'a> {
    user: &'a str,
    faults: &'a [Fault],
}

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.faults.iter().map(|fault| fault.text(self.user)).collect();
        match texts.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

/// What is wrong with a kubeconfig that `kube` cannot read, if it is an `interactiveMode` that nobody knows: its type has no
/// room for one.
pub fn misspelt_interactive_mode(kubeconfig: &str) -> Option<StanzaError> {
    let document: Value = serde_saphyr::from_str(kubeconfig).ok()?;
    document.get("users")?.as_array()?.iter().find_map(|entry| {
        let mode = entry.pointer("/user/exec/interactiveMode")?.as_str()?;
        let known = matches!(mode, "Never" | "IfAvailable" | "Always" | "");
        let user = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let faults = vec![Fault::InteractiveMode(mode.to_owned())];
        (!known).then_some(StanzaError::Invalid { user, faults })
    })
}

/// The versions before the final one did not have the field.
fn defaults_interactive_mode(api_version: &str) -> bool {
    api_version
        .strip_prefix("client.authentication.k8s.io/")
        .is_some_and(|version| matches!(version, "v1beta1" | "v1alpha1"))
}

fn variables(exec: &ExecConfig, faults: &mut Vec<Fault>) -> Vec<(String, String)> {
    let entries = exec.env.iter().flatten().map(|entry| {
        let part = |key| entry.get(key).cloned().unwrap_or_default();
        (part("name"), part("value"))
    });
    let entries: Vec<_> = entries.collect();
    if entries.iter().any(|(name, _)| name.is_empty()) {
        faults.push(Fault::NoVariableName);
    }
    entries
}

/// Whoever says `--token` means the token, and the plugin is not run.
fn has_static_credential(auth: &AuthInfo) -> bool {
    let some = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    auth.token.is_some()
        || some(&auth.token_file)
        || some(&auth.username)
        || some(&auth.client_certificate)
        || some(&auth.client_certificate_data)
}

fn legacy(name: &str) -> Option<StanzaError> {
    match name {
        "gcp" => Some(StanzaError::RemovedProvider {
            name: "gcp",
            replacement: "gke-gcloud-auth-plugin",
        }),
        "azure" => Some(StanzaError::RemovedProvider { name: "azure", replacement: "kubelogin" }),
        // OIDC is still built in elsewhere.
        _ => None,
    }
}

#[cfg(test)]
/// CRED-01..04, CRED-07, CRED-08, CRED-19, CRED-26, CRED-35.
mod tests;
