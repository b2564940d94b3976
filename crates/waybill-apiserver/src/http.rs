//! The HTTP face: connections, bodies and answers. What a request means is decided in `api`.

mod answer;
mod body;
mod connection;

pub(crate) use self::{
    answer::{Answer, AnswerBody, compress, keeping},
    body::{Body, read_body},
    connection::{Connection, Listener, Patience, Service},
};
