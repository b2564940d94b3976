//! Who makes a request.

mod cache;
mod digest;
pub(crate) mod jwt;
