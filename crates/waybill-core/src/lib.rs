//! The rules of container environments, as pure code.
//!
//! What a variable may be called, how an env file reads, which of two definitions wins, and where
//! every variable came from. Both the API side and the node side of Waybill stand on this crate, so
//! a rule is written once.
//!
//! The crate is `no_std`: it cannot open a file, read a clock, start a thread or print. It also
//! knows no serde and no async; `cargo xtask deps` checks that it stays so.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod chain;
pub mod duration;
pub mod env;
pub mod glob;
pub mod id;
pub mod provider;
pub mod quantity;
pub mod secret;
