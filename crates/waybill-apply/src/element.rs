//! One step of a path: a field, an element of a list under its keys, or a value of a set.
//!
//! A step is kept as the text that stands in `fieldsV1`, in one canonical form: `f:name`,
//! `k:{"a":1,"b":"x"}` with the keys in order, `v:"x"`, `i:3`. So two steps are the same if their
//! texts are.

use serde_json::{Map, Value};

use crate::schema::Key;

/// Stands beside the children of a path that is a member itself.
pub(crate) const SELF: &str = ".";

/// The step to the field `name`.
pub(crate) fn field(name: &str) -> String {
    let mut text = String::with_capacity(2 + name.len());
    text.push_str("f:");
    text.push_str(name);
    text
}

/// The step to the element `item` of a list whose elements differ in `keys`.
///
/// An element that lacks a key has its default; one that has none of them cannot be told apart.
pub(crate) fn keyed(keys: &[Key], item: &Value) -> Option<String> {
    let fields = item.as_object()?;
    let mut text = String::with_capacity(32);
    text.push_str("k:{");
    for key in keys {
        let Some(value) = fields.get(&*key.name).or(key.default.as_ref()) else { continue };
        if text.len() > 3 {
            text.push(',');
        }
        push_text(&mut text, &key.name);
        text.push(':');
        match value {
            Value::String(value) => push_text(&mut text, value),
            value => text.push_str(&value.to_string()),
        }
    }
    if text.len() == 3 {
        return None;
    }
    text.push('}');
    Some(text)
}

/// The step to the value `item` of a set; sets hold scalars alone.
pub(crate) fn value(item: &Value) -> Option<String> {
    match item {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::Bool(_) | Value::Number(_) => Some(format!("v:{item}")),
        Value::String(item) => {
            let mut text = String::from("v:");
            push_text(&mut text, item);
            Some(text)
        }
    }
}

/// What a text in `fieldsV1` means.
pub(crate) enum Parsed {
    /// A step, in its canonical form.
    Step(String),
    /// Something that a later version may know.
    Unknown,
}

/// Reads a step that a peer wrote; `None` if it is none.
pub(crate) fn parse(text: &str) -> Option<Parsed> {
    let (kind, content) = text.split_once(':')?;
    let step = match kind {
        "f" => text.to_owned(),
        "k" => {
            let fields: Map<String, Value> = serde_json::from_str(content).ok()?;
            format!("k:{}", Value::Object(fields))
        }
        "v" => format!("v:{}", serde_json::from_str::<Value>(content).ok()?),
        "i" => format!("i:{}", content.parse::<i64>().ok()?),
        _ if kind.len() == 1 => return Some(Parsed::Unknown),
        _ => return None,
    };
    Some(Parsed::Step(step))
}

/// A path as people read it, such as `.spec.containers[name="web"].image`.
#[must_use]
pub fn describe_path(path: &[&str]) -> String {
    path.iter().map(|step| describe(step)).collect()
}

fn describe(step: &str) -> String {
    let (kind, content) = step.split_once(':').unwrap_or((step, ""));
    match kind {
        "f" => format!(".{content}"),
        "k" => {
            let fields: Map<String, Value> = serde_json::from_str(content).unwrap_or_default();
            let keys: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        "v" => format!("[={content}]"),
        _ => format!("[{content}]"),
    }
}

/// Appends `value` as JSON; most texts need no escapes.
fn push_text(text: &mut String, value: &str) {
    if value.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
        text.push_str(&Value::from(value).to_string());
    } else {
        text.push('"');
        text.push_str(value);
        text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str, default: Option<Value>) -> Key {
        Key { name: name.into(), default }
    }

    #[test]
    fn elements_of_lists_are_told_apart_by_their_keys_and_their_defaults() {
        let keys = [key("containerPort", None), key("protocol", Some(json!("TCP")))];
        let step = |item: Value| keyed(&keys, &item);
        let tcp = Some(r#"k:{"containerPort":80,"protocol":"TCP"}"#.to_owned());
        assert_eq!(step(json!({"containerPort": 80})), tcp);
        assert_eq!(step(json!({"protocol": "TCP", "containerPort": 80, "name": "a"})), tcp);
        assert_eq!(keyed(&keys[..1], &json!({"name": "a"})), None);
        assert_eq!(keyed(&keys[..1], &json!("a")), None);
    }

    #[test]
    fn what_peers_write_differently_is_the_same_step() {
        let canonical = |text: &str| match parse(text) {
            Some(Parsed::Step(step)) => step,
            Some(Parsed::Unknown) => "unknown".to_owned(),
            None => "refused".to_owned(),
        };
        assert_eq!(canonical(r#"k:{ "b": "x", "a": 1 }"#), r#"k:{"a":1,"b":"x"}"#);
        assert_eq!(canonical(r#"v:"\u0061""#), r#"v:"a""#);
        assert_eq!(canonical("f:a:b"), "f:a:b");
        assert_eq!(canonical("f:"), "f:");
        assert_eq!(canonical("i:07"), "i:7");
        assert_eq!(canonical("x:later"), "unknown");
        for wrong in ["", "f", "k:[]", "k:{} {}", "v:", "i:one", "name:x"] {
            assert_eq!(canonical(wrong), "refused", "{wrong}");
        }
    }

    #[test]
    fn paths_read_as_upstream_writes_them() {
        let path = [
            "f:spec",
            "f:containers",
            r#"k:{"name":"web"}"#,
            "f:ports",
            r#"k:{"containerPort":80,"protocol":"TCP"}"#,
        ];
        assert_eq!(
            describe_path(&path),
            r#".spec.containers[name="web"].ports[containerPort=80,protocol="TCP"]"#
        );
        assert_eq!(
            describe_path(&["f:metadata", "f:finalizers", r#"v:"a/b""#]),
            r#".metadata.finalizers[="a/b"]"#
        );
        assert_eq!(describe_path(&["f:args", "i:3"]), ".args[3]");
    }
}
