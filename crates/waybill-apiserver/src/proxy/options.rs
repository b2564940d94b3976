//! Options of the pod subresources that a node serves, besides `PodExecOptions`.
//!
//! They are decoded from the query by name; parameters that we do not know are ignored, as by
//! Kubernetes. An absent option and one that is set to nothing are the same.

use std::{borrow::Cow, fmt, str::FromStr};

use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use waybill_api::field::{ErrorList, FieldError, FieldPath};

/// The options of `pods/attach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct PodAttachOptions {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
    /// The container; empty means the pod's only or default one.
    pub(crate) container: String,
}

impl PodAttachOptions {
    pub(crate) fn from_query(query: &str) -> Result<Self, OptionError> {
        Ok(Self {
            stdin: flag(query, "stdin")?,
            stdout: flag(query, "stdout")?,
            stderr: flag(query, "stderr")?,
            tty: flag(query, "tty")?,
            container: text(query, "container")?.unwrap_or_default(),
        })
    }
}

/// The options of `pods/portforward`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct PodPortForwardOptions {
    /// Empty over SPDY, where each stream names its port.
    pub(crate) ports: Vec<u16>,
}

impl PodPortForwardOptions {
    /// Ports may stand in one parameter with commas or in several, as the kubelet reads them.
    pub(crate) fn from_query(query: &str) -> Result<Self, OptionError> {
        let mut ports = Vec::new();
        for text in texts(query, "ports") {
            for port in text?.split(',') {
                match port.parse() {
                    Ok(0) | Err(_) => return Err(OptionError::new("ports", "is not a port")),
                    Ok(port) => ports.push(port),
                }
            }
        }
        Ok(Self { ports })
    }
}

/// The options of `nodes/proxy`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct NodeProxyOptions {
    pub(crate) path: String,
}

/// The options of `pods/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodLogOptions {
    /// The container; empty means the pod's only or default one.
    pub(crate) container: String,
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    pub(crate) timestamps: bool,
    pub(crate) since_seconds: Option<i64>,
    pub(crate) since_time: Option<Timestamp>,
    pub(crate) tail_lines: Option<i64>,
    pub(crate) limit_bytes: Option<i64>,
    pub(crate) stream: Option<String>,
    pub(crate) insecure_skip_tls_verify_backend: bool,
}

impl PodLogOptions {
    pub(crate) fn from_query(query: &str) -> Result<Self, OptionError> {
        Ok(Self {
            container: text(query, "container")?.unwrap_or_default(),
            follow: flag(query, "follow")?,
            previous: flag(query, "previous")?,
            timestamps: flag(query, "timestamps")?,
            since_seconds: parsed(query, "sinceSeconds", "is not a number")?,
            since_time: parsed(query, "sinceTime", "is not a time of RFC 3339")?,
            tail_lines: parsed(query, "tailLines", "is not a number")?,
            limit_bytes: parsed(query, "limitBytes", "is not a number")?,
            stream: text(query, "stream")?.filter(|stream| !stream.is_empty()),
            insecure_skip_tls_verify_backend: flag(query, "insecureSkipTLSVerifyBackend")?,
        })
    }

