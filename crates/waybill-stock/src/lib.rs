//! Waybill on clusters whose API server, nodes and runtimes are not ours.
//!
//! What our own API server knows by itself, such a cluster learns from [`gate`], which answers its
//! admission webhooks. The rules are those of `waybill-api`, so both kinds of clusters give the same
//! answers in the same words.

pub mod agent;
pub mod gate;
pub mod install;
mod token;
mod unproven;
