//! Which objects a list or watch is about: selectors by label and by field.
//!
//! A selector is parsed once, when the request arrives, and then asked for every object and event.
//! Grammar and texts are upstream's; nothing here answers a client by itself.

pub(crate) mod field;
pub(crate) mod label;
mod lex;
mod parse;
pub(crate) mod supported;
