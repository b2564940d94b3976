//! Stock `kubectl` against the real binary, as a user would run both.
//!
//! Skipped, and says so, where no kubectl is found; `WAYBILL_KUBECTL` names another one.

#![cfg(test)]

mod access;
mod cluster;
mod lifecycle;
mod objects;
mod output;
mod pods;
mod proposals;
mod schema;
mod typed;
