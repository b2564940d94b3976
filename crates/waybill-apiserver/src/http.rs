//! The HTTP face: connections, bodies and answers. What a request means is decided in `api`.

mod answer;
mod body;
mod connection;

pub(crate) use self::{
    answer::{Answer, compress},
    body::{Body, read_body, stream_body, whole_body},
    connection::{Listener, Peer, REQUEST_BYTES},
};
