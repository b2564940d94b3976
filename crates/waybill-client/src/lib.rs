//! The client: from a kubeconfig to requests that carry credentials.
//!
//! Credential plugins are run by `kube` for now. Nothing here reads flags or the environment of the
//! process; whoever calls has done so.

mod connect;
pub mod exec;

pub use self::connect::{ConnectError, Options, Session, connect};
