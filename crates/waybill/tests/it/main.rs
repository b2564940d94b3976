//! Black-box tests of the `waybill` binary.

#![cfg(test)]

mod envfile;
mod etcd;
mod image;
mod run;
mod runtime;
