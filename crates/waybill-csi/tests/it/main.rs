//! The drivers that come with Waybill: each against its backend, and over its socket. A test whose backend
//! this machine lacks says SKIPPED.

#![cfg(test)]

mod account;
#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "metadata")]
mod clients;
#[cfg(feature = "metadata")]
mod clouds;
mod conformance;
#[cfg(feature = "metadata")]
mod metadata;
#[cfg(feature = "provider")]
mod provider;
#[cfg(feature = "vault")]
mod vault;
#[cfg(feature = "metadata")]
mod web;
