//! How messages map to documents: the words that the tables are written in.
//!
//! Tables are acyclic, which bounds the depth of what is read by them.

/// A message: its fields in the order of their numbers.
pub(crate) struct Message(pub(super) &'static [Field]);

impl Message {
    /// The field with this number; what has none is skipped.
    pub(super) fn field(&self, number: u32) -> Option<&'static Field> {
        let at = self.0.binary_search_by_key(&number, |field| field.number).ok()?;
        self.0.get(at)
    }
}

/// One field of a message.
pub(super) struct Field {
    pub(super) number: u32,
    /// Its name in JSON; empty if the parts of its value belong to the message around it.
    pub(super) name: &'static str,
    pub(super) count: Count,
    pub(super) of: Type,
}

/// How often a field holds a value, and what an empty one says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Once. Go writes it even if it is empty, and drops it from JSON if it is.
    One,
    /// Once. Go knows present from empty, or shows it in either case: an empty one is kept.
    Kept,
    /// As part of the message around it.
    Inline,
    /// Any number of times.
    List,
    /// Any number of times, each with a key.
    Map,
}

/// What a field holds.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    /// Bytes; base64 in JSON.
    Bytes,
    Message(&'static Message),
    /// A message that holds nothing but a list of text; a list in JSON.
    Texts,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message that holds bytes which are JSON, as `FieldsV1` does.
    Json,
}

/// A field that is dropped when empty.
pub(super) const fn field(number: u32, name: &'static str, of: Type) -> Field {
    Field { number, name, count: Count::One, of }
}

/// A field that is kept when empty.
pub(super) const fn kept(number: u32, name: &'static str, of: Type) -> Field {
    Field { number, name, count: Count::Kept, of }
}

/// A field whose own fields are those of the message around it.
pub(super) const fn inline(number: u32, of: &'static Message) -> Field {
    Field { number, name: "", count: Count::Inline, of: Type::Message(of) }
}

/// A repeated field.
pub(super) const fn list(number: u32, name: &'static str, of: Type) -> Field {
    Field { number, name, count: Count::List, of }
}

/// A map from text.
pub(super) const fn map(number: u32, name: &'static str, of: Type) -> Field {
    Field { number, name, count: Count::Map, of }
}
