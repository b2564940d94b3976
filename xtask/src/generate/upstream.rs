//! What other people's crates say about the API of Kubernetes.
//!
//! `k8s-pb` has its protobuf messages as Rust structs, each field with its number and with the markers of the Go type in
//! its comments. `k8s-openapi` has the types of the JSON schema, of a newer Kubernetes: how fields are spelled in JSON, and
//! which must be there. Both are read as text; neither is compiled for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};

/// Where a message is and how it is called, as `api/core/v1` and `PodSpec`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) module: String,
    pub(super) name: String,
}

impl Place {
    pub(super) fn new(module: &str, name: &str) -> Self {
        Self { module: module.to_owned(), name: name.to_owned() }
    }
}

/// A message: its fields in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
    pub(super) markers: Vec<String>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) number: u32,
    /// In the manner of Rust.
    pub(super) name: String,
    pub(super) count: Count,
    pub(super) of: Type,
    /// What the comments tell generators, as `listType=map`.
    pub(super) markers: Vec<String>,
}

impl Field {
    /// What follows `name=` in each marker of this name.
    pub(super) fn marked<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.markers.iter().filter_map(move |marker| marker.strip_prefix(name)?.strip_prefix('='))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    One,
    List,
    Map,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    Bytes,
    Message(Place),
}

/// Every message of the API below `source` of `k8s-pb`; that of extensions is not served.
pub(super) fn messages(source: &Path) -> Result<BTreeMap<Place, Message>> {
    let mut all = BTreeMap::new();
    let is_ours = |module: &str| module.starts_with("api/") || module.starts_with("apimachinery/");
    for (module, text) in modules(source)?.into_iter().filter(|(module, _)| is_ours(module)) {
        let mut lines = text.lines().map(str::trim);
        let mut markers = Vec::new();
        while let Some(line) = lines.next() {
            if let Some(comment) = line.strip_prefix("///") {
                markers.extend(marker(comment));
            } else if let Some(head) = line.strip_prefix("pub struct ") {
                let name = head.split([' ', '{']).next().unwrap_or_default();
                let fields = if head.ends_with("{}") {
                    Vec::new()
                } else {
                    fields(&module, &mut lines).with_context(|| format!("in {module} {name}"))?
                };
                let message = Message { fields, markers: std::mem::take(&mut markers) };
                all.insert(Place::new(&module, name), message);
            } else if !line.starts_with("#[") {
                markers.clear();
            }
        }
    }
    Ok(all)
}

fn marker(comment: &str) -> Option<String> {
    comment.trim().strip_prefix('+').map(str::to_owned)
}

fn fields<'a>(module: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<Vec<Field>> {
    let (mut fields, mut markers, mut attribute) = (Vec::new(), Vec::new(), "");
    while let Some(line) = lines.next() {
        if line == "}" {
            break;
        } else if let Some(comment) = line.strip_prefix("///") {
            markers.extend(marker(comment));
        } else if let Some(inner) = line.strip_prefix("#[prost(") {
            attribute = inner.trim_end_matches(")]");
        } else if let Some(declared) = line.strip_prefix("pub ") {
            let (name, of) = declared.split_once(':').context("a field without a type")?;
            let mut of = of.trim().to_owned();
            // Long types take several lines.
            while !of.ends_with(',') || of.matches('<').count() != of.matches('>').count() {
                of.push_str(lines.next().context("a type that does not end")?);
            }
            fields.push(Field {
                name: name.trim_start_matches("r#").to_owned(),
                markers: std::mem::take(&mut markers),
                ..field(module, attribute, &of).with_context(|| format!("in {name}"))?
            });
        }
    }
    fields.sort_by_key(|field| field.number);
    Ok(fields)
}

fn field(module: &str, attribute: &str, of: &str) -> Result<Field> {
    let (_, tag) = attribute.split_once("tag = \"").context("no number")?;
    let number = tag.trim_end_matches('"').parse().context("no number")?;
    let (count, scalar) = if let Some(map) = attribute.strip_prefix("btree_map = \"string, ") {
        (Count::Map, map.split('"').next().unwrap_or_default())
    } else {
        let count = if attribute.contains(", repeated") { Count::List } else { Count::One };
        (count, attribute.split([',', ' ']).next().unwrap_or_default())
    };
    let of = match scalar {
        "string" => Type::Text,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "bytes" => Type::Bytes,
        "message" => Type::Message(place(module, of)?),
        other => bail!("`{other}` is no type that we know"),
    };
    Ok(Field { number, name: String::new(), count, of, markers: Vec::new() })
}

/// The message that the innermost part of a Rust type names.
fn place(module: &str, of: &str) -> Result<Place> {
    let path = of.trim_end_matches(['>', ',', ' ']);
    let path = path.rsplit(['<', ',', ' ']).next().unwrap_or_default();
    let mut parts: Vec<&str> = module.split('/').collect();
    let mut steps: Vec<&str> = path.split("::").collect();
    let name = steps.pop().context("a type without a name")?;
    for step in steps {
        if step == "super" {
            parts.pop();
        } else {
            parts.push(step);
        }
    }
    Ok(Place::new(&parts.join("/"), name))
}

