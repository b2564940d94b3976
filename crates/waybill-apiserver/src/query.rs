//! The query parameters that verbs understand.

use std::collections::HashMap;

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

    /// A number; one that is larger than any that can be meant is the largest.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        match self.text(name) {
            "" => Ok(None),
            text if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Some(text.parse().unwrap_or(u64::MAX)))
            }
            _ => Err(Status::bad_request(format!(
                "invalid value for the query parameter {name:?}: expected a number"
            ))),
        }
    }
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
        assert_eq!(query.all("x"), ["y", "z"]);
    }

    #[test]
    fn dry_run_knows_one_word() {
        assert_eq!(DryRun::parse(&[]).unwrap(), DryRun::No);
        assert_eq!(DryRun::parse(&["All".to_owned()]).unwrap(), DryRun::All);
        assert!(DryRun::parse(&["Some".to_owned()]).is_err());
    }
}
