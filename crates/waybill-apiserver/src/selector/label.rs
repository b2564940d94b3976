//! Label selectors: what they hold, when they match, and how they are written down.
//!
//! Keys and values have passed the rules for labels, so a selector can be printed and read again.

use std::{collections::BTreeSet, fmt};

use serde_json::{Map, Value};
use waybill_api::{
    field::{FieldError, FieldPath},
    names::{label_value_faults, qualified_name_faults},
};

/// Requirements on labels, all of which must hold; without any, every object matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelRequirement {
    key: String,
    test: LabelTest,
}

/// What a label must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LabelTest {
    /// The label is not there.
    DoesNotExist,
    /// It has this value.
    Equals(String),
    /// It is there.
    Exists,
    /// It is a number above this one.
    GreaterThan(i64),
    /// It has one of these values, of which there is at least one.
    In(BTreeSet<String>),
    /// It is a number below this one.
    LessThan(i64),
    /// It is not there or has another value.
    NotEquals(String),
    /// It is not there or has none of these values, of which there is at least one.
    NotIn(BTreeSet<String>),
}

/// Why a text or a JSON object is no label selector.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LabelSelectorError {
    /// A set of values without any.
    #[error(
        "unable to parse requirement: values: Invalid value: []: for 'in', 'notin' operators, \
         values set can't be empty"
    )]
    EmptySet,
    /// A key or value breaks the rules for labels.
    #[error("unable to parse requirement: {0}")]
    Field(FieldError),
    /// An operator of a match expression that does not exist.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// The text goes on where it must not.
    #[error("found '{found}', expected: {expected}")]
    Separator { found: String, expected: &'static str },
    /// A JSON selector has another shape than `LabelSelector`.
    #[error("{0}: not a label selector")]
    Shape(FieldPath),
    /// A requirement is not written as one.
    #[error("unable to parse requirement: found '{found}'{expected}")]
    Syntax { found: String, expected: &'static str },
}

impl LabelSelector {
    /// Reads the query form, such as `app=web,tier in (front,back),!legacy`.
    pub(crate) fn parse(text: &str) -> Result<Self, LabelSelectorError> {
        super::parse::label_selector(text).map(Self::new)
    }

    /// Reads a `LabelSelector` object. That an absent selector often means «nothing» is for the
    /// caller to know.
    pub(crate) fn from_json(selector: &Value) -> Result<Self, LabelSelectorError> {
        let shape = |path: &str| LabelSelectorError::Shape(FieldPath::new(path));
        let selector = selector.as_object().ok_or_else(|| shape("selector"))?;
        let mut requirements = Vec::new();
        if let Some(labels) = present(selector, "matchLabels") {
            for (key, value) in labels.as_object().ok_or_else(|| shape("matchLabels"))? {
                let value = value.as_str().ok_or_else(|| shape("matchLabels"))?;
                let test = LabelTest::Equals(value.to_owned());
                requirements.push(LabelRequirement::new("key", key, test)?);
            }
        }
        if let Some(expressions) = present(selector, "matchExpressions") {
            for expression in expressions.as_array().ok_or_else(|| shape("matchExpressions"))? {
                requirements.push(LabelRequirement::from_json(expression)?);
            }
        }
        Ok(Self::new(requirements))
    }

    /// Whether every requirement holds; `label` looks up a label by its key.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// Whether the labels of `object` match.
    #[cfg(test)]
    fn matches_object(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
    }

    /// Whether there is no requirement, so that every object matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    fn new(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, requirement) in self.requirements.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl LabelRequirement {
    /// A requirement whose key and values pass the rules; `key_path` is what an error calls the key.
    pub(super) fn new(
        key_path: &str,
        key: &str,
        test: LabelTest,
    ) -> Result<Self, LabelSelectorError> {
        check_key(key_path, key)?;
        match &test {
            LabelTest::Equals(value) | LabelTest::NotEquals(value) => check_value(key, 0, value)?,
            LabelTest::In(values) | LabelTest::NotIn(values) => {
                if values.is_empty() {
                    return Err(LabelSelectorError::EmptySet);
                }
                for (position, value) in values.iter().enumerate() {
                    check_value(key, position, value)?;
                }
            }
            LabelTest::DoesNotExist
            | LabelTest::Exists
            | LabelTest::GreaterThan(_)
            | LabelTest::LessThan(_) => {}
        }
        Ok(Self { key: key.to_owned(), test })
    }

    fn from_json(expression: &Value) -> Result<Self, LabelSelectorError> {
        let shape = || LabelSelectorError::Shape(FieldPath::new("matchExpressions"));
        let text = |field: &str| expression.get(field).and_then(Value::as_str).ok_or_else(shape);
        let (key, operator) = (text("key")?, text("operator")?);
        let mut values = BTreeSet::new();
        if let Some(list) = expression.get("values").filter(|list| !list.is_null()) {
            for value in list.as_array().ok_or_else(shape)? {
                values.insert(value.as_str().ok_or_else(shape)?.to_owned());
            }
        }
        let test = match operator {
            "DoesNotExist" => LabelTest::DoesNotExist,
            "Exists" => LabelTest::Exists,
            "In" => return Self::new("key", key, LabelTest::In(values)),
            "NotIn" => return Self::new("key", key, LabelTest::NotIn(values)),
            unknown => return Err(LabelSelectorError::Operator(unknown.to_owned())),
        };
        if values.is_empty() {
            return Self::new("key", key, test);
        }
        let detail = "values set must be empty for exists and does not exist";
        let listed = values.into_iter().collect::<Vec<_>>().join(",");
        let error = FieldError::invalid(FieldPath::new("values"), listed, detail);
        Err(LabelSelectorError::Field(error))
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match &self.test {
            LabelTest::DoesNotExist => label.is_none(),
            LabelTest::Equals(value) => label == Some(value),
            LabelTest::Exists => label.is_some(),
            LabelTest::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            LabelTest::In(values) => label.is_some_and(|label| values.contains(label)),
            LabelTest::LessThan(bound) => number().is_some_and(|number| number < *bound),
            LabelTest::NotEquals(value) => label != Some(value),
            LabelTest::NotIn(values) => label.is_none_or(|label| !values.contains(label)),
        }
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            LabelTest::DoesNotExist => write!(f, "!{key}"),
            LabelTest::Equals(value) => write!(f, "{key}={value}"),
            LabelTest::Exists => write!(f, "{key}"),
            LabelTest::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            LabelTest::In(values) => write!(f, "{key} in ({})", listed(values)),
            LabelTest::LessThan(bound) => write!(f, "{key}<{bound}"),
            LabelTest::NotEquals(value) => write!(f, "{key}!={value}"),
            LabelTest::NotIn(values) => write!(f, "{key} notin ({})", listed(values)),
        }
    }
}

