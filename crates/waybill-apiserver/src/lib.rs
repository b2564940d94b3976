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
mod controllers;
mod convert;
mod discovery;
mod document;
mod http;
mod kinds;
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
mod rest;
mod route;
mod schedule;
mod schema;
mod selector;
mod server;
mod store;
mod table;
mod token_objects;

/// Doors for the fuzzers: parsers of what peers send.
#[doc(hidden)]
pub mod fuzzing {
    use crate::{
        patch::{PatchType, apply_bytes},
        query::{From, Query},
        selector::{field::FieldSelector, label::LabelSelector},
    };

    /// An object, a zero byte, and a patch of each kind for it.
    pub fn patch(data: &[u8]) {
        for kind in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
            let _ = apply_bytes(kind, data, "pods");
        }
    }

    /// A selector, which must print as it reads.
    pub fn selectors(text: &str) {
        if let Ok(selector) = LabelSelector::parse(text) {
            assert_eq!(LabelSelector::parse(&selector.to_string()).ok(), Some(selector));
        }
        if let Ok(selector) = FieldSelector::parse(text) {
            assert_eq!(FieldSelector::parse(&selector.to_string()).ok(), Some(selector));
        }
    }

    /// The query of a list or watch.
    pub fn query(text: &str) {
        let _ = From::parse(&Query::parse(text));
    }
}

pub use self::authn::local::socket::{SocketError, fetch_credential};
pub use self::server::{
    AnonymousAccess, Config, EtcdFiles, EtcdStore, Server, ServerError, StoreConfig,
};
