//! The HTTP face: connections, bodies and answers. What a request means is decided in `api`.

mod answer;
mod body;
mod connection;
mod in_flight;
mod pace;
mod room;
mod turns;

pub(crate) use self::{
    answer::{AUDIT_ID, Answer, AnswerBody, PIECE, WORTH_COMPRESSING, compress},
    body::{Body, BodyError, read_body},
    connection::{Connection, Listener, Patience, Service},
    in_flight::{InFlight, InFlightRequest, RequestKind},
    room::AnswerPlace,
};
