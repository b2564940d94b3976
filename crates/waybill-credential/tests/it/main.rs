//! The library as its users see it: real plugins, real servers (CRED-49, CRED-50).

#![cfg(test)]

mod authenticator;
mod canary;
mod certificates;
mod client;
mod examples;
mod plugins;
mod proxy;
mod support;
mod terminal;
mod texts;
mod watch;
