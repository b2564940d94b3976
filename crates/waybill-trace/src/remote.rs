//! The record of a node, read from elsewhere: the collector hands out its lines through a socket, and whoever gets them has a record
//! that can be asked like the node's own.
//!
//! What goes over the wire are the lines of the record as they stand in its files, of those sessions that are wanted, and what the
//! runtime tells now. So the collector needs no memory for them, and the reader joins them with the code that a node's own reader uses.

mod answer;
mod received;
mod selection;
mod serve;
mod wire;

pub use self::{
    received::{Heard, ReceivedRecord, WireError},
    serve::{RecordServer, RecordServerConfig},
};
