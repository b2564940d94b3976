//! What the tests of any crate need: our binary and stock programs as processes that end with the
//! test, and a word about what this machine made a test skip.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests talk to the terminal, and are told by the environment what their machine has"
)]

pub mod apiserver;
pub mod aws;
pub mod chromium;
pub mod conformance;
pub mod containerd;
pub mod credential_cache;
pub mod disk;
pub mod driver_conformance;
pub mod etcd;
pub mod gate;
pub mod hostile;
pub mod kubectl;
pub mod kubelet;
pub mod node;
pub mod oci;
pub mod openbao;
pub mod port;
pub mod program;
pub mod remains;
pub mod runtime;
pub mod skip;
pub mod stack;
pub mod stock;

mod child;
