//! Black-box tests of the `waybill` binary.

#![cfg(test)]

mod alerts;
mod conformance;
mod credential;
mod csi_alerts;
mod driver;
mod envfile;
mod etcd;
mod gate;
mod image;
mod run;
mod runtime;
mod state_dir;
mod stock;
mod unwritable_log;
mod vault_driver;