    /// Everything that is wrong with the options; upstream's rules and texts.
    pub(crate) fn validate(&self) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = FieldPath::new;
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            errors.push(FieldError::invalid(path("tailLines"), lines.to_string(), NOT_NEGATIVE));
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.push(FieldError::invalid(path("limitBytes"), bytes.to_string(), POSITIVE));
        }
        match (self.since_seconds, self.since_time) {
            (Some(_), Some(_)) => {
                errors.push(FieldError::forbidden(path("sinceSeconds"), ONE_SINCE));
            }
            (Some(seconds), None) if seconds < 1 => {
                let seconds = seconds.to_string();
                errors.push(FieldError::invalid(path("sinceSeconds"), seconds, POSITIVE));
            }
            (Some(_) | None, None) | (None, Some(_)) => {}
        }
        errors.extend(self.stream_fault());
        if self.insecure_skip_tls_verify_backend {
            let path = path("insecureSkipTLSVerifyBackend");
            errors.push(FieldError::forbidden(path, "nodes are always verified"));
        }
        errors
    }

    /// The parameters that the kubelet reads.
    pub(super) fn kubelet_parameters(&self) -> impl Iterator<Item = (&'static str, String)> {
        let flag = |set: bool| set.then(|| "true".to_owned());
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        [
            ("follow", flag(self.follow)),
            ("previous", flag(self.previous)),
            ("timestamps", flag(self.timestamps)),
            ("sinceSeconds", number(self.since_seconds)),
            ("sinceTime", self.since_time.map(|time| time.to_string())),
            ("tailLines", number(self.tail_lines)),
            ("limitBytes", number(self.limit_bytes)),
            ("stream", self.stream.clone()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    fn stream_fault(&self) -> Option<FieldError> {
        let stream = self.stream.as_deref()?;
        let path = FieldPath::new("stream");
        match stream {
            "All" => None,
            "Stdout" | "Stderr" if self.tail_lines.is_some() => {
                Some(FieldError::forbidden(FieldPath::new("tailLines"), TAIL_OF_ONE))
            }
            "Stdout" | "Stderr" => None,
            _ => Some(FieldError::not_supported(path, stream, &["All", "Stderr", "Stdout"])),
        }
    }
}

/// A query that cannot be decoded; the edge answers 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("query parameter {parameter} {fault}")]
pub(crate) struct OptionError {
    parameter: &'static str,
    fault: &'static str,
}

impl OptionError {
    fn new(parameter: &'static str, fault: &'static str) -> Self {
        Self { parameter, fault }
    }
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

const ONE_SINCE: &str = "at most one of `sinceTime` or `sinceSeconds` may be specified";

const POSITIVE: &str = "must be greater than 0";

const TAIL_OF_ONE: &str = "`tailLines` and specific `stream` are mutually exclusive for now";

/// Set to nothing is true, and so is everything but `0` and `false`, as Kubernetes' codec reads it.
fn flag(query: &str, parameter: &'static str) -> Result<bool, OptionError> {
    let text = text(query, parameter)?;
    Ok(text.is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false")))
}

fn parsed<T: FromStr>(
    query: &str,
    parameter: &'static str,
    fault: &'static str,
) -> Result<Option<T>, OptionError>
where
    T::Err: fmt::Display,
{
    match text(query, parameter)?.filter(|text| !text.is_empty()) {
        Some(text) => text.parse().map(Some).map_err(|_| OptionError::new(parameter, fault)),
        None => Ok(None),
    }
}

fn text(query: &str, parameter: &'static str) -> Result<Option<String>, OptionError> {
    texts(query, parameter).next().transpose()
}

/// The values of `parameter` in order, decoded.
fn texts(
    query: &str,
    parameter: &'static str,
) -> impl Iterator<Item = Result<String, OptionError>> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(move |(name, _)| decode(name).is_ok_and(|name| name == parameter))
        .map(move |(_, value)| {
            let not_text = |_| OptionError::new(parameter, "is not UTF-8");
            decode(value).map(Cow::into_owned).map_err(not_text)
        })
}

fn decode(text: &str) -> Result<Cow<'_, str>, std::str::Utf8Error> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8()?.into_owned();
        return Ok(Cow::Owned(decoded));
    }
    percent_decode_str(text).decode_utf8()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &[&str]) {
        let errors = PodLogOptions::from_query(query).unwrap().validate();
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{query}");
    }

    #[test]
    fn log_options_follow_the_rules_of_upstream() {
        check("", &[]);
        check("tailLines=0&limitBytes=1&sinceSeconds=1&stream=All", &[]);
        check(
            "tailLines=-1&limitBytes=0&sinceSeconds=0",
            &[
                "tailLines: Invalid value: \"-1\": must be greater than or equal to 0",
                "limitBytes: Invalid value: \"0\": must be greater than 0",
                "sinceSeconds: Invalid value: \"0\": must be greater than 0",
            ],
        );
        check(
            "sinceSeconds=5&sinceTime=2026-08-01T10:00:00Z",
            &["sinceSeconds: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be \
               specified"],
        );
        check(
            "stream=Stderr&tailLines=5",
            &["tailLines: Forbidden: `tailLines` and specific `stream` are mutually exclusive \
               for now"],
        );
        check(
            "stream=both",
            &["stream: Unsupported value: \"both\": supported values: \"All\", \"Stderr\", \
               \"Stdout\""],
        );
        check(
            "insecureSkipTLSVerifyBackend=true",
            &["insecureSkipTLSVerifyBackend: Forbidden: nodes are always verified"],
        );
    }

    #[test]
    fn what_cannot_be_decoded_is_named() {
        let fault = |query| PodLogOptions::from_query(query).unwrap_err().to_string();
        assert_eq!(fault("tailLines=x"), "query parameter tailLines is not a number");
        assert_eq!(fault("sinceTime=now"), "query parameter sinceTime is not a time of RFC 3339");
        assert_eq!(fault("container=%ff"), "query parameter container is not UTF-8");
        for query in ["ports=0", "ports=65536", "ports=", "ports=80,x"] {
            let error = PodPortForwardOptions::from_query(query).unwrap_err();
            assert_eq!(error.to_string(), "query parameter ports is not a port", "{query}");
        }
        let options = PodPortForwardOptions::from_query("ports=80%2C443&ports=1").unwrap();
        assert_eq!(options.ports, [80, 443, 1]);
    }
}
