//! Black-box tests of the `waybill` binary.

#![cfg(test)]

mod alerts;
mod conformance;
mod credential;
mod envfile;
mod etcd;
mod image;
mod run;
mod runtime;
mod state_dir;
mod unwritable_log;
