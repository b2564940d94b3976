//! Images as the runtime describes them.

use std::collections::BTreeMap;

use serde_json::Value;
use waybill_proto::cri::Image;

/// Under this name runtimes tell more of an image, as JSON.
const INFO: &str = "info";

/// An image that is here.
#[derive(Clone, Debug)]
pub(crate) struct FoundImage {
    pub(crate) image: Image,
    /// The names of its variables in their order; `None` if the runtime does not tell them.
    pub(crate) variables: Option<Vec<String>>,
}

impl FoundImage {
    /// Of a verbose status.
    pub(super) fn new(image: Image, info: &BTreeMap<String, String>) -> Self {
        Self { image, variables: variables(info) }
    }
}

/// CRI leaves to the runtime what it tells. containerd, CRI-O and ours show the configuration of the
/// image as `imageSpec`; ours has no values in it, and those of others are not looked at.
fn variables(info: &BTreeMap<String, String>) -> Option<Vec<String>> {
    let info: Value = serde_json::from_str(info.get(INFO)?).ok()?;
    let config = match info.get("imageSpec")?.as_object()?.get("config") {
        None | Some(Value::Null) => return Some(Vec::new()),
        Some(config) => config.as_object()?,
    };
    match config.get("Env") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(variables) => variables.as_array()?.iter().map(name).collect(),
    }
}

fn name(variable: &Value) -> Option<String> {
    let text = variable.as_str()?;
    Some(text.split_once('=').map_or(text, |(name, _)| name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(info: &str, expected: Option<&[&str]>) {
        let info = BTreeMap::from([(INFO.to_owned(), info.to_owned())]);
        let expected =
            expected.map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(variables(&info), expected, "{info:?}");
    }

    #[test]
    fn names_are_found_where_runtimes_tell_them() {
        let containerd = r#"{"chainID": "sha256:1", "imageSpec": {"architecture": "amd64", "config": {
            "Env": ["PATH=/bin:/usr/bin", "EMPTY=", "A=b=c"], "Cmd": ["sh"]}, "os": "linux"}}"#;
        check(containerd, Some(&["PATH", "EMPTY", "A"]));
        check(r#"{"imageSpec": {"config": {"Env": ["PATH", "A"]}}}"#, Some(&["PATH", "A"]));
    }

    #[test]
    fn an_image_may_have_none() {
        check(r#"{"imageSpec": {"config": {"Cmd": ["sh"]}}}"#, Some(&[]));
        check(r#"{"imageSpec": {"config": {"Env": null}}}"#, Some(&[]));
        check(r#"{"imageSpec": {"os": "linux"}}"#, Some(&[]));
    }

    #[test]
    fn what_is_not_told_is_not_guessed() {
        assert_eq!(variables(&BTreeMap::new()), None);
        for info in ["", "no JSON", "{}", "[]", r#"{"imageSpec": 1}"#] {
            check(info, None);
        }
        check(r#"{"imageSpec": {"config": []}}"#, None);
        check(r#"{"imageSpec": {"config": {"Env": [1]}}}"#, None);
        check(r#"{"imageSpec": {"config": {"Env": "A=b"}}}"#, None);
    }
}
