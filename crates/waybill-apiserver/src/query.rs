//! The query parameters that verbs understand.

use std::{collections::HashMap, time::Duration};

use waybill_api::status::Status;

/// The decoded parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Query(HashMap<String, Vec<String>>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let mut parameters: HashMap<String, Vec<String>> = HashMap::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            parameters.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        Self(parameters)
    }

    /// The first value of `name`, or nothing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }

    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether `name` is there, with whatever value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A flag as Kubernetes reads it: there, and neither `0` nor `false`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.text(name), "0" | "false" | "False" | "FALSE")
    }

    /// A number that may be negative; one beyond what can be meant is the outermost.
    pub(crate) fn signed(&self, name: &str) -> Result<Option<i64>, Status> {
        match self.text(name).strip_prefix('-') {
            None => {
                let number = self.number(name)?;
                Ok(number.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
            }
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(Some(digits.parse::<i64>().map_or(i64::MIN, |number| -number)))
            }
            Some(_) => Err(not_a_number(name)),
        }
    }

    /// A number; one that is larger than any that can be meant is the largest.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        match self.text(name) {
            "" => Ok(None),
            text if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Some(text.parse().unwrap_or(u64::MAX)))
            }
            _ => Err(not_a_number(name)),
        }
    }

    /// A time as Go writes it, such as `30s`; one below zero is none.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<Duration>, Status> {
        match self.text(name) {
            "" => Ok(None),
            text => parse_duration(text).map(Some).ok_or_else(|| {
                // Upstream's words.
                Status::bad_request(format!(
                    "invalid {name} specified in the request URL - time: invalid duration {text:?}"
                ))
            }),
        }
    }
}

/// Numbers with units, one after another, as Go's `time.ParseDuration` reads them.
fn parse_duration(text: &str) -> Option<Duration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        seconds += number
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = after;
    }
    // As much as Go can hold.
    let seconds = Some(seconds).filter(|seconds| *seconds <= 9.2e9)?;
    if negative { Some(Duration::ZERO) } else { Duration::try_from_secs_f64(seconds).ok() }
}

fn not_a_number(name: &str) -> Status {
    Status::bad_request(format!(
        "invalid value for the query parameter {name:?}: expected a number"
    ))
}

/// Whether a write is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DryRun {
    No,
    All,
}

impl DryRun {
    pub(crate) fn parse(values: &[String]) -> Result<Self, Status> {
        match values {
            [] => Ok(Self::No),
            [value] if value.is_empty() => Ok(Self::No),
            [value] if value == "All" => Ok(Self::All),
            _ => Err(Status::bad_request("dryRun: Unsupported value: supported values: \"All\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_numbers_read_as_in_kubernetes() {
        let query = Query::parse("watch=true&a=0&b=false&c&limit=500&x=y&x=z&bad=-1");
        assert!(query.flag("watch") && query.flag("c"));
        assert!(!query.flag("a") && !query.flag("b") && !query.flag("none"));
        assert_eq!(query.number("limit").unwrap(), Some(500));
        assert_eq!(query.number("none").unwrap(), None);
        assert!(query.number("bad").is_err());
        let large = Query::parse("a=18446744073709551615&b=99999999999999999999&c=+1");
        assert_eq!(large.number("a").unwrap(), Some(u64::MAX));
        assert_eq!(large.number("b").unwrap(), Some(u64::MAX));
        assert!(large.number("c").is_err());
        let signed = Query::parse("a=-1&b=-99999999999999999999&c=--1&d=-&e=7");
        assert_eq!(signed.signed("a").unwrap(), Some(-1));
        assert_eq!(signed.signed("b").unwrap(), Some(i64::MIN));
        assert!(signed.signed("c").is_err() && signed.signed("d").is_err());
        assert_eq!((signed.signed("e").unwrap(), signed.signed("f").unwrap()), (Some(7), None));
        assert_eq!(query.all("x"), ["y", "z"]);
    }

    #[test]
    fn times_read_as_in_go() {
        let read = |text: &str| Query::parse(&format!("t={text}")).duration("t");
        assert_eq!(read("").unwrap(), None);
        for (text, milliseconds) in [
            ("30s", 30_000),
            ("1m0.5s", 60_500),
            (".5s", 500),
            ("0", 0),
            ("-1h", 0),
            ("250ms", 250),
        ] {
            assert_eq!(read(text).unwrap(), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in ["30", "s", "1x", "-", "1s1", "1..s", "9999999999999999h", "NaNs", "1e3s"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dry_run_knows_one_word() {
        assert_eq!(DryRun::parse(&[]).unwrap(), DryRun::No);
        assert_eq!(DryRun::parse(&["All".to_owned()]).unwrap(), DryRun::All);
        assert!(DryRun::parse(&["Some".to_owned()]).is_err());
    }
}
