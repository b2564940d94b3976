//! The row of an event, of the core group or of `events.k8s.io`.
//!
//! Both groups show one stored kind; the newer one renames fields and puts `deprecated` before
//! others. What the first name does not give, the second does.

use jiff::Timestamp;
use serde_json::Value;

use crate::table::{
    Table,
    age::since,
    cells::name,
    columns::{self, Column},
    read::{number, text, time},
};

pub(super) const TABLE: Table = Table {
    columns: &[
        Column::new("Last Seen", "When the event happened last."),
        Column::new("Type", "Normal or Warning."),
        Column::new("Reason", "Why the event happened, in a word."),
        Column::new("Object", "What the event is about."),
        Column::new("Subobject", "Which part of the object it is about.").wide(),
        Column::new("Source", "Who reported it.").wide(),
        Column::new("Message", "What happened."),
        Column::new("First Seen", "When the event happened first.").wide(),
        Column::new("Count", "How often it happened.").wide(),
        columns::NAME.wide(),
    ],
    cells,
    ..Table::PLAIN
};

/// The cells of `event`.
fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let seen = |pointers: &[&str]| pointers.iter().find_map(|at| time(event, at));
    let first = seen(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let (last, count) = match event.get("series").filter(|series| series.is_object()) {
        Some(series) => (time(series, "/lastObservedTime"), number(series, "/count")),
        None => {
            let last = seen(&["/lastTimestamp", "/deprecatedLastTimestamp"]).or(first);
            let count = number(event, "/count").max(number(event, "/deprecatedCount"));
            (last, count.max(1))
        }
    };
    vec![
        since(last, now).into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        subject(event).into(),
        either(event, "/involvedObject/fieldPath", "/regarding/fieldPath").into(),
        source(event).into(),
        either(event, "/message", "/note").trim().into(),
        since(first, now).into(),
        count.into(),
        name(event),
    ]
}

fn subject(event: &Value) -> String {
    let kind = either(event, "/involvedObject/kind", "/regarding/kind").to_lowercase();
    match either(event, "/involvedObject/name", "/regarding/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// The component and, if known, the machine or instance it runs on.
fn source(event: &Value) -> String {
    let reporter = either(event, "/reportingComponent", "/reportingController");
    let component = either(event, "/source/component", "/deprecatedSource/component");
    let component = if component.is_empty() { reporter } else { component };
    let host = either(event, "/source/host", "/deprecatedSource/host");
    let host = if host.is_empty() { text(event, "/reportingInstance") } else { host };
    match host {
        "" => component.to_owned(),
        _ => format!("{component}, {host}"),
    }
}

fn either<'a>(event: &'a Value, first: &str, second: &str) -> &'a str {
    match text(event, first) {
        "" => text(event, second),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(event: &Value, expected: &Value) {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(&Value::from(cells(event, now)), expected);
    }

    #[test]
    fn an_event_of_the_core_group() {
        check(
            &json!({
                "metadata": {"name": "web.1"},
                "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{a}"},
                "source": {"component": "kubelet", "host": "n1"},
                "type": "Warning",
                "reason": "BackOff",
                "message": " Back-off restarting \n",
                "firstTimestamp": "2026-01-01T00:00:00Z",
                "lastTimestamp": "2026-01-01T00:59:55Z",
                "eventTime": null,
                "count": 7,
            }),
            &json!([
                "5s",
                "Warning",
                "BackOff",
                "pod/web",
                "spec.containers{a}",
                "kubelet, n1",
                "Back-off restarting",
                "60m",
                7,
                "web.1",
            ]),
        );
    }

    #[test]
    fn an_event_of_the_newer_group_with_a_series() {
        check(
            &json!({
                "metadata": {"name": "web.1"},
                "regarding": {"kind": "Node"},
                "reportingController": "scheduler",
                "reportingInstance": "s-0",
                "note": "busy",
                "eventTime": "2026-01-01T00:58:00.000000Z",
                "series": {"count": 3, "lastObservedTime": "2026-01-01T00:59:00.123456Z"},
            }),
            &json!(["59s", "", "", "node", "", "scheduler, s-0", "busy", "2m", 3, "web.1"]),
        );
    }

    #[test]
    fn an_event_happened_once_at_least() {
        check(
            &json!({"eventTime": "2026-01-01T00:59:00Z"}),
            &json!(["60s", "", "", "", "", "", "", "60s", 1, ""]),
        );
    }
}
