//! Black-box tests of the `waybill` binary.

#![cfg(test)]

mod alerts;
mod conformance;
mod credential;
mod credential_cache;
mod credential_canary;
mod csi_alerts;
mod driver;
mod encryption;
mod envfile;
mod erase;
mod etcd;
mod gate;
mod gate_sessions;
mod image;
mod interrupt;
mod login;
mod promtool;
mod run;
mod runbook;
mod runtime;
mod state_dir;
mod stock;
mod stock_kubelet;
mod stock_kubelet_on_ours;
mod stock_node;
mod stock_sessions;
mod unwritable_log;
mod vault_driver;
