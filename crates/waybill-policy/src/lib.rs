//! Dynamic admission as pure code: which requests a webhook or policy is about, and what it says.
//!
//! Nothing here does IO, reads a clock or logs. The API server brings the request, the namespace,
//! the parameters and whoever answers questions about rights; it carries out what comes back.
//!
//! Expressions are written by users and run in the server, so every one is bounded: its length and
//! depth when it is compiled, its work and memory when it runs. See `docs/adr/0054`.

pub mod cel;
pub mod conditions;
pub mod config;
pub mod policy;
pub mod request;
pub mod review;
pub mod rules;
pub mod selector;
pub mod validation;
pub mod webhook;

#[cfg(test)]
mod fixtures;
