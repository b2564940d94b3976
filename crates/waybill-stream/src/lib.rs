//! Exec, attach and port-forward streams: codecs without IO, and thin adapters.
//!
//! From the bottom: [`websocket`] finds frames in bytes, [`channel`] finds streams in frames,
//! [`command`] and [`forward`] know what the streams mean. None of them does IO, and each works for
//! both ends. [`spdy`] does the same for the older protocol, for servers. [`connection`] joins them to tokio.
//!
//! Whoever passes a session on without reading it uses [`upgrade`] and [`splice`]. [`open_connections`] is for
//! all who serve.

pub mod channel;
pub mod command;
pub mod connection;
pub mod forward;
pub mod long_target;
pub mod open_connections;
pub mod outcome;
pub mod payload;
pub mod protocol;
pub mod spdy;
pub mod splice;
pub mod upgrade;
pub mod websocket;
