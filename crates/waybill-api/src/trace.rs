//! What is asked of the record of a node, on its way through API server and node to the collector: `nodes/trace`.
//!
//! Every hop reads the query into [`TraceOptions`] and writes it anew, so that nothing passes that is not known here. What times and
//! texts mean is the collector's business.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Where a node serves its record.
pub const TRACE_PATH: &str = "/waybill/v1/trace";

/// A header that the API server sets, and only for a request to `nodes/trace`. So `nodes/proxy`, which passes no header on, does not
/// lead to the record.
pub const TRACE_HEADER: &str = "waybill-trace";

/// The first line of what a collector answers its node, if an answer follows.
pub const TRACE_GRANTED: &str = "ok";

/// How the first line begins if there is none because of what was asked; the reason follows.
pub const TRACE_REFUSED: &str = "refused ";

/// How it begins if others read already; the reason follows.
pub const TRACE_BUSY: &str = "busy ";

/// Longer texts are searched for by nobody.
const LONGEST: usize = 4096;

/// Which sessions are wanted, and what of them. Everything that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The user who asked.
    pub user: Option<String>,
    /// The pod, or `namespace/pod`.
    pub pod: Option<String>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// Not those that ended before this time of RFC 3339.
    pub since: Option<String>,
    /// Not those that began after this time of RFC 3339.
    pub until: Option<String>,
    /// Only with this text in what was asked for or in what ran.
    pub command: Option<String>,
    /// Only with a variable of this name.
    pub variable: Option<String>,
    /// Only those in which this process ran.
    pub pid: Option<u32>,
    /// Only the one with this name or audit ID.
    pub session: Option<String>,
    /// Also what nobody asked for, such as probes.
    pub probes: bool,
    /// Also every program that ran in them.
    pub programs: bool,
    /// Also sessions in the same containers.
    pub beside: bool,
    /// Also what happens from now on.
    pub follow: bool,
}

/// What is wrong with a query. Never quotes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceOptionsError {
    /// Nobody knows what it would mean.
    #[error(
        "the record knows no such parameter; those are user, pod, namespace, since, until, command, variable, pid, session, probes, \
         programs, beside and follow"
    )]
    Unknown,
    /// It is given twice.
    #[error("{0} is given more than once")]
    Twice(&'static str),
    /// It is no text.
    #[error("{0} is not UTF-8, has a line break in it or is too long")]
    Text(&'static str),
    /// It is neither `true` nor `false`.
    #[error("{0} is neither true nor false")]
    Flag(&'static str),
    /// It is no number of a process.
    #[error("pid is not the number of a process")]
    Pid,
}

impl TraceOptions {
    /// Reads a query.
    pub fn from_query(query: &str) -> Result<Self, TraceOptionsError> {
        let mut options = Self::default();
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = NAMES.iter().find(|known| **known == name).copied();
            let name = name.ok_or(TraceOptionsError::Unknown)?;
            if seen.contains(&name) {
                return Err(TraceOptionsError::Twice(name));
            }
            seen.push(name);
            options.set(name, decode(name, value)?)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &'static str, value: String) -> Result<(), TraceOptionsError> {
        let flag = |value: &str| match value {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(TraceOptionsError::Flag(name)),
        };
        match name {
            "user" => self.user = Some(value),
            "pod" => self.pod = Some(value),
            "namespace" => self.namespace = Some(value),
            "since" => self.since = Some(value),
            "until" => self.until = Some(value),
            "command" => self.command = Some(value),
            "variable" => self.variable = Some(value),
            "pid" => self.pid = Some(value.parse().map_err(|_| TraceOptionsError::Pid)?),
            "session" => self.session = Some(value),
            "probes" => self.probes = flag(&value)?,
            "programs" => self.programs = flag(&value)?,
            "beside" => self.beside = flag(&value)?,
            "follow" => self.follow = flag(&value)?,
            _ => return Err(TraceOptionsError::Unknown),
        }
        Ok(())
    }

    /// As a query, without `?`.
    pub fn to_query(&self) -> String {
        let mut query = String::new();
        let texts = [
            ("user", &self.user),
            ("pod", &self.pod),
            ("namespace", &self.namespace),
            ("since", &self.since),
            ("until", &self.until),
            ("command", &self.command),
            ("variable", &self.variable),
            ("session", &self.session),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                add(&mut query, name, utf8_percent_encode(text, ESCAPED));
            }
        }
        if let Some(pid) = self.pid {
            add(&mut query, "pid", pid);
        }
        let flags = [
            ("probes", self.probes),
            ("programs", self.programs),
            ("beside", self.beside),
            ("follow", self.follow),
        ];
        for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
            add(&mut query, name, "true");
        }
        query
    }
}

const NAMES: [&str; 13] = [
    "user",
    "pod",
    "namespace",
    "since",
    "until",
    "command",
    "variable",
    "pid",
    "session",
    "probes",
    "programs",
    "beside",
    "follow",
];

/// All but the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn add(query: &mut String, name: &str, value: impl fmt::Display) {
    let separator = if query.is_empty() { "" } else { "&" };
    query.push_str(&format!("{separator}{name}={value}"));
}

fn decode(name: &'static str, value: &str) -> Result<String, TraceOptionsError> {
    let value = value.replace('+', " ");
    let text = percent_decode_str(&value).decode_utf8();
    let text = text.ok().filter(|text| text.len() <= LONGEST && !text.contains(['\n', '\r', '\0']));
    text.map(Into::into).ok_or(TraceOptionsError::Text(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(query: &str, expected: &Result<TraceOptions, TraceOptionsError>) {
        assert_eq!(&TraceOptions::from_query(query), expected, "{query}");
    }

    #[test]
    fn what_is_not_known_passes_no_hop() {
        check("", &Ok(TraceOptions::default()));
        let user = Some("a&b=c é".to_owned());
        check("user=a%26b%3Dc+%C3%A9", &Ok(TraceOptions { user, ..TraceOptions::default() }));
        check(
            "follow=true&probes=0",
            &Ok(TraceOptions { follow: true, ..TraceOptions::default() }),
        );
        check("all=true", &Err(TraceOptionsError::Unknown));
        check("User=a", &Err(TraceOptionsError::Unknown));
        check("user=a&user=b", &Err(TraceOptionsError::Twice("user")));
        check("user=a%0Ab", &Err(TraceOptionsError::Text("user")));
        check("user=%ff", &Err(TraceOptionsError::Text("user")));
        check("follow", &Err(TraceOptionsError::Flag("follow")));
        check("pid=-1", &Err(TraceOptionsError::Pid));
        let long = format!("command={}", "x".repeat(LONGEST + 1));
        check(&long, &Err(TraceOptionsError::Text("command")));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            user in proptest::option::of("[^\\n\\r\\x00]{0,40}"),
            command in proptest::option::of("[^\\n\\r\\x00]{0,40}"),
            pid: Option<u32>,
            programs: bool,
        ) {
            let options = TraceOptions { user, command, pid, programs, ..TraceOptions::default() };
            let query = options.to_query();
            prop_assert!(!query.contains(['\n', ' ']));
            prop_assert_eq!(TraceOptions::from_query(&query), Ok(options));
        }

        #[test]
        fn no_query_panics(query in ".*") {
            let _ = TraceOptions::from_query(&query);
        }
    }
}
