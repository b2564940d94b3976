//! Why there is no credential.
//!
//! The texts are those of client-go, because people search for them. They are whole: no error here has a
//! source that would say more, and none repeats what a plugin printed.

use std::{fmt, io, sync::Arc, time::Duration};

/// Why a plugin gave no credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The plugin wants to talk to a person, and there is none.
    #[error("exec plugin cannot support interactive mode: {0}")]
    Interactive(StdinError),
    /// There is no such program.
    #[error("exec: executable {command} not found{help}")]
    NotFound {
        /// As the kubeconfig has it.
        command: String,
        /// What to do about it, as long as it has not been said too often.
        help: String,
    },
    /// It failed; on standard error it may have said why.
    #[error("exec: executable {command} failed with exit code {code}")]
    Exit {
        /// As the kubeconfig has it.
        command: String,
        /// Its exit code, or -1 if a signal ended it.
        code: i32,
    },
    /// It could not be started.
    #[error("exec: fork/exec {command}: {}", Cause(cause))]
    Start {
        /// As the kubeconfig has it.
        command: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// It was killed, because it took too long.
    #[error(
        "exec: executable {command} did not finish within {} s and was killed; if it waits for input, \
         run it on a terminal",
        limit.as_secs_f64()
    )]
    Timeout {
        /// As the kubeconfig has it.
        command: String,
        /// How long it may take.
        limit: Duration,
    },
    /// The policy of this client does not let it run.
    #[error("exec: executable {command} is not allowed by the credential plugin policy")]
    Denied {
        /// As the kubeconfig has it.
        command: String,
    },
    /// Its output is no `ExecCredential`.
    #[error("decoding stdout: {0}")]
    Decode(DecodeError),
    /// It speaks another version.
    #[error(
        "exec plugin is configured to use API version {configured}, plugin returned version {returned}"
    )]
    Version {
        /// What the kubeconfig says.
        configured: &'static str,
        /// What the plugin said.
        returned: String,
    },
    /// It gave no answer.
    #[error("exec plugin didn't return a status field")]
    NoStatus,
    /// Its answer is empty.
    #[error("exec plugin didn't return a token or cert/key pair")]
    NoCredential,
    /// Its answer lacks a half.
    #[error("exec plugin returned only certificate or key, not both")]
    HalfPair,
    /// Its certificate or key cannot be used.
    #[error("failed parsing client key/certificate: {0}")]
    Pair(PairError),
}

/// Why a plugin cannot have standard input.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StdinError {
    /// Nobody could type there.
    #[error("standard input is not a terminal")]
    NoTerminal,
    /// The client itself needs it.
    #[error("standard input is unavailable{}", Suffix(reason))]
    Unavailable {
        /// For what, in the client's words.
        reason: String,
    },
}

/// What is wrong with the output of a plugin, which is never quoted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Nothing was printed.
    #[error("the plugin printed nothing")]
    Empty,
    /// Far more was printed than a credential needs.
    #[error("the plugin printed more than {limit} bytes")]
    TooLong {
        /// How much is read.
        limit: usize,
    },
    /// It is not JSON.
    #[error("invalid JSON at line {line} column {column}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// It is JSON, and something in it has the wrong type.
    #[error("unexpected type of value at line {line} column {column}")]
    Shape {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// It is neither JSON nor YAML with the right fields.
    #[error("neither JSON nor YAML of an ExecCredential")]
    Yaml,
    /// The object does not say what it is.
    #[error("Object 'Kind' is missing")]
    NoKind,
    /// The object does not say its version.
    #[error("Object 'apiVersion' is missing")]
    NoApiVersion,
    /// The object is something else.
    #[error("the object is no ExecCredential")]
    OtherKind,
    /// The time of expiry is not RFC 3339.
    #[error("status.expirationTimestamp is not a time as in RFC 3339")]
    Expiration,
    /// The token cannot be sent.
    #[error("status.token has line breaks or other characters that no HTTP header can carry")]
    Token,
}

/// What is wrong with a certificate or its key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// No certificate was found.
    #[error("no certificate in PEM form in clientCertificateData")]
    NoCertificate,
    /// No key was found.
    #[error("no private key in PEM form in clientKeyData")]
    NoKey,
    /// The first certificate is none.
    #[error("clientCertificateData does not begin with an X.509 certificate")]
    Certificate,
    /// The key is of a kind that cannot sign.
    #[error("clientKeyData is no private key that TLS can use")]
    Key,
    /// They do not belong together.
    #[error("private key does not match public key")]
    Mismatch,
}

/// A request could not be sent, because there is no credential.
#[derive(Clone, Debug, thiserror::Error)]
#[error("getting credentials: {0}")]
pub struct CredentialError(pub(crate) Arc<PluginError>);

impl CredentialError {
    /// What went wrong with the plugin.
    pub fn plugin_error(&self) -> &PluginError {
        &self.0
    }
}

/// An error of the kernel as Go words it, without the number that Rust adds.
struct Cause<'a>(&'a io::Error);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        f.write_str(&text.to_lowercase())
    }
}

struct Suffix<'a>(&'a str);

impl fmt::Display for Suffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            reason => write!(f, ": {reason}"),
        }
    }
}
