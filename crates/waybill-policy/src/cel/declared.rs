//! Types of API objects, as their schemas declare them.

use super::types::Type;

/// What may stand at one place of an object. Places refer to one another by their number.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declared {
    /// Anything.
    Any,
    /// A truth value.
    Bool,
    /// An integer.
    Int,
    /// A number.
    Double,
    /// A text.
    String,
    /// A text in base64.
    Bytes,
    /// A time.
    Timestamp,
    /// A list of what stands at that place.
    List(usize),
    /// Texts, each with what stands at that place.
    Map(usize),
    /// Fields by name.
    Object(Vec<(String, usize)>),
}

/// The type of the objects of a kind. Kinds may contain themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectType {
    name: String,
    places: Vec<Declared>,
    root: usize,
}

impl ObjectType {
    /// The type called `name` that begins at the place `root`. What refers to no place is anything.
    pub fn new(name: &str, places: Vec<Declared>, root: usize) -> Self {
        Self { name: name.to_owned(), places, root }
    }

    fn at(&self, place: usize) -> &Declared {
        self.places.get(place).unwrap_or(&Declared::Any)
    }
}

/// Which object a declared type is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// `object` and `oldObject`.
    Object,
    /// `params`.
    Params,
}

/// A list, a map or an object that a schema declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    whole: Whole,
    place: usize,
}

/// What the schemas of an expression's objects declare.
#[derive(Clone, Copy)]
pub(super) struct Schemas<'s> {
    pub(super) object: Option<&'s ObjectType>,
    pub(super) params: Option<&'s ObjectType>,
}

impl Schemas<'_> {
    fn of(&self, whole: Whole) -> Option<&ObjectType> {
        match whole {
            Whole::Object => self.object,
            Whole::Params => self.params,
        }
    }

    /// The type of a whole object.
    pub(super) fn root(&self, whole: Whole) -> Type {
        self.of(whole).map_or(Type::Dyn, |known| self.typed(Part { whole, place: known.root }))
    }

    fn declared(&self, part: Part) -> &Declared {
        self.of(part.whole).map_or(&Declared::Any, |known| known.at(part.place))
    }

    fn typed(&self, part: Part) -> Type {
        match self.declared(part) {
            Declared::Any => Type::Dyn,
            Declared::Bool => Type::Bool,
            Declared::Int => Type::Int,
            Declared::Double => Type::Double,
            Declared::String => Type::String,
            Declared::Bytes => Type::Bytes,
            Declared::Timestamp => Type::Timestamp,
            Declared::List(_) | Declared::Map(_) | Declared::Object(_) => Type::Declared(part),
        }
    }

    /// The same type without what only a schema knows, as operators and functions see it.
    pub(super) fn plain(&self, known: Type) -> Type {
        let Type::Declared(part) = known else { return known };
        match self.declared(part) {
            Declared::List(_) => Type::List,
            Declared::Map(_) => Type::Map,
            _ => known,
        }
    }

    /// The type of the elements of a list or of the values of a map, and that of its indices or keys.
    pub(super) fn inner(&self, known: Type) -> (Type, Type) {
        let Type::Declared(part) = known else { return (Type::Dyn, Type::Dyn) };
        let at = |place| self.typed(Part { place, ..part });
        match self.declared(part) {
            Declared::List(element) => (Type::Int, at(*element)),
            Declared::Map(value) => (Type::String, at(*value)),
            _ => (Type::Dyn, Type::Dyn),
        }
    }

    /// The type of a field; nothing if there is no such field.
    pub(super) fn field(&self, part: Part, name: &str) -> Option<Type> {
        let at = |place| self.typed(Part { place, ..part });
        match self.declared(part) {
            Declared::Object(fields) => {
                let named = |name: &str| fields.iter().find(|(field, _)| field == name);
                let found = named(name).or_else(|| named(&unescaped(name)));
                found.map(|(_, place)| at(*place))
            }
            Declared::Map(value) => Some(at(*value)),
            _ => None,
        }
    }

    /// As error texts write it.
    pub(super) fn name(&self, known: Type) -> String {
        let Type::Declared(part) = known else { return known.name().to_owned() };
        let inner = || self.name(self.inner(known).1);
        match self.declared(part) {
            Declared::List(_) => format!("list({})", inner()),
            Declared::Map(_) => format!("map(string, {})", inner()),
            _ => self.of(part.whole).map_or("object", |known| &known.name).to_owned(),
        }
    }
}

/// A name as it stands in objects; CEL writes some letters in words.
fn unescaped(name: &str) -> String {
    let plain = name
        .replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/")
        .replace("__underscores__", "__");
    let reserved = plain.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    reserved.map_or(plain.clone(), str::to_owned)
}
