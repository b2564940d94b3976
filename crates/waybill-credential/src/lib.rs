//! Exec credential plugins (KEP-541) for clients that stand on `kube`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = kube::Config::infer().await?;
//! let client = waybill_credential::client(config)?;
//! # drop(client);
//! # Ok(())
//! # }
//! ```
//!
//! Such a client runs the plugin of its kubeconfig when it needs a credential, once for all requests that
//! wait; keeps the credential in memory until it expires, and renews it shortly before, behind the back of
//! everybody; runs the plugin again when a server refuses the credential, and repeats the request; makes new
//! connections when a certificate changes, and lets old ones finish; kills a plugin that hangs; and leaves one
//! alone for a while that fails. The rules and texts are those of client-go, which has neither timeout nor
//! pause; [`Options`] brings the rest back to what client-go does.
//!
//! [`client_builder`] takes options and further layers, and [`CredentialLayer`], [`Transport`] and [`Connector`] are the
//! parts for stacks of another shape. Plugins themselves are written with [`provider`]; [`login`] is the
//! client half of that of a local Waybill.
//!
//! A kubeconfig names programs that are run with your rights. Do not use one from somebody whom you would not
//! let type on your keyboard, or set a [`Policy`].

#[cfg(feature = "agent")]
pub mod agent;
mod authenticator;
mod backoff;
mod certificate;
mod client;
mod cluster;
mod credential;
mod error;
mod family;
mod hint;
mod host;
mod layer;
pub mod login;
mod lookup;
mod message;
mod metrics;
mod policy;
mod process;
pub mod provider;
mod registry;
mod route;
mod run;
mod stanza;
mod transport;

pub use self::authenticator::{Authenticator, Renewal};
pub use self::certificate::ClientCertificate;
pub use self::client::{ClientError, Stack, client, client_builder, client_builder_with};
pub use self::cluster::ClusterInfo;
pub use self::credential::Credential;
pub use self::error::{CredentialError, DecodeError, PairError, PluginError, StdinError};
pub use self::family::end_plugins;
pub use self::host::{Clock, OnRotation, OnUnauthorized, Options, Stdin, SystemClock};
pub use self::layer::{CredentialLayer, WithCredential};
pub use self::message::EXEC_INFO;
pub use self::metrics::{CallStatus, MetricSink, PrometheusSink};
pub use self::policy::{Policy, PolicyError};
pub use self::registry::Authenticators;
pub use self::route::Route;
pub use self::stanza::{
    ApiVersion, ExecStanza, Fault, InteractiveMode, StanzaError, misspelt_interactive_mode,
};
pub use self::transport::{Connector, Transport};
