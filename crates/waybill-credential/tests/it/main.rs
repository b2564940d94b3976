//! The library as its users see it: real plugins, real servers.

mod authenticator;
mod client;
mod plugins;
mod support;
