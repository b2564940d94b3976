//! What sinks hear, and what Prometheus shows.

use std::{io, time::Instant};

use prometheus_client::{encoding::text::encode, registry::Registry};

use super::*;
use crate::Clock;

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[track_caller]
fn shows(registry: &Registry, line: &str) {
    let text = text(registry);
    assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
}

/// CRED-44
#[test]
fn the_earliest_certificate_counts_and_none_is_infinite_cred_44_47() {
    let events = Events::default();
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    events.set_expiry(1, at(100));
    // A sink that comes later hears of what there is.
    let mut registry = Registry::default();
    events.add_sink(Arc::new(PrometheusSink::register(&mut registry, Arc::new(Fixed))));
    shows(&registry, "rest_client_exec_plugin_ttl_seconds 100.0");
    events.set_expiry(2, at(-7));
    shows(&registry, "rest_client_exec_plugin_ttl_seconds -7.0");
    events.set_expiry(2, None);
    shows(&registry, "rest_client_exec_plugin_ttl_seconds 100.0");
    events.set_expiry(1, None);
    shows(&registry, "rest_client_exec_plugin_ttl_seconds inf");
}

/// CRED-45
#[test]
fn ages_fall_into_upstreams_buckets_cred_45() {
    let mut registry = Registry::default();
    let sink = PrometheusSink::register(&mut registry, Arc::new(Fixed));
    sink.observe_rotation_age(Duration::from_hours(1));
    let text = text(&registry);
    let bucket = |edge, count| {
        let line = format!(
            "rest_client_exec_plugin_certificate_rotation_age_bucket{{le=\"{edge}\"}} {count}"
        );
        assert!(text.contains(&line), "{line} is not in\n{text}");
    };
    for edge in ["600.0", "1800.0"] {
        bucket(edge, 0);
    }
    for edge in [
        "3600.0",
        "14400.0",
        "86400.0",
        "604800.0",
        "2592000.0",
        "7776000.0",
        "15552000.0",
        "31104000.0",
        "124416000.0",
    ] {
        bucket(edge, 1);
    }
}

/// CRED-46
#[test]
fn calls_are_counted_by_code_and_kind_cred_46() {
    let mut registry = Registry::default();
    let sink = PrometheusSink::register(&mut registry, Arc::new(Fixed));
    let command = || "c".to_owned();
    let missing = PluginError::NotFound { command: command(), help: String::new() };
    let start = PluginError::Start { command: command(), cause: io::ErrorKind::Other.into() };
    let slow = PluginError::Timeout { command: command(), limit: Duration::from_secs(1) };
    let failed = PluginError::Exit { command: command(), code: 3 };
    for run in [Ok(()), Err(&failed), Err(&missing), Err(&start), Err(&slow)] {
        let (code, status) = CallStatus::of(run).unwrap();
        sink.count_call(code, status);
    }
    for (code, status, count) in [
        (0, "no_error", 1),
        (3, "plugin_execution_error", 1),
        (1, "plugin_not_found_error", 1),
        (1, "client_internal_error", 2),
    ] {
        let line = format!(
            "rest_client_exec_plugin_call_total{{code=\"{code}\",call_status=\"{status}\"}} {count}"
        );
        shows(&registry, &line);
    }
    assert_eq!(CallStatus::of(Err(&PluginError::Denied { command: command() })), None);
}

/// CRED-46: a plugin that is not found, or has nobody to talk to, was compared with nothing.
#[test]
fn verdicts_of_the_policy_are_counted_cred_46() {
    let mut registry = Registry::default();
    let events = Events::default();
    events.add_sink(Arc::new(PrometheusSink::register(&mut registry, Arc::new(Fixed))));
    let command = || "c".to_owned();
    let denied = PluginError::Denied { command: command() };
    let failed = PluginError::Exit { command: command(), code: 3 };
    let missing = PluginError::NotFound { command: command(), help: String::new() };
    for run in [Ok(()), Err(&failed), Err(&denied), Err(&missing)] {
        if let Some(allowed) = policy_verdict(run) {
            events.count_policy_check(allowed);
        }
    }
    for (allowed, denied, count) in [(true, false, 2), (false, true, 1)] {
        let line = format!(
            "rest_client_exec_plugin_policy_call_total{{allowed=\"{allowed}\",denied=\"{denied}\"}} {count}"
        );
        shows(&registry, &line);
    }
}
