//! How lists and maps of the API merge, by server-side apply and by strategic merge patch.
//!
//! The markers of Go's types say so, which `k8s-pb` keeps in its comments. What is newer than that crate is replaced as a
//! whole, as everything without a marker is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use anyhow::{Context, Result, bail};

use super::{
    Generated,
    protobuf::{ROOTS, constant, module_name, reference},
    upstream::{Count, Field, Message, Place, Spelling, Type},
};

const LIST_TYPES: &str = "crates/waybill-apiserver/src/schema/list_types/generated.rs";
const PATCH_RULES: &str = "crates/waybill-apiserver/src/patch/schema/generated.rs";

pub(super) fn generated(
    version: &str,
    messages: &BTreeMap<Place, Message>,
    spelling: &Spelling,
) -> Result<[Generated; 2]> {
    let mut merges = Merges { messages, spelling, seen: BTreeSet::new(), facts: Facts::default() };
    for (module, names) in ROOTS {
        for name in *names {
            merges.visit(&Place::new(module, name))?;
        }
    }
    let mut rules = Rules { messages, spelling, done: BTreeMap::new() };
    for (module, names) in ROOTS {
        for name in *names {
            rules.add(&Place::new(module, name));
        }
    }
    Ok([
        Generated { path: LIST_TYPES.to_owned(), text: merges.facts.text(version) },
        Generated { path: PATCH_RULES.to_owned(), text: rules.text(version) },
    ])
}

/// What strategic merge patch does with the fields of messages.
struct Rules<'a> {
    messages: &'a BTreeMap<Place, Message>,
    spelling: &'a Spelling,
    /// The lines of each message; none if its lists are all replaced.
    done: BTreeMap<Place, BTreeMap<String, String>>,
}

impl Rules<'_> {
    /// Whether a message has rules. Messages that hold themselves have none there.
    fn add(&mut self, place: &Place) -> bool {
        if let Some(lines) = self.done.get(place) {
            return !lines.is_empty();
        }
        self.done.insert(place.clone(), BTreeMap::new());
        let mut lines = BTreeMap::new();
        if self.spelling.definition(place).is_some() {
            self.lines(place, place, &mut lines);
        }
        let has_rules = !lines.is_empty();
        self.done.insert(place.clone(), lines);
        has_rules
    }

    /// The lines for the fields of `place`; in the schema they are fields of `owner`.
    fn lines(&mut self, owner: &Place, place: &Place, lines: &mut BTreeMap<String, String>) {
        let fields = self.messages.get(place).map_or(&[][..], |message| &message.fields);
        for field in fields {
            let inner = if let Type::Message(inner) = &field.of { Some(inner) } else { None };
            let Some(name) = self.spelling.own(owner, &field.name).map(str::to_owned) else {
                if let (Some(inner), Count::One) = (inner, field.count) {
                    self.lines(owner, inner, lines);
                }
                continue;
            };
            let merges = field.marked("patchStrategy").any(|it| it.starts_with("merge"));
            let rule = match (field.count, field.marked("patchMergeKey").next()) {
                (Count::One, _) => inner
                    .filter(|inner| self.add(inner))
                    .map(|inner| format!("Object({})", reference(owner, inner))),
                (Count::List, Some(key)) if merges => {
                    let of = inner.filter(|inner| self.add(inner));
                    let of = of.map_or("PLAIN".to_owned(), |inner| reference(owner, inner));
                    Some(format!("Keyed({key:?}, {of})"))
                }
                (Count::List, None) if merges => Some("Set".to_owned()),
                (Count::List | Count::Map, _) => None,
            };
            lines.extend(rule.map(|rule| (name, rule)));
        }
    }

    fn text(&self, version: &str) -> String {
        let mut text = format!(
            "//! Which lists of Kubernetes a strategic merge patch merges, and by what. Written by `cargo xtask gen` from\n\
             //! k8s-pb {version}; do not edit.\n"
        );
        let mut modules = BTreeMap::<&str, Vec<_>>::new();
        // Kinds of which only the metadata has rules need none of their own.
        let is_plain = |place: &Place, lines: &BTreeMap<String, String>| {
            lines.is_empty() || lines.keys().eq(["metadata"]) && is_root(place)
        };
        for (place, lines) in self.done.iter().filter(|(place, lines)| !is_plain(place, lines)) {
            modules.entry(&place.module).or_default().push((place, lines));
        }
        for (module, rules) in modules {
            let mut body = String::new();
            for (place, lines) in rules {
                let _ =
                    writeln!(body, "    pub(crate) const {}: Fields = &[", constant(&place.name));
                for (name, rule) in lines {
                    let _ = writeln!(body, "        ({name:?}, {rule}),");
                }
                body.push_str("    ];\n");
            }
            let rules: Vec<_> = ["Keyed", "Object", "Set"]
                .into_iter()
                .filter(|rule| body.contains(&format!(", {rule}")))
                .collect();
            let plain = if body.contains("PLAIN") { "PLAIN, " } else { "" };
            let _ = writeln!(
                text,
                "\npub(crate) mod {} {{\n    use crate::patch::schema::{{Fields, {plain}Rule::{{{}}}}};\n\n{body}}}",
                module_name(module),
                rules.join(", ")
            );
        }
        text
    }
}

