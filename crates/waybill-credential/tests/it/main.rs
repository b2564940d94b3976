//! The library as its users see it: real plugins, real servers.

#![cfg(test)]

mod authenticator;
mod certificates;
mod client;
mod examples;
mod plugins;
mod support;
mod watch;
