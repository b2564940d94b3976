//! Which state a read wants: `resourceVersion`, and what says how to take it.
//!
//! Rules and texts are upstream's, for clients match on them; every fault is told.

use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    status::{Status, Subject},
};
use waybill_core::id::ResourceVersion;

use crate::query::Query;

/// From which state on a read is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The newest state.
    Newest,
    /// Any state; ours is always new.
    Any,
    /// This state or a newer one.
    NotOlderThan(ResourceVersion),
    /// Exactly this state.
    Exact(ResourceVersion),
}

impl From {
    /// Of a `get`.
    pub(crate) fn parse_get(query: &Query) -> Result<Self, Status> {
        Self::not_older_than(query.text("resourceVersion"))
    }

    /// Of a `list`.
    pub(crate) fn parse_list(query: &Query) -> Result<Self, Status> {
        let (version, matching) =
            (query.text("resourceVersion"), query.text("resourceVersionMatch"));
        refuse(&list_faults(query))?;
        if !query.text("continue").is_empty() && !matches!(version, "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let limited = query.number("limit")?.is_some_and(|limit| limit > 0);
        let from = Self::not_older_than(version)?;
        match (from, matching) {
            (Self::NotOlderThan(version), "Exact") => Ok(Self::Exact(version)),
            // From before there was a word for it, for the sake of pages.
            (Self::NotOlderThan(version), "") if limited => Ok(Self::Exact(version)),
            _ => Ok(from),
        }
    }

    /// Of a `watch`.
    pub(crate) fn parse_watch(query: &Query) -> Result<Self, Status> {
        refuse(&watch_faults(query))?;
        Self::not_older_than(query.text("resourceVersion"))
    }

    fn not_older_than(version: &str) -> Result<Self, Status> {
        match version {
            "" => Ok(Self::Newest),
            "0" => Ok(Self::Any),
            text => ResourceVersion::parse(text)
                .map(Self::NotOlderThan)
                .map_err(|_| Status::bad_request(format!("invalid resource version {text:?}"))),
        }
    }
}

fn list_faults(query: &Query) -> ErrorList {
    let (version, matching) = (query.text("resourceVersion"), query.text("resourceVersionMatch"));
    let mut errors = ErrorList::new();
    if !matching.is_empty() {
        if version.is_empty() {
            errors.push(bad_match("is forbidden unless resourceVersion is provided"));
        }
        if !query.text("continue").is_empty() {
            errors.push(bad_match("is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(match_path(), matching, &supported));
        }
        if matching == "Exact" && version == "0" {
            errors.push(bad_match("\"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if query.has("sendInitialEvents") {
        let path = FieldPath::new("sendInitialEvents");
        errors.push(FieldError::forbidden(path, "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn watch_faults(query: &Query) -> ErrorList {
    let matching = query.text("resourceVersionMatch");
    let initial_events = query.has("sendInitialEvents");
    let mut errors = ErrorList::new();
    if initial_events && matching != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(match_path(), detail));
    }
    if !matching.is_empty() {
        if !initial_events {
            errors.push(bad_match("is forbidden for watch unless sendInitialEvents is provided"));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(match_path(), matching, &["NotOlderThan"]));
        }
        if !query.text("continue").is_empty() {
            errors.push(bad_match("is forbidden when continue is provided"));
        }
    }
    errors
}

fn match_path() -> FieldPath {
    FieldPath::new("resourceVersionMatch")
}

fn bad_match(why: &str) -> FieldError {
    FieldError::forbidden(match_path(), format!("resourceVersionMatch {why}"))
}

fn refuse(errors: &[FieldError]) -> Result<(), Status> {
    let subject = Subject { group: "meta.k8s.io", kind: "ListOptions", name: "" };
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(subject, errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> Result<From, u16> {
        From::parse_list(&Query::parse(query)).map_err(|status| status.code())
    }

    #[test]
    fn resource_versions_choose_the_state_of_a_list() {
        assert_eq!(list(""), Ok(From::Newest));
        assert_eq!(list("limit=5"), Ok(From::Newest));
        assert_eq!(list("resourceVersion=0"), Ok(From::Any));
        assert_eq!(list("resourceVersion=0&limit=5"), Ok(From::Any));
        assert_eq!(list("resourceVersion=0&resourceVersionMatch=NotOlderThan"), Ok(From::Any));
        assert_eq!(list("resourceVersion=7"), Ok(From::NotOlderThan(7.into())));
        assert_eq!(list("resourceVersion=7&limit=0"), Ok(From::NotOlderThan(7.into())));
        assert_eq!(list("resourceVersion=7&limit=5"), Ok(From::Exact(7.into())));
        let exact = "resourceVersion=7&resourceVersionMatch=Exact";
        assert_eq!(list(exact), Ok(From::Exact(7.into())));
        let newer = "resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan";
        assert_eq!(list(newer), Ok(From::NotOlderThan(7.into())));
        assert_eq!(list("continue=x&resourceVersion=0"), Ok(From::Any));
        assert_eq!(list("resourceVersion=x"), Err(400));
        assert_eq!(list("continue=x&resourceVersion=7"), Err(400));
        assert_eq!(list("resourceVersion=7&resourceVersionMatch=Newer"), Err(422));
    }

    #[test]
    fn every_fault_is_told() {
        let query = Query::parse("resourceVersionMatch=Newer&continue=x&sendInitialEvents=1");
        assert_eq!(list_faults(&query).len(), 4);
        let query = Query::parse("watch=1&resourceVersionMatch=Exact&continue=x");
        assert_eq!(watch_faults(&query).len(), 3);
        let good = "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=false";
        assert!(watch_faults(&Query::parse(good)).is_empty());
    }

    #[test]
    fn a_get_and_a_watch_want_no_older_state() {
        let query = Query::parse("resourceVersion=7&limit=5");
        assert_eq!(From::parse_get(&query).ok(), Some(From::NotOlderThan(7.into())));
        assert_eq!(From::parse_watch(&query).ok(), Some(From::NotOlderThan(7.into())));
    }
}
