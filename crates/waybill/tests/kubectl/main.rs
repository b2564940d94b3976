//! Stock `kubectl` against the real binary, as a user would run both.
//!
//! Skipped, and says so, where no kubectl is found; `WAYBILL_KUBECTL` names another one.
//! `cargo xtask test` runs these tests a second time, over the newest kubectl of Debian.

#![cfg(test)]

mod access;
mod cluster;
mod credential;
mod credential_cache;
mod credential_cases;
mod guides;
mod lifecycle;
mod migrate;
mod objects;
mod output;
mod pods;
mod policies;
mod proposals;
mod schema;
mod typed;
