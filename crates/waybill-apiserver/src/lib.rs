//! A Kubernetes API server: small, fast, durable.
//!
//! Objects are JSON documents that keep what they hold. Reads come from memory, writes are durable
//! before they are acknowledged, and every request is authenticated, authorized, admitted and
//! recorded, in that order.

#![expect(dead_code, reason = "the parts are being put together")]

mod audit;
mod authn;
mod authz;
mod kinds;
mod patch;
mod request;
mod schema;
mod selector;
mod store;
