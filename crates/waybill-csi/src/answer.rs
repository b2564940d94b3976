//! From what a driver answers to what goes over the wire (CSI-05, CSI-29, CSI-44).

use tonic::{Code, Status};
use waybill_core::secret::SecretBytes;
use waybill_proto::csi::{EnvVarResult, NodeGetEnvVarsResponse};

use crate::driver::{Answer, FailureKind, FetchError, Query};

/// Longest text of a status: it travels in a header, and callers take few kilobytes of those.
const TEXT_BYTES: usize = 2048;

/// What a caller asked for beside the query: how the variable is called, and whether it may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) optional: bool,
}

/// The reply to a call, or the status with which it fails as a whole: a variable that is required has no
/// value, or one was refused. There is an answer to each query.
pub(crate) fn reply(
    asked: Vec<Asked>,
    queries: &[Query],
    answers: Vec<Answer>,
) -> Result<NodeGetEnvVarsResponse, Status> {
    let mut failures = Vec::new();
    let mut results = Vec::with_capacity(asked.len());
    for ((Asked { name, optional }, query), answer) in asked.into_iter().zip(queries).zip(answers) {
        match answer.and_then(|value| sendable(&value, query)) {
            Ok(value) => results.push(EnvVarResult { name, value, error: String::new() }),
            Err(failure) if optional && may_be_missing(failure.kind) => {
                let error = shortened(text(&failure));
                results.push(EnvVarResult { name, value: Vec::new(), error });
            }
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() {
        Ok(NodeGetEnvVarsResponse { results })
    } else {
        Err(status(&failures))
    }
}

/// One status for all failures: the code of the gravest, and every text once.
pub(crate) fn status(failures: &[FetchError]) -> Status {
    let gravest = failures.iter().map(|failure| failure.kind).min_by_key(|kind| rank(*kind));
    let mut texts: Vec<&str> = Vec::new();
    for failure in failures {
        let text = text(failure);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Status::new(code(gravest.unwrap_or(FailureKind::Backend)), shortened(&texts.join("; ")))
}

/// What the proposal calls each kind (CSI-44).
pub(crate) fn code(kind: FailureKind) -> Code {
    match kind {
        FailureKind::NotFound => Code::NotFound,
        FailureKind::Denied => Code::PermissionDenied,
        FailureKind::Invalid => Code::InvalidArgument,
        FailureKind::Unavailable => Code::Unavailable,
        FailureKind::Backend => Code::Internal,
    }
}

/// A text as it may stand in a header, an event or a log: cut, and without what could drive a terminal. Parts of it
/// are what a class, a pod or a backend says.
pub(crate) fn shortened(text: &str) -> String {
    let text = printable(text);
    if text.len() <= TEXT_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(TEXT_BYTES);
    format!("{}…", text.get(..end).unwrap_or_default())
}

fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a start goes on without an optional variable that failed so (CSI-29, CSI-39).
fn may_be_missing(kind: FailureKind) -> bool {
    match kind {
        FailureKind::NotFound | FailureKind::Unavailable | FailureKind::Backend => true,
        FailureKind::Denied | FailureKind::Invalid => false,
    }
}

/// Refusals first; what may be over in a moment last.
fn rank(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Denied => 0,
        FailureKind::Invalid => 1,
        FailureKind::NotFound => 2,
        FailureKind::Backend => 3,
        FailureKind::Unavailable => 4,
    }
}

/// Never empty: a result with an empty error is a success.
fn text(failure: &FetchError) -> &str {
    if !failure.message.is_empty() {
        return &failure.message;
    }
    match failure.kind {
        FailureKind::NotFound => "there is no such key",
        FailureKind::Denied => "the backend refuses it",
        FailureKind::Invalid => "the key or a parameter is wrong",
        FailureKind::Unavailable => "the backend cannot be reached",
        FailureKind::Backend => "the backend failed",
    }
}

/// Values are text on the wire, and become part of an environment.
fn sendable(value: &SecretBytes, query: &Query) -> Result<Vec<u8>, FetchError> {
    let refuse = |what: &str| {
        let key = &query.key;
        Err(FetchError::backend(format!("the value of key {key:?} {what}; variables are text")))
    };
    let bytes = value.expose();
    if bytes.contains(&0) {
        return refuse("holds a NUL byte");
    }
    if std::str::from_utf8(bytes).is_err() {
        return refuse("is not UTF-8");
    }
    Ok(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(optional: &[bool]) -> (Vec<Asked>, Vec<Query>) {
        let one = |(at, optional): (usize, &bool)| {
            let asked = Asked { name: format!("N{at}"), optional: *optional };
            (asked, Query { key: format!("k{at}"), parameters: [].into() })
        };
        optional.iter().enumerate().map(one).unzip()
    }

    fn value(text: &str) -> Answer {
        Ok(SecretBytes::copy_of(text.as_bytes()))
    }

    #[track_caller]
    fn check_failure(optional: &[bool], answers: Vec<Answer>, code: Code, text: &str) {
        let (asked, queries) = asked(optional);
        let status = reply(asked, &queries, answers).unwrap_err();
        assert_eq!((status.code(), status.message()), (code, text));
    }

    /// CSI-05
    #[test]
    fn results_have_the_names_and_the_order_of_the_queries_csi_05() {
        let (asked, queries) = asked(&[false, false, true]);
        let answers = vec![value("a"), value(""), Err(FetchError::not_found("no k2"))];
        let results = reply(asked, &queries, answers).unwrap().results;
        let found: Vec<_> = results.iter().map(|it| (&*it.name, &*it.value, &*it.error)).collect();
        assert_eq!(found, [("N0", &b"a"[..], ""), ("N1", &b""[..], ""), ("N2", &b""[..], "no k2")]);
    }

    /// CSI-44
    #[test]
    fn a_required_variable_without_value_fails_the_call_csi_44() {
        use FetchError as E;
        for (failure, code) in [
            (E::not_found("x"), Code::NotFound),
            (E::denied("x"), Code::PermissionDenied),
            (E::invalid("x"), Code::InvalidArgument),
            (E::unavailable("x"), Code::Unavailable),
            (E::backend("x"), Code::Internal),
        ] {
            check_failure(&[true, false], vec![value("a"), Err(failure)], code, "x");
        }
    }

    /// CSI-29
    #[test]
    fn refusals_fail_the_call_also_for_optional_variables_csi_29() {
        let denied = Err(FetchError::denied("no"));
        check_failure(&[true], vec![denied], Code::PermissionDenied, "no");
        let invalid = Err(FetchError::invalid("no"));
        check_failure(&[true], vec![invalid], Code::InvalidArgument, "no");
    }

    #[test]
    fn the_gravest_failure_gives_the_code_and_all_are_told_once() {
        let answers = vec![
            Err(FetchError::unavailable("later")),
            Err(FetchError::not_found("no k1")),
            Err(FetchError::unavailable("later")),
            Err(FetchError::denied("")),
        ];
        let text = "later; no k1; the backend refuses it";
        check_failure(&[false; 4], answers, Code::PermissionDenied, text);
    }

    /// CSI-49
    #[test]
    fn values_that_are_no_text_are_not_sent_and_not_shown_csi_49() {
        let nul = vec![Ok(SecretBytes::copy_of(b"se\0cret"))];
        let text = "the value of key \"k0\" holds a NUL byte; variables are text";
        check_failure(&[false], nul, Code::Internal, text);
        let binary = vec![Ok(SecretBytes::copy_of(b"\xffsecret"))];
        let text = "the value of key \"k0\" is not UTF-8; variables are text";
        check_failure(&[false], binary, Code::Internal, text);
    }

    /// CSI-49
    #[test]
    fn no_text_drives_a_terminal_csi_49() {
        assert_eq!(shortened("no \"k\u{1b}[2J\" é\nforged"), "no \"k\\u{1b}[2J\" é\\nforged");
    }

    #[test]
    fn long_texts_are_cut_where_a_character_ends() {
        let text = "é".repeat(TEXT_BYTES);
        let cut = shortened(&text);
        assert!(cut.len() <= TEXT_BYTES + '…'.len_utf8() && cut.ends_with("é…"));
    }
}
