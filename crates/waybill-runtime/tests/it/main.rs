//! The runtime's public face, on this machine's kernel. Most of it needs root and says SKIPPED without.

#![cfg(test)]

mod engine_container;
mod engine_exec;
mod engine_recovery;
mod engine_sandbox;
mod lab;
