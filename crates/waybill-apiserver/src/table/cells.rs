//! The cells that many kinds have.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age::since,
    read::{text, time},
};

/// The cells of an object that has nothing but a name.
pub(crate) fn plain(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

pub(crate) fn name(object: &Value) -> Value {
    text(object, "/metadata/name").into()
}

pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(time(object, "/metadata/creationTimestamp"), now).into()
}
