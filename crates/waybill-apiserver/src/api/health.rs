//! `/readyz`, `/healthz` and `/livez`, and the checks behind them, in upstream's form.

use http::StatusCode;
use waybill_api::status::Status;

use super::Api;
use crate::{http::Answer, query::Query};

/// One check: its name, and what is wrong.
struct Check {
    name: &'static str,
    trouble: Option<String>,
    /// Not to be counted, as the client asks.
    excluded: bool,
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
        if let Some(wanted) = wanted {
            checks.retain(|check| check.name == wanted);
            if checks.is_empty() {
                return Some(Err(Status::no_such_path()));
            }
        }
        let mut unknown = Vec::new();
        for excluded in query.all("exclude").iter().filter(|_| wanted.is_none()) {
            match checks.iter_mut().find(|check| check.name == excluded) {
                Some(check) => check.excluded = true,
                None => unknown.push(format!("{excluded:?}")),
            }
        }
        Some(Ok(answer(endpoint, &checks, &unknown, query.flag("verbose"))))
    }

    /// A server that lives needs no restart; one that is ready can do what it is asked for.
    async fn checks(&self, endpoint: &str) -> Vec<Check> {
        let check = |name, trouble| Check { name, trouble, excluded: false };
        let mut checks = vec![check("ping", None)];
        if endpoint != "livez" {
            checks.push(check("store", self.reader.objects.trouble().await));
            checks.push(check("audit", self.recorder.trouble()));
            checks.push(check("caches", self.reader.objects.behind()));
        }
        checks
    }
}

/// Upstream's text. Why a check failed is in the log of the server: anybody may ask here.
fn answer(endpoint: &str, checks: &[Check], unknown: &[String], verbose: bool) -> Answer {
    let failed = checks.iter().any(|check| check.trouble.is_some() && !check.excluded);
    if !failed && !verbose {
        return Answer::text("ok");
    }
    let mut text = String::new();
    for Check { name, trouble, excluded } in checks {
        match trouble {
            _ if *excluded => text.push_str(&format!("[+]{name} excluded: ok\n")),
            None => text.push_str(&format!("[+]{name} ok\n")),
            Some(_) => text.push_str(&format!("[-]{name} failed: reason withheld\n")),
        }
    }
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        text.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {names}\n"
        ));
    }
    let outcome = if failed { "failed" } else { "passed" };
    text.push_str(&format!("{endpoint} check {outcome}\n"));
    let code = if failed { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Answer { code, ..Answer::text(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::AnswerBody;

    fn told(
        checks: &[(&'static str, bool, bool)],
        unknown: &[&str],
        verbose: bool,
    ) -> (u16, String) {
        let checks: Vec<_> = checks
            .iter()
            .map(|(name, fails, excluded)| Check {
                name,
                trouble: fails.then(|| "hunter2".to_owned()),
                excluded: *excluded,
            })
            .collect();
        let unknown: Vec<_> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let answer = answer("readyz", &checks, &unknown, verbose);
        let AnswerBody::Bytes(body) = answer.body else { panic!("a stream") };
        (answer.code.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn checks_are_told_as_upstream_does_and_no_reason_is() {
        assert_eq!(told(&[("ping", false, false)], &[], false), (200, "ok".to_owned()));
        let (code, text) = told(&[("ping", false, false), ("store", true, false)], &[], false);
        let lines = "[+]ping ok\n[-]store failed: reason withheld\nreadyz check failed\n";
        assert_eq!((code, text.as_str()), (500, lines));
        let (code, text) = told(&[("ping", false, false), ("store", true, true)], &["x"], true);
        let lines = "[+]ping ok\n[+]store excluded: ok\nwarn: some health checks cannot be excluded: \
                     no matches for \"x\"\nreadyz check passed\n";
        assert_eq!((code, text.as_str()), (200, lines));
    }
}
