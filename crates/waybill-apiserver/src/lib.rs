//! A Kubernetes API server: small, fast, durable.
//!
//! Objects are JSON documents that keep what they hold. Reads come from memory, writes are durable
//! before they are acknowledged, and every request is authenticated, authorized, admitted and
//! recorded, in that order.

mod admission;
mod api;
mod audit;
mod authn;
mod authz;
mod cache;
mod clock;
mod controllers;
mod convert;
mod discovery;
mod document;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod kinds;
mod managers;
mod metrics;
mod objects;
mod patch;
mod pki;
mod protobuf;
mod proxy;
mod query;
mod read;
mod registry;
mod request;
mod route;
mod schedule;
mod schema;
mod selector;
mod server;
mod store;
mod table;
mod token_objects;
mod write;

pub use self::pki::{NodeFiles, NodeIdentity, NodeIdentityError, issue_node};
pub use self::proxy::address::NodeAddressType;
pub use self::server::{
    AnonymousAccess, AuditFailure, AuditRotation, AuditWebhook, AuditWebhookMode, Config,
    Encryption, EtcdFiles, EtcdStore, KeyUse, RequestLimits, Server, ServerError, StoreConfig,
    StoreKeys,
};