/// Refuses a key that is no qualified name.
pub(super) fn check_key(path: &str, key: &str) -> Result<(), LabelSelectorError> {
    refuse(FieldPath::new(path), key, &qualified_name_faults(key))
}

fn check_value(key: &str, position: usize, value: &str) -> Result<(), LabelSelectorError> {
    let path = FieldPath::new("values").index(position).key(key);
    refuse(path, value, &label_value_faults(value))
}

fn refuse(path: FieldPath, text: &str, faults: &[String]) -> Result<(), LabelSelectorError> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(LabelSelectorError::Field(FieldError::invalid(path, text, faults.join("; "))))
}

/// The values of a set as the grammar reads them: a set of the empty value alone needs its comma.
fn listed(values: &BTreeSet<String>) -> String {
    let text = values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    if text.is_empty() { ",".to_owned() } else { text }
}

fn present<'a>(object: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    object.get(field).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, labels: &Value, expected: bool) {
        let selector = LabelSelector::parse(text).unwrap();
        let object = json!({"metadata": {"labels": labels}});
        assert_eq!(selector.matches_object(&object), expected, "{text:?} on {labels}");
    }

    #[test]
    fn operators_match_as_in_kubernetes() {
        let labels = json!({"app": "web", "tier": "front", "size": "12", "empty": ""});
        let yes = |text: &str| check(text, &labels, true);
        let no = |text: &str| check(text, &labels, false);
        yes("");
        yes("app=web");
        yes("app==web,tier=front");
        no("app=web,tier=back");
        no("gone=x");
        yes("app!=db");
        yes("gone!=x");
        no("app!=web");
        yes("app in (web,db)");
        no("gone in (web)");
        yes("gone notin (web)");
        no("app notin (web,db)");
        yes("app");
        no("gone");
        yes("!gone");
        no("!app");
        yes("empty=");
        yes("empty");
        no("app=");
        yes("size>11");
        no("size>12");
        yes("size<13");
        no("app<13");
        no("gone<13");
    }

    #[test]
    fn objects_without_labels_are_objects_without_labels() {
        for object in [json!(null), json!({}), json!({"metadata": {"labels": "odd"}})] {
            assert!(LabelSelector::parse("!a").unwrap().matches_object(&object));
            assert!(!LabelSelector::parse("a").unwrap().matches_object(&object));
        }
    }

    #[test]
    fn json_selectors_become_the_same_requirements() {
        let selector = LabelSelector::from_json(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "env", "operator": "NotIn", "values": ["dev"]},
                {"key": "a", "operator": "Exists"},
                {"key": "b", "operator": "DoesNotExist", "values": null},
            ],
        }));
        assert_eq!(
            selector.unwrap().to_string(),
            "a,app=web,!b,env notin (dev),tier in (back,front)"
        );
        assert!(LabelSelector::from_json(&json!({})).unwrap().is_empty());
    }

    #[test]
    fn json_selectors_of_another_shape_are_refused() {
        for (selector, text) in [
            (json!([]), "selector: not a label selector"),
            (json!({"matchLabels": []}), "matchLabels: not a label selector"),
            (json!({"matchLabels": {"a": 1}}), "matchLabels: not a label selector"),
            (json!({"matchExpressions": [1]}), "matchExpressions: not a label selector"),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
                "\"Like\" is not a valid label selector operator",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
                "unable to parse requirement: values: Invalid value: \"x\": values set must be \
                 empty for exists and does not exist",
            ),
        ] {
            assert_eq!(LabelSelector::from_json(&selector).unwrap_err().to_string(), text);
        }
    }
}
