//! The query of a request for a log.

use std::str::FromStr;

use jiff::Timestamp;

use super::entry::Stream;
use crate::server::answer::Refusal;

/// What part of a log is wanted, and how it shall look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogOptions {
    pub(super) follow: bool,
    /// The container before the one that is there now.
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    pub(super) since: Option<Since>,
    pub(super) tail_lines: Option<u64>,
    pub(super) limit_bytes: Option<u64>,
    /// Only what came from there.
    pub(super) stream: Option<Stream>,
}

/// The beginning of what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Seconds(u64),
    Time(Timestamp),
}

impl LogOptions {
    /// Reads the parameters that we know; the first of each name counts, others are ignored.
    pub(super) fn from_query(query: &str) -> Result<Self, Refusal> {
        let since = match (
            number(query, "sinceSeconds", 1, "greater than 0")?,
            parsed(query, "sinceTime", "a time of RFC 3339")?,
        ) {
            (Some(_), Some(_)) => {
                let text = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                return Err(Refusal::Unprocessable(text.to_owned()));
            }
            (Some(seconds), None) => Some(Since::Seconds(seconds)),
            (None, time) => time.map(Since::Time),
        };
        Ok(Self {
            follow: flag(query, "follow"),
            previous: flag(query, "previous"),
            timestamps: flag(query, "timestamps"),
            since,
            tail_lines: number(query, "tailLines", 0, "greater than or equal to 0")?,
            limit_bytes: number(query, "limitBytes", 1, "greater than 0")?,
            stream: stream(query)?,
        })
    }
}

fn stream(query: &str) -> Result<Option<Stream>, Refusal> {
    match text(query, "stream").as_deref() {
        None | Some("" | "All") => Ok(None),
        Some("Stdout") => Ok(Some(Stream::Stdout)),
        Some("Stderr") => Ok(Some(Stream::Stderr)),
        Some(_) => {
            let text = "query parameter stream must be All, Stderr or Stdout";
            Err(Refusal::Unprocessable(text.to_owned()))
        }
    }
}

fn number(query: &str, parameter: &str, least: i64, must: &str) -> Result<Option<u64>, Refusal> {
    match parsed::<i64>(query, parameter, "a number")? {
        Some(number) if number < least => {
            Err(Refusal::Unprocessable(format!("query parameter {parameter} must be {must}")))
        }
        Some(number) => Ok(Some(number.unsigned_abs())),
        None => Ok(None),
    }
}

fn parsed<T: FromStr>(query: &str, parameter: &str, what: &str) -> Result<Option<T>, Refusal> {
    match text(query, parameter).filter(|text| !text.is_empty()) {
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Refusal::BadRequest(format!("query parameter {parameter} is not {what}"))),
        None => Ok(None),
    }
}

/// Set to nothing is true, and so is everything but `0` and `false`, as Kubernetes' codec reads it.
fn flag(query: &str, parameter: &str) -> bool {
    let text = text(query, parameter);
    text.is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false"))
}

fn text(query: &str, parameter: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == parameter)
        .map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_reaches_its_field() {
        let query = "follow=true&previous=1&timestamps=&tailLines=0&limitBytes=10&stream=Stderr\
            &sinceTime=2026-08-01T10%3A00%3A00%2B02:00&unknown=x&tailLines=7";
        let since = "2026-08-01T08:00:00Z".parse().unwrap();
        assert_eq!(
            LogOptions::from_query(query).unwrap(),
            LogOptions {
                follow: true,
                previous: true,
                timestamps: true,
                since: Some(Since::Time(since)),
                tail_lines: Some(0),
                limit_bytes: Some(10),
                stream: Some(Stream::Stderr),
            }
        );
        assert_eq!(LogOptions::from_query("").unwrap(), LogOptions::default());
        let none = "follow=false&previous=0&stream=All&tailLines=&sinceTime=";
        assert_eq!(LogOptions::from_query(none).unwrap(), LogOptions::default());
        let seconds = LogOptions::from_query("sinceSeconds=5").unwrap().since;
        assert_eq!(seconds, Some(Since::Seconds(5)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        #[track_caller]
        fn check(query: &str, expected: &str) {
            assert_eq!(LogOptions::from_query(query).unwrap_err().to_string(), expected);
        }
        check("tailLines=x", "query parameter tailLines is not a number");
        check("tailLines=-1", "query parameter tailLines must be greater than or equal to 0");
        check("limitBytes=0", "query parameter limitBytes must be greater than 0");
        check("sinceSeconds=0", "query parameter sinceSeconds must be greater than 0");
        check("sinceTime=yesterday", "query parameter sinceTime is not a time of RFC 3339");
        check("stream=Stdin", "query parameter stream must be All, Stderr or Stdout");
        check(
            "sinceSeconds=1&sinceTime=2026-08-01T10:00:00Z",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        );
    }
}
