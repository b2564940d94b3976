//! The tables of waybill-apiserver that say which field of which message has which number.
//!
//! Numbers and types are those of `k8s-pb`, names in JSON those of `k8s-openapi`. Neither knows what Go does with an empty
//! value; `presence.txt` does, where the rule is another: what is required, and messages that are optional, are kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    Generated,
    upstream::{Count, Field, Message, Place, Spelling, Type},
};

const OUTPUT: &str = "crates/waybill-apiserver/src/protobuf/tables";
const PRESENCE: &str = include_str!("protobuf/presence.txt");

const CORE: &str = "api/core/v1";
const META: &str = "apimachinery/pkg/apis/meta/v1";
const STORAGE: &str = "api/storage/v1";

/// The messages that are sent as such: those of every kind that is served, and those of requests and answers.
pub(super) const ROOTS: &[(&str, &[&str])] = &[
    (
        "api/admissionregistration/v1",
        &[
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("api/authentication/v1", &["SelfSubjectReview", "TokenRequest", "TokenReview"]),
    (
        "api/authorization/v1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    ("api/certificates/v1", &["CertificateSigningRequest"]),
    ("api/coordination/v1", &["Lease"]),
    (
        CORE,
        &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "Namespace",
            "Node",
            "Pod",
            "PodExecOptions",
            "PodTemplate",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("api/discovery/v1", &["EndpointSlice"]),
    ("api/events/v1", &["Event"]),
    ("api/node/v1", &["RuntimeClass"]),
    ("api/policy/v1", &["Eviction"]),
    ("api/rbac/v1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("api/scheduling/v1", &["PriorityClass"]),
    (STORAGE, &["CSIDriver", "CSINode"]),
    (META, &["DeleteOptions", "ListMeta", "PartialObjectMetadata", "Status"]),
];

/// Messages that stand for one value in JSON.
const VALUES: &[(&str, &str, &str)] = &[
    ("apimachinery/pkg/api/resource", "Quantity", "Quantity"),
    ("apimachinery/pkg/util/intstr", "IntOrString", "IntOrString"),
    (META, "FieldsV1", "Json"),
    (META, "MicroTime", "MicroTime"),
    (META, "Time", "Time"),
];

/// What is newer than `k8s-pb`: module, message, number and name of a field, and what it holds; `*` before that if many.
/// `env` is our own (EXEC-01).
const NEWER: &[(&str, &str, u32, &str, &str)] = &[
    (CORE, "PodExecOptions", 7, "env", "*EnvVar"),
    (CORE, "ResourceHealth", 6, "message", "text"),
    (STORAGE, "CSIDriverSpec", 11, "prevent_pod_scheduling_if_missing", "bool"),
    (STORAGE, "CSINode", 3, "status", "CSINodeStatus"),
    (STORAGE, "CSINodeStatus", 1, "storage_health", "*StorageHealth"),
    (STORAGE, "StorageHealth", 1, "name", "text"),
    (STORAGE, "StorageHealth", 2, "health_conditions", "*StorageHealthCondition"),
    (STORAGE, "StorageHealthCondition", 1, "status", "text"),
    (STORAGE, "StorageHealthCondition", 2, "reason", "text"),
    (STORAGE, "StorageHealthCondition", 3, "message", "text"),
    (STORAGE, "StorageHealthCondition", 4, "access_mode", "text"),
    (STORAGE, "StorageHealthCondition", 5, "volume_mode", "text"),
    (STORAGE, "StorageHealthCondition", 6, "last_transition_time", "Time"),
];

pub(super) fn generated(
    version: &str,
    messages: &BTreeMap<Place, Message>,
    spelling: &Spelling,
) -> Result<Vec<Generated>> {
    let mut messages = messages.clone();
    add_newer(&mut messages)?;
    let mut tables =
        Tables { messages: &messages, spelling, presence: presence()?, done: BTreeMap::new() };
    for (module, names) in ROOTS {
        for name in *names {
            tables.add(&Place::new(module, name))?;
        }
    }
    if let Some((field, _)) = tables.presence.iter().next() {
        bail!("presence.txt has `{field}`, which follows the rule or does not exist");
    }
    Ok(tables.files(version))
}

fn add_newer(messages: &mut BTreeMap<Place, Message>) -> Result<()> {
    for &(module, message, number, name, of) in NEWER {
        let (count, of) = match of.strip_prefix('*') {
            Some(of) => (Count::List, of),
            None => (Count::One, of),
        };
        let of = match of {
            "text" => Type::Text,
            "bool" => Type::Bool,
            "Time" => Type::Message(Place::new(META, of)),
            of => Type::Message(Place::new(module, of)),
        };
        let field = Field { number, name: name.to_owned(), count, of, markers: Vec::new() };
        let fields = &mut messages.entry(Place::new(module, message)).or_default().fields;
        ensure!(
            fields.iter().all(|known| known.number != number),
            "k8s-pb has field {number} of {message} by now"
        );
        fields.push(field);
        fields.sort_by_key(|field| field.number);
    }
    Ok(())
}

/// What becomes of an empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Dropped,
    Kept,
}

/// The fields that do not follow the rule, as `core.v1.Pod.spec`.
fn presence() -> Result<BTreeMap<String, Presence>> {
    let lines = PRESENCE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| {
        let presence = match line.split_once(' ') {
            Some((field, "kept")) => (field.to_owned(), Presence::Kept),
            Some((field, "dropped")) => (field.to_owned(), Presence::Dropped),
            _ => bail!("presence.txt: `{line}`"),
        };
        Ok(presence)
    });
    entries.collect()
}

struct Tables<'a> {
    messages: &'a BTreeMap<Place, Message>,
    spelling: &'a Spelling,
    /// What was not asked for yet.
    presence: BTreeMap<String, Presence>,
    /// The text of each table.
    done: BTreeMap<Place, String>,
}

impl Tables<'_> {
    /// Writes the table of a message, and those of the messages in it.
    fn add(&mut self, place: &Place) -> Result<()> {
        if self.done.contains_key(place) {
            return Ok(());
        }
        let message = self.messages.get(place);
        let message = message.with_context(|| format!("there is no message {place:?}"))?;
        // Messages that hold themselves would make tables without end.
        self.done.insert(place.clone(), String::new());
        let mut text =
            format!("pub(crate) static {}: Message = Message(&[\n", constant(&place.name));
        for field in &message.fields {
            let line = self
                .field(place, field)
                .with_context(|| format!("in {place:?}, {}", field.name))?;
            if let Some(line) = line {
                let _ = writeln!(text, "    {line},");
            }
        }
        text.push_str("]);\n");
        self.done.insert(place.clone(), text);
        Ok(())
    }

    /// The line of a field; nothing for what the schema no longer has.
    fn field(&mut self, place: &Place, field: &Field) -> Result<Option<String>> {
        let number = field.number;
        let name = match self.spelling.own(place, &field.name) {
            Some(name) => name.to_owned(),
            None if self.spelling.definition(place).is_none() => {
                self.spelling.anywhere(&field.name)?.to_owned()
            }
            None => {
                // The schema has either the fields of this message instead, or nothing.
                let Type::Message(inner) = &field.of else { return Ok(None) };
                if !self.is_inside(inner, place) {
                    return Ok(None);
                }
                self.add(inner)?;
                return Ok(Some(format!("inline({number}, &{})", reference(place, inner))));
            }
        };
        let of = self.type_of(place, &field.of)?;
        let how = match field.count {
            Count::List => "list",
            Count::Map => "map",
            Count::One => match self.presence_of(place, field, &name) {
                Presence::Dropped => "field",
                Presence::Kept => "kept",
            },
        };
        Ok(Some(format!("{how}({number}, \"{name}\", {of})")))
    }

    /// Whether the fields of `inner` are fields of `outer` in the schema.
    fn is_inside(&self, inner: &Place, outer: &Place) -> bool {
        let fields = self.messages.get(inner).map(|message| message.fields.as_slice());
        let has = |field: &Field| self.spelling.own(outer, &field.name).is_some();
        fields.is_some_and(|fields| fields.iter().any(has))
    }

    fn type_of(&mut self, place: &Place, of: &Type) -> Result<String> {
        let Type::Message(inner) = of else { return Ok(format!("{of:?}")) };
        if let Some(value) = value(inner) {
            return Ok(value.to_owned());
        }
        let message = self.messages.get(inner);
        if let Some([only]) = message.map(|message| message.fields.as_slice())
            && (only.name.as_str(), only.count, &only.of) == ("items", Count::List, &Type::Text)
        {
            return Ok("Texts".to_owned());
        }
        self.add(inner)?;
        Ok(format!("Nested(&{})", reference(place, inner)))
    }

    fn presence_of(&mut self, place: &Place, field: &Field, name: &str) -> Presence {
        let marked = !field.markers.iter().any(|marker| marker == "optional");
        let is_required = self.spelling.requires(place, &field.name).unwrap_or(marked);
        let rule = match &field.of {
            Type::Message(inner) if value(inner).is_some() => Presence::Dropped,
            Type::Message(_) if is_required => Presence::Dropped,
            Type::Message(_) => Presence::Kept,
            _ if is_required => Presence::Kept,
            _ => Presence::Dropped,
        };
        let known = format!("{}.{}.{name}", module_name(&place.module), place.name);
        match self.presence.get(&known) {
            Some(&other) if other != rule => {
                self.presence.remove(&known);
                other
            }
            _ => rule,
        }
    }

    fn files(self, version: &str) -> Vec<Generated> {
        let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (place, text) in &self.done {
            texts.entry(&place.module).or_default().push(text);
        }
        let file = |(module, tables): (&str, Vec<&str>)| {
            let module = module_name(module);
            let body = tables.join("\n");
            let head = head(&module, version, &body);
            Generated { path: format!("{OUTPUT}/{module}.rs"), text: format!("{head}{body}") }
        };
        texts.into_iter().map(file).collect()
    }
}

fn head(module: &str, version: &str, body: &str) -> String {
    let used = |names: &[&str], after: &str| -> Vec<String> {
        let is_used = |name: &&&str| body.contains(&format!("{name}{after}"));
        names.iter().filter(is_used).map(|name| (*name).to_owned()).collect()
    };
    let mut types: Vec<String> = [
        "Bool",
        "Bytes",
        "Int32",
        "Int64",
        "IntOrString",
        "Json",
        "MicroTime",
        "Quantity",
        "Text",
        "Texts",
        "Time",
    ]
    .iter()
    .filter(|name| body.contains(&format!("\", {name})")))
    .map(|name| (*name).to_owned())
    .collect();
    if body.contains("Nested(") {
        types.push("Message as Nested".to_owned());
    }
    types.sort();
    let words: BTreeSet<String> =
        used(&["    field", "    inline", "    kept", "    list", "    map"], "(")
            .iter()
            .map(|word| word.trim().to_owned())
            .collect();
    let mut parts = vec!["Message".to_owned(), format!("Type::{{{}}}", types.join(", "))];
    parts.extend(words);
    if types.is_empty() {
        parts.remove(1);
    }
    format!(
        "//! Messages of `{module}`. Written by `cargo xtask gen` from k8s-pb {version}; do not edit.\n\n\
         use crate::protobuf::table::{{{}}};\n\n",
        parts.join(", ")
    )
}

fn value(place: &Place) -> Option<&'static str> {
    let is_it =
        |(module, name, _): &&(&str, &str, &str)| place.module == *module && place.name == *name;
    VALUES.iter().find(is_it).map(|(_, _, value)| *value)
}

