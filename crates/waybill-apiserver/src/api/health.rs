//! `/readyz`, `/healthz` and `/livez`, and the checks behind them, in upstream's form.

use http::StatusCode;
use waybill_api::status::Status;

use super::Api;
use crate::{http::Answer, query::Query};

/// One check: its name, and what is wrong.
struct Check {
    name: &'static str,
    trouble: Option<String>,
}

impl Api {
    /// The answer to a path below one of the three; `None` if there is no such check.
    pub(super) async fn health(&self, path: &str, query: &Query) -> Option<Result<Answer, Status>> {
        let (endpoint, wanted) = match path.trim_matches('/').split_once('/') {
            Some((endpoint, check)) => (endpoint, Some(check)),
            None => (path.trim_matches('/'), None),
        };
        if !matches!(endpoint, "healthz" | "livez" | "readyz") {
            return None;
        }
        let mut checks = self.checks(endpoint).await;
        let excluded = query.all("exclude");
        checks.retain(|check| match wanted {
            Some(wanted) => check.name == wanted,
            None => !excluded.iter().any(|excluded| excluded == check.name),
        });
        if wanted.is_some() && checks.is_empty() {
            return Some(Err(Status::no_such_path()));
        }
        Some(Ok(answer(endpoint, &checks, query.flag("verbose"))))
    }

    /// A server that lives needs no restart; one that is ready can do what it is asked for.
    async fn checks(&self, endpoint: &str) -> Vec<Check> {
        let mut checks = vec![Check { name: "ping", trouble: None }];
        if endpoint != "livez" {
            let store = self.reader.objects.trouble().await;
            checks.push(Check { name: "store", trouble: store });
            checks.push(Check { name: "audit", trouble: self.recorder.trouble() });
        }
        checks
    }
}

/// Upstream's text. Why a check failed is in the log of the server: anybody may ask here.
fn answer(endpoint: &str, checks: &[Check], verbose: bool) -> Answer {
    let failed = checks.iter().any(|check| check.trouble.is_some());
    if !failed && !verbose {
        return Answer::text("ok");
    }
    let mut text = String::new();
    for Check { name, trouble } in checks {
        match trouble {
            None => text.push_str(&format!("[+]{name} ok\n")),
            Some(_) => text.push_str(&format!("[-]{name} failed: reason withheld\n")),
        }
    }
    let outcome = if failed { "failed" } else { "passed" };
    text.push_str(&format!("{endpoint} check {outcome}\n"));
    let code = if failed { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Answer { code, ..Answer::text(text) }
}
