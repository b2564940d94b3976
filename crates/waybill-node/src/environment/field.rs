//! Fields of the pod and its node, as `fieldRef` names them.

use std::collections::BTreeMap;

use waybill_api::pod::ObjectFieldSelector;

use super::node::NodeFacts;
use crate::pod::Pod;

/// A path that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPath<'p> {
    text: &'p str,
    field: Field<'p>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field<'p> {
    Annotation(&'p str),
    Annotations,
    HostIp,
    HostIps,
    Label(&'p str),
    Labels,
    Name,
    Namespace,
    NodeName,
    PodIp,
    PodIps,
    ServiceAccountName,
    Uid,
}

impl<'p> FieldPath<'p> {
    pub(crate) fn parse(selector: &'p ObjectFieldSelector) -> Result<Self, FieldError> {
        if selector.api_version != "v1" {
            return Err(FieldError::Version { version: selector.api_version.clone() });
        }
        Self::parse_path(&selector.field_path)
    }

    pub(crate) fn parse_path(text: &'p str) -> Result<Self, FieldError> {
        let subscript = |field: &str| -> Option<&'p str> {
            text.strip_prefix(field)?.strip_prefix("['")?.strip_suffix("']")
        };
        let field = match text {
            "metadata.annotations" => Field::Annotations,
            "metadata.labels" => Field::Labels,
            "metadata.name" => Field::Name,
            "metadata.namespace" => Field::Namespace,
            "metadata.uid" => Field::Uid,
            "spec.nodeName" | "spec.host" => Field::NodeName,
            "spec.serviceAccountName" => Field::ServiceAccountName,
            "status.hostIP" => Field::HostIp,
            "status.hostIPs" => Field::HostIps,
            "status.podIP" => Field::PodIp,
            "status.podIPs" => Field::PodIps,
            _ => match (subscript("metadata.annotations"), subscript("metadata.labels")) {
                (Some(key), _) => Field::Annotation(key),
                (_, Some(key)) => Field::Label(key),
                _ => return Err(FieldError::Path { path: text.to_owned() }),
            },
        };
        Ok(Self { text, field })
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &'p str {
        self.text
    }

    /// Whether a volume may hold it: addresses change, and files of volumes are written before there are any.
    pub(crate) fn is_metadata(&self) -> bool {
        self.text.starts_with("metadata.")
    }

    pub(crate) fn look_up(
        &self,
        pod: &Pod,
        node: &NodeFacts,
        pod_ips: &[String],
    ) -> Result<String, FieldError> {
        let metadata = &pod.object().metadata;
        let value = |map: &Option<BTreeMap<String, String>>, key: &str| {
            map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default()
        };
        let host_network = pod.spec().host_network == Some(true);
        let pod_ips = if pod_ips.is_empty() && host_network { &node.addresses } else { pod_ips };
        Ok(match self.field {
            Field::Annotation(key) => value(&metadata.annotations, key),
            Field::Annotations => format_map(metadata.annotations.iter().flatten()),
            Field::HostIp => node.addresses.first().cloned().ok_or(FieldError::NoHostIp)?,
            Field::HostIps => match node.addresses.join(",") {
                none if none.is_empty() => return Err(FieldError::NoHostIp),
                addresses => addresses,
            },
            Field::Label(key) => value(&metadata.labels, key),
            Field::Labels => format_map(metadata.labels.iter().flatten()),
            Field::Name => pod.name().to_owned(),
            Field::Namespace => pod.namespace().to_owned(),
            Field::NodeName => node.name.clone(),
            Field::PodIp => pod_ips.first().cloned().unwrap_or_default(),
            Field::PodIps => pod_ips.join(","),
            Field::ServiceAccountName => {
                pod.spec().service_account_name.clone().unwrap_or_default()
            }
            Field::Uid => pod.uid().as_str().to_owned(),
        })
    }
}

/// One line for each entry, the value in quotes, as Kubernetes writes maps into files.
fn format_map<'m>(map: impl Iterator<Item = (&'m String, &'m String)>) -> String {
    let lines: Vec<_> = map.map(|(key, value)| format!("{key}={}", quote(value))).collect();
    lines.join("\n")
}

/// A quoted string of Go.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0c' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x0b' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Why a field has no value; the texts are those of kubelets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldError {
    #[error("failed to get host IPs: the node has no address")]
    NoHostIp,
    #[error("field label not supported: {path}")]
    Path { path: String },
    #[error("unsupported pod version: {version}")]
    Version { version: String },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::testing::{node, pod};

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let pod = pod(json!({"containers": []}));
        let path = FieldPath::parse_path(path).unwrap();
        assert_eq!(path.look_up(&pod, &node(), &[]).unwrap(), expected);
    }

    /// As Go quotes strings, which is how kubelets write these files.
    #[test]
    fn whole_maps_are_lines_of_quoted_values() {
        check("metadata.labels", "app=\"web\"\ntier=\"a\\\"b\\\\c\\nd\\x7f\"");
        check("metadata.annotations", "note=\"hello\"");
    }

    #[test]
    fn quoting_keeps_what_can_be_printed() {
        assert_eq!(quote("é 😀"), "\"é 😀\"");
        assert_eq!(quote("\u{7}\u{8}\u{b}\u{c}\r\t\u{1b}"), r#""\a\b\v\f\r\t\x1b""#);
        assert_eq!(quote("\u{85}\u{a0}\u{2028}"), r#""\u0085\u00a0\u2028""#);
    }

    #[test]
    fn subscripts_need_their_quotes() {
        for path in
            ["metadata.labels[app]", "metadata.labels['app'", "metadata.labelsapp", "", "metadata"]
        {
            assert_eq!(
                FieldPath::parse_path(path),
                Err(FieldError::Path { path: path.to_owned() }),
                "{path}"
            );
        }
        assert!(FieldPath::parse_path("metadata.labels['a/b']").unwrap().is_metadata());
        assert!(!FieldPath::parse_path("status.podIP").unwrap().is_metadata());
    }

    #[test]
    fn a_node_without_address_says_so() {
        let pod = pod(json!({"containers": []}));
        let node = NodeFacts { addresses: Vec::new(), ..node() };
        for path in ["status.hostIP", "status.hostIPs"] {
            let path = FieldPath::parse_path(path).unwrap();
            assert_eq!(path.look_up(&pod, &node, &[]), Err(FieldError::NoHostIp));
        }
    }
}
