//! Black-box tests of the `waybill` binary.

mod envfile;
mod run;