/// How the table of `inner` is called in the file of `place`.
pub(super) fn reference(place: &Place, inner: &Place) -> String {
    let name = constant(&inner.name);
    if place.module == inner.module {
        return name;
    }
    format!("super::{}::{name}", module_name(&inner.module))
}

/// `core_v1` of `api/core/v1`.
pub(super) fn module_name(module: &str) -> String {
    let mut parts = module.rsplit('/');
    let (version, group) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{group}_{version}")
}

/// `CSI_DRIVER_SPEC` of `CSIDriverSpec`.
pub(super) fn constant(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut constant = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        let begins = letter.is_uppercase()
            && before.is_some_and(|before| {
                !before.is_uppercase() || after.is_some_and(|after| after.is_lowercase())
            });
        if begins {
            constant.push('_');
        }
        constant.extend(letter.to_uppercase());
    }
    constant
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_keep_words_apart() {
        assert_eq!(constant("CSIDriverSpec"), "CSI_DRIVER_SPEC");
        assert_eq!(constant("HttpGetAction"), "HTTP_GET_ACTION");
        assert_eq!(constant("PodOS"), "POD_OS");
        assert_eq!(module_name("apimachinery/pkg/apis/meta/v1"), "meta_v1");
    }

    #[test]
    fn every_line_about_presence_says_which() {
        assert!(presence().unwrap().len() > 100);
    }
}