/// How fields are spelled in JSON, and which must be there.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    /// By module and name of the type, both in small letters without separators.
    types: BTreeMap<(String, String), TypeSpelling>,
    /// Of all types: what a name without capitals and separators is in JSON, where it is the same everywhere.
    anywhere: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct TypeSpelling {
    /// How OpenAPI calls it.
    definition: String,
    fields: BTreeMap<String, String>,
    required: BTreeSet<String>,
}

impl Spelling {
    /// Reads the types below `source`, one version of `k8s-openapi`.
    pub(super) fn read(source: &Path) -> Result<Self> {
        let mut spelling = Self::default();
        for (path, text) in modules(source)? {
            let Some((_, body)) = text.split_once("\npub struct ") else { continue };
            let name = body.split([' ', '<', '(', ';']).next().unwrap_or_default();
            let body = body.split("\n}\n").next().unwrap_or_default();
            let (_, definition) =
                text.split_once("// Generated from definition ").unwrap_or_default();
            let definition = definition.lines().next().unwrap_or_default().to_owned();
            let mut of = TypeSpelling { definition, ..TypeSpelling::default() };
            for line in body.lines() {
                if let Some((field, of_field)) =
                    line.trim().strip_prefix("pub ").and_then(|line| line.split_once(": "))
                    && !of_field.starts_with("Option<")
                {
                    of.required.insert(squeezed(field.trim_start_matches("r#")));
                }
            }
            for line in text.lines() {
                if let Some((name, _)) = line.trim().split_once("\" => Field::Key_")
                    && let Some(name) = name.strip_prefix('"')
                {
                    of.fields.insert(squeezed(name), name.to_owned());
                    spelling.anywhere.entry(squeezed(name)).or_default().insert(name.to_owned());
                }
            }
            let module = path.rsplit_once('/').map_or("", |(module, _)| module);
            spelling.types.insert((module.to_owned(), squeezed(name)), of);
        }
        Ok(spelling)
    }

    fn of(&self, place: &Place) -> Option<&TypeSpelling> {
        self.types.get(&(place.module.clone(), squeezed(&place.name)))
    }

    /// How the schema calls this type, if it has it.
    pub(super) fn definition(&self, place: &Place) -> Option<&str> {
        self.of(place).map(|of| of.definition.as_str())
    }

    /// The field in JSON, if the type has it there.
    pub(super) fn own(&self, place: &Place, field: &str) -> Option<&str> {
        self.of(place)?.fields.get(&squeezed(field)).map(String::as_str)
    }

    /// The field in JSON, as whatever type has one of this name spells it. One word is itself.
    pub(super) fn anywhere<'a>(&'a self, field: &'a str) -> Result<&'a str> {
        let found = self.anywhere.get(&squeezed(field));
        match found.into_iter().flatten().collect::<Vec<_>>().as_slice() {
            [one] => Ok(one),
            [] if !field.contains('_') => Ok(field),
            _ => bail!("nobody says how `{field}` is spelled in JSON"),
        }
    }

    /// Whether the schema demands the field; nothing if it does not have it.
    pub(super) fn requires(&self, place: &Place, field: &str) -> Option<bool> {
        self.own(place, field)?;
        Some(self.of(place)?.required.contains(&squeezed(field)))
    }
}

/// A name without capitals and separators, in which both crates agree.
pub(super) fn squeezed(name: &str) -> String {
    name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// The Rust files below a folder, each by its path without `.rs` and `/mod`.
fn modules(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![(String::new(), folder.to_owned())];
    while let Some((above, folder)) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
            if entry.file_type()?.is_dir() {
                folders.push((path, entry.path()));
            } else if let Some(path) = path.strip_suffix(".rs") {
                let module = path.strip_suffix("/mod").unwrap_or(path).to_owned();
                found.push((module, fs::read_to_string(entry.path())?));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_with_numbers_types_and_markers() {
        let text = "/// A name.\n/// +listType=map\n/// +listMapKey=name\n\
            #[prost(message, repeated, tag = \"7\")]\n\
            pub r#type: ::prost::alloc::vec::Vec<super::super::meta::v1::Thing>,\n\
            #[prost(btree_map = \"string, message\", tag = \"2\")]\npub limits: ::Map<\n\
            ::String,\nQuantity,\n>,\n}\n";
        let fields = fields("api/core/v1", &mut text.lines()).unwrap();
        let (first, second) = (&fields[0], &fields[1]);
        assert_eq!((first.number, first.count), (2, Count::Map));
        assert_eq!(first.of, Type::Message(Place::new("api/core/v1", "Quantity")));
        assert_eq!((second.number, second.name.as_str()), (7, "type"));
        assert_eq!(second.of, Type::Message(Place::new("api/meta/v1", "Thing")));
        assert_eq!(second.marked("listMapKey").collect::<Vec<_>>(), ["name"]);
    }

    #[test]
    fn an_unknown_type_is_an_error() {
        assert!(field("a", "double, optional, tag = \"1\"", "Option<f64>,").is_err());
        assert!(field("a", "string, optional", "Option<String>,").is_err());
    }

    #[test]
    fn names_agree_without_capitals_and_separators() {
        assert_eq!(squeezed("pod_ip"), squeezed("podIP"));
    }
}