/// What is said of definitions, by their names in OpenAPI.
#[derive(Default)]
struct Facts {
    fields: BTreeMap<String, BTreeMap<String, String>>,
    atomic_objects: BTreeSet<String>,
    atomic_maps: BTreeSet<(String, String)>,
    key_defaults: BTreeSet<(String, String, String)>,
}

struct Merges<'a> {
    messages: &'a BTreeMap<Place, Message>,
    spelling: &'a Spelling,
    seen: BTreeSet<Place>,
    facts: Facts,
}

impl Merges<'_> {
    fn visit(&mut self, place: &Place) -> Result<()> {
        if !self.seen.insert(place.clone()) {
            return Ok(());
        }
        let Some(message) = self.messages.get(place) else { return Ok(()) };
        if let Some(definition) = self.spelling.definition(place) {
            if message.markers.iter().any(|marker| marker == "structType=atomic") {
                self.facts.atomic_objects.insert(definition.to_owned());
            }
            self.fields(place, message, place)?;
        }
        for field in &message.fields {
            if let Type::Message(inner) = &field.of {
                self.visit(inner)?;
            }
        }
        Ok(())
    }

    /// Notes what the fields of `message` say; in the schema they are fields of `owner`.
    fn fields(&mut self, owner: &Place, message: &Message, place: &Place) -> Result<()> {
        let definition = self.spelling.definition(owner).unwrap_or_default().to_owned();
        for field in &message.fields {
            let Some(name) = self.spelling.own(owner, &field.name).map(str::to_owned) else {
                if let Type::Message(inner) = &field.of
                    && let Some(message) = self.messages.get(inner)
                    && field.count == Count::One
                {
                    self.fields(owner, message, inner)?;
                }
                continue;
            };
            let at = || format!("{place:?}, {name}");
            match field.count {
                Count::List => {
                    let merge = merge(field).with_context(at)?;
                    self.key_defaults(field);
                    self.facts.fields.entry(definition.clone()).or_default().insert(name, merge);
                }
                Count::Map if field.marked("mapType").any(|kind| kind == "atomic") => {
                    self.facts.atomic_maps.insert((definition.clone(), name));
                }
                Count::Map | Count::One => {}
            }
        }
        Ok(())
    }

    /// What the keys of a list are where an element does not say them.
    fn key_defaults(&mut self, list: &Field) {
        let Type::Message(element) = &list.of else { return };
        let Some(definition) = self.spelling.definition(element) else { return };
        let fields = self.messages.get(element).map_or(&[][..], |message| &message.fields);
        for key in list.marked("listMapKey") {
            let has_key = |field: &&Field| self.spelling.own(element, &field.name) == Some(key);
            let default =
                fields.iter().find(has_key).and_then(|field| field.marked("default").next());
            if let Some(default) = default {
                let default = default.trim_matches('"').to_owned();
                self.facts.key_defaults.insert((definition.to_owned(), key.to_owned(), default));
            }
        }
    }
}

