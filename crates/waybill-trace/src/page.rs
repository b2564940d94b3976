//! The page of `waybill trace --serve`: sessions, what ran in them and who asked, for a browser on this machine.
//!
//! It serves loopback alone. Files of the page are for everybody and hold nothing; whatever is about sessions needs what a one-time
//! link brought ([`access`]). All texts go out as JSON or CSV, never as markup. It relies on a [`TraceSource`](crate::TraceSource) for every fact, and must
//! never show a value of a variable: there is none in what it reads.

mod access;
mod answer;
mod assets;
mod authority;
mod changes;
mod connection;
mod csv;
mod export;
mod feed;
mod filter;
mod find;
mod request;
mod route;
mod rows;
mod saved;

pub use self::{
    connection::{PageAddress, PageAddressError, PageServer},
    saved::{SavedTrace, SavedTraceError},
};
