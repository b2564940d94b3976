//! Black-box tests of the `waybill` binary.

#![cfg(test)]

mod envfile;
mod image;
mod run;
mod runtime;