fn is_root(place: &Place) -> bool {
    let mut roots = ROOTS.iter().filter(|(module, _)| place.module == *module);
    roots.any(|(_, names)| names.contains(&place.name.as_str()))
}

/// The variant of `Merge` that a field's markers mean.
fn merge(field: &Field) -> Result<String> {
    let one = |name| field.marked(name).next().unwrap_or_default();
    let keys: Vec<&str> = field.marked("listMapKey").collect();
    let (kind, strategy, key) = (one("listType"), one("patchStrategy"), one("patchMergeKey"));
    let same_key = keys.first() == Some(&key);
    let keys = format!("(&{keys:?})");
    Ok(match (kind, strategy) {
        ("" | "atomic", "") => "Atomic".to_owned(),
        ("" | "atomic", "merge") if !key.is_empty() => format!("PatchBy({key:?})"),
        ("set", "") => "SetReplaced".to_owned(),
        ("set", "merge") => "Set".to_owned(),
        ("map", "") => format!("ByReplaced{keys}"),
        ("map", "merge") if same_key => format!("By{keys}"),
        ("map", "merge,retainKeys") if same_key => format!("ByRetainKeys{keys}"),
        _ => bail!("there is no way to merge `{kind}`, `{strategy}`, `{key}`, {keys}"),
    })
}

impl Facts {
    fn text(&self, version: &str) -> String {
        let mut text = format!(
            "//! How lists and maps of Kubernetes merge. Written by `cargo xtask gen` from k8s-pb {version}; do not edit.\n\n\
             use super::Merge;\n\n\
             /// Objects that server-side apply replaces as a whole.\n\
             pub(super) const ATOMIC_OBJECTS: &[&str] = &[\n"
        );
        // Writing to a string cannot fail.
        for name in &self.atomic_objects {
            let _ = writeln!(text, "    {name:?},");
        }
        text.push_str(
            "];\n\n/// Maps that server-side apply replaces as a whole.\n\
             pub(super) const ATOMIC_MAPS: &[(&str, &str)] = &[\n",
        );
        for map in &self.atomic_maps {
            let _ = writeln!(text, "    {map:?},");
        }
        text.push_str(
            "];\n\n/// What the keys of lists are where an element does not say them.\n\
             pub(super) const KEY_DEFAULTS: &[(&str, &str, &str)] = &[\n",
        );
        for default in &self.key_defaults {
            let _ = writeln!(text, "    {default:?},");
        }
        text.push_str(
            "];\n\n/// The lists, by definition.\n\
             pub(super) const FIELDS: &[(&str, &[(&str, Merge)])] = &[\n",
        );
        for (definition, fields) in &self.fields {
            let _ = writeln!(text, "    ({definition:?}, &[");
            for (name, merge) in fields {
                let _ = writeln!(text, "        ({name:?}, Merge::{merge}),");
            }
            text.push_str("    ]),\n");
        }
        text.push_str("];\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(markers: &[&str], expected: Option<&str>) {
        let markers = markers.iter().map(|marker| (*marker).to_owned()).collect();
        let name = "a".to_owned();
        let field = Field { number: 1, name, count: Count::List, of: Type::Text, markers };
        assert_eq!(merge(&field).ok().as_deref(), expected);
    }

    #[test]
    fn markers_say_how_a_list_merges() {
        check(&[], Some("Atomic"));
        check(&["listType=set", "patchStrategy=merge"], Some("Set"));
        let by = ["listType=map", "listMapKey=port", "listMapKey=protocol", "patchStrategy=merge"];
        check(&[&by[..], &["patchMergeKey=port"]].concat(), Some("By(&[\"port\", \"protocol\"])"));
        check(&[&by[..], &["patchMergeKey=name"]].concat(), None);
        check(&["listType=heap"], None);
    }
}
