//! The client: from a kubeconfig to requests that carry credentials.
//!
//! Credential plugins are run by `waybill-credential`, when the first request needs one. Nothing here reads flags or the environment of the
//! process, except for the proxy variables that every client knows; whoever calls has done so.

mod connect;
pub mod exec;
mod manifest;
mod metrics;
mod request;
mod resource;
mod table;

pub use self::connect::{
    ActingAs, ConnectError, Options, Program, Session, connect, connect_in_cluster, plugin,
};
pub use self::manifest::{ManifestError, read_manifests};
pub use self::metrics::register_plugin_metrics;
pub use self::request::{Applied, RequestError, Requests, delete_options};
pub use self::resource::{Place, Resource, Resources};
pub use self::table::{Shape, Table};
