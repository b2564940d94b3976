//! Probes and lifecycle hooks.

use waybill_api::{field::ErrorList, names::port_name_faults};

use super::container::{PORT_RANGE, is_port};
use crate::kinds::document::Field;

/// The probes and hooks of `container`.
pub(super) fn check_container(
    spec: Field<'_, '_>,
    container: Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let grace = spec.get("terminationGracePeriodSeconds").number();
    let lifecycle = container.get("lifecycle");
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.get(hook);
        if hook.is_set() {
            check_handler(hook, &["exec", "httpGet", "tcpSocket", "sleep"], grace, errors);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(name);
        if probe.is_set() {
            check_probe(name, probe, grace, errors);
        }
    }
}

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

fn check_probe(name: &str, probe: Field<'_, '_>, grace: Option<i64>, errors: &mut ErrorList) {
    check_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace, errors);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        let field = probe.get(field);
        if field.number().is_some_and(i64::is_negative) {
            errors.push(field.invalid(NOT_NEGATIVE));
        }
    }
    let own = probe.get("terminationGracePeriodSeconds");
    if own.number().is_some_and(|seconds| seconds <= 0) {
        errors.push(own.invalid("must be greater than 0"));
    }
    let successes = probe.get("successThreshold");
    if name == "readinessProbe" {
        if own.is_set() {
            errors.push(own.invalid("must not be set for readinessProbes"));
        }
    } else if successes.number() != Some(1) {
        errors.push(successes.invalid("must be 1"));
    }
}

/// Exactly one of `kinds` must be there.
fn check_handler(
    handler: Field<'_, '_>,
    kinds: &[&str],
    grace: Option<i64>,
    errors: &mut ErrorList,
) {
    let mut found = false;
    for kind in kinds {
        let action = handler.get(kind);
        if !action.is_set() {
            continue;
        }
        if found {
            errors.push(action.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        check_action(kind, action, grace, errors);
    }
    if !found {
        errors.push(handler.required("must specify a handler type"));
    }
}

fn check_action(kind: &str, action: Field<'_, '_>, grace: Option<i64>, errors: &mut ErrorList) {
    match kind {
        "exec" => {
            if action.get("command").is_empty() {
                errors.push(action.get("command").required(""));
            }
        }
        "httpGet" => check_http_get(action, errors),
        "sleep" => {
            let seconds = action.get("seconds").number().unwrap_or_default();
            if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                let detail = format!(
                    "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                );
                errors.push(action.invalid_as(seconds, detail));
            }
        }
        _ => check_port(action.get("port"), errors),
    }
}

fn check_http_get(action: Field<'_, '_>, errors: &mut ErrorList) {
    if action.get("path").is_empty() {
        errors.push(action.get("path").required(""));
    }
    check_port(action.get("port"), errors);
    let scheme = action.get("scheme");
    if !["HTTP", "HTTPS"].contains(&scheme.text()) {
        errors.push(scheme.not_supported(&["HTTP", "HTTPS"]));
    }
    let headers = action.get("httpHeaders");
    for header in headers.items() {
        let name = header.get("name").text();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            errors.push(headers.invalid_as(name, HEADER_RULE));
        }
    }
}

const HEADER_RULE: &str = "a valid HTTP header must consist of alphanumeric characters or '-' \
    (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";

/// A port by number or by name.
fn check_port(port: Field<'_, '_>, errors: &mut ErrorList) {
    if port.value().is_string() {
        errors.extend(port.all_invalid(port_name_faults(port.text())));
    } else if !port.number().is_some_and(is_port) {
        errors.push(port.invalid_as(port.number().unwrap_or_default(), PORT_RANGE));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::check_container;

    #[track_caller]
    fn check_probe(probe: &Value, expected: &[&str]) {
        check_container(&json!({"livenessProbe": probe}), expected);
    }

    const PROBE: &str = "spec.containers[0].livenessProbe";

    #[test]
    fn a_probe_does_exactly_one_thing() {
        check_probe(&json!({"exec": {"command": ["true"]}}), &[]);
        check_probe(&json!({"httpGet": {"port": "http"}}), &[]);
        check_probe(&json!({"grpc": {"port": 80}, "periodSeconds": 0}), &[]);
        check_probe(
            &json!({}),
            &[&format!("{PROBE}: Required value: must specify a handler type")],
        );
        check_probe(&json!({"exec": {}}), &[&format!("{PROBE}.exec.command: Required value")]);
        check_probe(
            &json!({"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}),
            &[&format!("{PROBE}.tcpSocket: Forbidden: may not specify more than 1 handler type")],
        );
    }

    #[test]
    fn ports_schemes_and_headers() {
        check_probe(
            &json!({"httpGet": {"port": 0, "scheme": "FTP", "httpHeaders": [{"name": "a b"}]}}),
            &[
                &format!("{PROBE}.httpGet.port: Invalid value: 0: must be between 1 and 65535, i"),
                &format!("{PROBE}.httpGet.scheme: Unsupported value: \"FTP\": supported values: "),
                &format!("{PROBE}.httpGet.httpHeaders: Invalid value: \"a b\": a valid HTTP head"),
            ],
        );
    }

    #[test]
    fn numbers() {
        check_probe(
            &json!({"tcpSocket": {"port": 1}, "periodSeconds": -1, "successThreshold": 2,
                "terminationGracePeriodSeconds": 0}),
            &[
                &format!("{PROBE}.periodSeconds: Invalid value: -1: must be greater than or equal"),
                &format!("{PROBE}.terminationGracePeriodSeconds: Invalid value: 0: must be greate"),
                &format!("{PROBE}.successThreshold: Invalid value: 2: must be 1"),
            ],
        );
        let probe = json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 1,
            "successThreshold": 2});
        check_container(
            &json!({"readinessProbe": probe}),
            &[
                "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: mu",
            ],
        );
    }

    #[test]
    fn hooks() {
        check_container(&json!({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}), &[]);
        check_container(
            &json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}, "postStart": {}}}),
            &[
                "spec.containers[0].lifecycle.postStart: Required value: must specify a handler",
                "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-nega",
            ],
        );
    }
}
