//! Drivers of environment variables: values from other systems, over CSI, in memory only.
//!
//! A driver implements [`driver::Driver`]: keys in, values out. Everything else that the proposal asks
//! of one is here: the gRPC services, registration with the kubelet, the allow-lists of a class, the
//! cache, rate limits, metrics and a graceful end.

pub mod driver;
pub mod drivers;
#[cfg(feature = "http")]
mod http;
