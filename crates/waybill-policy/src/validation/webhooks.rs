//! Configurations of webhooks, of either kind.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    names::{label_faults, subdomain_faults},
};

use super::{
    FAILURE_POLICIES, MATCH_POLICIES, MOST_EXPRESSIONS, check_conditions, check_one_of,
    check_selector, list, read_at, rules::check_rule,
};
use crate::{
    config::{ClientConfig, ServiceReference, WebhookSpec},
    policy::compile_conditions,
};

const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const REINVOCATION: &[&str] = &["IfNeeded", "Never"];

/// Everything that is wrong with a ValidatingWebhookConfiguration.
pub fn validate_validating_webhooks(document: &Json) -> ErrorList {
    validate(document, false)
}

/// Everything that is wrong with a MutatingWebhookConfiguration.
pub fn validate_mutating_webhooks(document: &Json) -> ErrorList {
    validate(document, true)
}

fn validate(document: &Json, mutating: bool) -> ErrorList {
    let webhooks: Vec<WebhookSpec> = match read_at(document, "/webhooks", "webhooks") {
        Ok(webhooks) => webhooks,
        Err(errors) => return errors,
    };
    let root = FieldPath::new("webhooks");
    let mut errors = ErrorList::new();
    let expressions: usize = webhooks.iter().map(|webhook| webhook.match_conditions.len()).sum();
    if expressions > MOST_EXPRESSIONS {
        errors.push(FieldError::too_many(
            root.child("matchConditions"),
            expressions,
            MOST_EXPRESSIONS,
        ));
        return errors;
    }
    for (place, webhook) in webhooks.iter().enumerate() {
        let path = root.index(place);
        check_webhook(webhook, &path, &mut errors);
        if mutating {
            let policy = webhook.reinvocation_policy.as_deref();
            check_one_of(policy, REINVOCATION, path.child("reinvocationPolicy"), &mut errors);
        }
        check_versions(
            &webhook.admission_review_versions,
            &path.child("admissionReviewVersions"),
            &mut errors,
        );
        let earlier = webhooks.iter().take(place).any(|other| other.name == webhook.name);
        if earlier && !webhook.name.is_empty() {
            errors.push(FieldError::duplicate(path.child("name"), &webhook.name));
        }
    }
    errors
}

fn check_webhook(webhook: &WebhookSpec, path: &FieldPath, errors: &mut ErrorList) {
    check_qualified(&webhook.name, &path.child("name"), errors);
    for (place, rule) in webhook.rules.iter().enumerate() {
        check_rule(rule, &path.child("rules").index(place), errors);
    }
    let failure_policy = webhook.failure_policy.as_deref();
    check_one_of(failure_policy, FAILURE_POLICIES, path.child("failurePolicy"), errors);
    let match_policy = webhook.match_policy.as_deref();
    check_one_of(match_policy, MATCH_POLICIES, path.child("matchPolicy"), errors);
    let side_effects = path.child("sideEffects");
    match webhook.side_effects.as_deref() {
        None => {
            let text = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
            errors.push(FieldError::required(side_effects, text));
        }
        some => check_one_of(some, SIDE_EFFECTS, side_effects, errors),
    }
    if let Some(seconds) = webhook.timeout_seconds
        && !(1..=30).contains(&seconds)
    {
        let text = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(path.child("timeoutSeconds"), seconds, text));
    }
    if let Some(selector) = &webhook.namespace_selector {
        check_selector(selector, &path.child("namespaceSelector"), errors);
    }
    if let Some(selector) = &webhook.object_selector {
        check_selector(selector, &path.child("objectSelector"), errors);
    }
    check_client(&webhook.client_config, &path.child("clientConfig"), errors);
    let conditions = path.child("matchConditions");
    check_conditions(&webhook.match_conditions, &conditions, errors);
    compile_conditions(&webhook.match_conditions, false, &conditions, errors);
}

/// A name of at least three parts, such as `pods.policy.example.com`.
fn check_qualified(name: &str, path: &FieldPath, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(FieldError::required(path.clone(), ""));
        return;
    }
    let faults = subdomain_faults(name);
    if !faults.is_empty() {
        errors.push(FieldError::invalid(path.clone(), name, faults.join(",")));
        return;
    }
    if name.split('.').count() < 3 {
        let text = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path.clone(), name, text));
    }
}

fn check_versions(versions: &[String], path: &FieldPath, errors: &mut ErrorList) {
    const KNOWN: &str = "v1, v1beta1";
    if versions.is_empty() {
        let text = format!("must specify one of {KNOWN}");
        errors.push(FieldError::required(path.clone(), text));
        return;
    }
    for (place, version) in versions.iter().enumerate() {
        if versions.iter().take(place).any(|earlier| earlier == version) {
            errors.push(FieldError::invalid(path.index(place), version, "duplicate version"));
            continue;
        }
        let faults = label_faults(version);
        errors.extend(
            faults.into_iter().map(|fault| FieldError::invalid(path.index(place), version, fault)),
        );
    }
    if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let text = format!("must include at least one of {KNOWN}");
        errors.push(FieldError::invalid(path.clone(), list(versions), text));
    }
}

fn check_client(client: &ClientConfig, path: &FieldPath, errors: &mut ErrorList) {
    match (&client.url, &client.service) {
        (Some(url), None) => check_url(url, &path.child("url"), errors),
        (None, Some(service)) => check_service(service, &path.child("service"), errors),
        _ => {
            let text = "exactly one of url or service is required";
            errors.push(FieldError::required(path.clone(), text));
        }
    }
    // Upstream notices this only when it calls.
    if client.ca_bundle.as_deref().is_some_and(|bundle| STANDARD.decode(bundle).is_err()) {
        let text = "must be PEM in base64";
        errors.push(FieldError::invalid(path.child("caBundle"), "...", text));
    }
}

fn check_url(url: &str, path: &FieldPath, errors: &mut ErrorList) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut push = |value: &str, text: String| {
        errors.push(FieldError::invalid(path.clone(), value, text));
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        push(scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        push("", format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        // What is before an `@` may be a password.
        push("...", "user information is not permitted in the URL".to_owned());
    }
    if !fragment.is_empty() {
        push(fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !query.is_empty() {
        push(query, "query parameters are not permitted in the URL".to_owned());
    }
    if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        push(url, format!("url must be a valid URL{FORM}"));
    }
}

fn check_service(service: &ServiceReference, path: &FieldPath, errors: &mut ErrorList) {
    for (name, value) in [("name", &service.name), ("namespace", &service.namespace)] {
        if value.is_empty() {
            errors.push(FieldError::required(path.child(name), ""));
        }
    }
    if let Some(port) = service.port
        && !(1..=65535).contains(&port)
    {
        let text = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(path.child("port"), port, text));
    }
    let written = service.path.as_deref().unwrap_or_default();
    let path = path.child("path");
    if matches!(written, "" | "/") {
        return;
    }
    let Some(steps) = written.strip_prefix('/') else {
        errors.push(FieldError::invalid(path, written, "must start with a '/'"));
        return;
    };
    for (place, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            let text = format!("segment[{place}] may not be empty");
            errors.push(FieldError::invalid(path.clone(), written, text));
            continue;
        }
        for fault in subdomain_faults(step) {
            let text = format!("segment[{place}]: {fault}");
            errors.push(FieldError::invalid(path.clone(), written, text));
        }
    }
}
