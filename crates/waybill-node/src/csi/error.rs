//! Why the variables of a class could not be fetched: a text for people, and a word for metrics.
//!
//! No text here holds a value. What a driver says is cut and escaped, since it ends in events and logs.

use std::{fmt, path::PathBuf, time::Duration};

use tonic::{Code, Status};
use waybill_api::provider_class::UseDenied;

/// More of a driver's words than this is not passed on.
const SHOWN_CHARS: usize = 512;

/// How tonic begins to say that a message cannot be decoded.
const UNDECODABLE: &str = "failed to decode Protobuf message";

/// Why a class gave no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CsiError {
    #[error("ProviderClass {class:?} not found")]
    NoClass { class: String },
    /// The API server could not be asked, or did not tell.
    #[error("ProviderClass {class:?} not found: {why}")]
    ClassUnknown { class: String, why: String },
    #[error("{driver:?} cannot be the name of a CSI driver")]
    DriverName { driver: String },
    /// A pod out of a file.
    #[error(
        "a static pod has no service account that could use ProviderClass {class:?}; create the pod at \
         the API server, with spec.nodeName if it belongs to this node"
    )]
    StaticPod { class: String },
    /// A runtime that is not known to keep environments in memory.
    #[error(
        "the runtime {runtime:?} may write the environment of containers to a disk, as containerd does; \
         start the node with --csi-env-allow-disk if values may be there"
    )]
    Disk { runtime: String },
    /// The class is for other drivers, namespaces or keys.
    #[error(transparent)]
    Class(#[from] UseDenied),
    #[error("access denied to ProviderClass {class:?}")]
    Denied { class: String },
    #[error("access to ProviderClass {class:?} could not be checked: {why}")]
    Unchecked { class: String, why: String },
    /// A command or an argument would show a value.
    #[error("{place}: {why}")]
    Words { place: String, why: String },
    #[error("CSI driver {driver:?} does not support ENV_VAR_INJECTION capability")]
    NoCapability { driver: String },
    #[error("CSI driver socket not found at {}", path.display())]
    NoSocket { path: PathBuf },
    #[error("CSI driver socket not found at {}: what is there is not a socket", path.display())]
    NotSocket { path: PathBuf },
    /// Whoever answers there may not be the driver.
    #[error("CSI driver socket at {} is not trusted: {why}", path.display())]
    Untrusted { path: PathBuf, why: String },
    #[error("failed to connect to CSI driver at {}: {why}", path.display())]
    Connect { path: PathBuf, why: String },
    #[error("CSI driver at {} calls itself {found:?}, and not {driver:?}", path.display())]
    OtherName { path: PathBuf, driver: String, found: String },
    #[error("CSI env injection timeout after {}", GoDuration(*limit))]
    Timeout { limit: Duration },
    #[error("NodeGetEnvVars RPC failed for driver {driver:?}: {why}")]
    Transport { driver: String, why: String },
    #[error(
        "NodeGetEnvVars RPC failed for driver {driver:?}: rpc error: code = {code:?} desc = {text}"
    )]
    Rpc { driver: String, code: Code, text: String },
    #[error("{what} has {bytes} bytes, and at most {limit} are allowed")]
    Oversize { what: String, bytes: usize, limit: usize },
    #[error(
        "CSI env injection throttled: at most {limit} calls to CSI driver {driver:?} at a time, shared \
         between namespaces, and no place was free for {namespace:?} in {}", GoDuration(*waited)
    )]
    Throttled { driver: String, namespace: String, limit: u32, waited: Duration },
    #[error("malformed response from CSI driver {driver:?}: {why}")]
    Malformed { driver: String, why: String },
    /// The driver answered, and said for this variable why there is no value.
    #[error("variable {name:?}: {text}")]
    Variable { name: String, text: String },
    #[error("no token of service account {account:?} for audience {audience:?}: {why}")]
    Token { account: String, audience: String, why: String },
}

/// The label `error_type` of metrics (OP-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorType {
    BackendError,
    CapabilityMissing,
    DriverUnavailable,
    InvalidArgument,
    MalformedResponse,
    NotFound,
    Oversize,
    RpcError,
    Throttled,
    Timeout,
    Unauthorized,
}

impl ErrorType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BackendError => "backend_error",
            Self::CapabilityMissing => "capability_missing",
            Self::DriverUnavailable => "driver_unavailable",
            Self::InvalidArgument => "invalid_argument",
            Self::MalformedResponse => "malformed_response",
            Self::NotFound => "not_found",
            Self::Oversize => "oversize",
            Self::RpcError => "rpc_error",
            Self::Throttled => "throttled",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
        }
    }
}

impl CsiError {
    /// What a call came to that a driver refused, or that did not reach it.
    pub(super) fn of_status(driver: &str, status: &Status, limit: Duration) -> Self {
        let driver = driver.to_owned();
        // What comes from the driver has no source; what the connection did has.
        if let Some(source) = std::error::Error::source(status) {
            return Self::Transport { driver, why: shown(&deepest(source).to_string()) };
        }
        match status.code() {
            Code::Internal if status.message().starts_with(UNDECODABLE) => {
                Self::Malformed { driver, why: "it cannot be decoded".to_owned() }
            }
            Code::DeadlineExceeded => Self::Timeout { limit },
            Code::Unavailable => Self::Transport { driver, why: shown(status.message()) },
            code => Self::Rpc { driver, code, text: shown(status.message()) },
        }
    }

    /// The one word for it.
    pub(crate) fn error_type(&self) -> ErrorType {
        match self {
            Self::NoClass { .. } | Self::ClassUnknown { .. } => ErrorType::NotFound,
            Self::DriverName { .. }
            | Self::Class(UseDenied::Driver { .. } | UseDenied::List(_))
            | Self::Words { .. } => ErrorType::InvalidArgument,
            Self::Class(_) | Self::Denied { .. } | Self::StaticPod { .. } | Self::Disk { .. } => {
                ErrorType::Unauthorized
            }
            Self::Unchecked { .. } | Self::Token { .. } => ErrorType::RpcError,
            Self::NoCapability { .. } => ErrorType::CapabilityMissing,
            Self::NoSocket { .. }
            | Self::NotSocket { .. }
            | Self::Untrusted { .. }
            | Self::Connect { .. }
            | Self::OtherName { .. }
            | Self::Transport { .. } => ErrorType::DriverUnavailable,
            Self::Timeout { .. } => ErrorType::Timeout,
            Self::Rpc { code, .. } => of_code(*code),
            Self::Oversize { .. } => ErrorType::Oversize,
            Self::Throttled { .. } => ErrorType::Throttled,
            Self::Malformed { .. } => ErrorType::MalformedResponse,
            Self::Variable { .. } => ErrorType::BackendError,
        }
    }

    /// Whether the same call may succeed a moment later (OP-40).
    pub(super) fn is_retriable(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Transport { .. } | Self::Connect { .. } => true,
            Self::Rpc { code, .. } => matches!(
                code,
                Code::Internal | Code::Unknown | Code::Aborted | Code::ResourceExhausted
            ),
            _ => false,
        }
    }

    /// Whether a container may do without variables that are optional (CSI-29). What was denied stays
    /// denied, and a driver that is not there is no answer.
    pub(super) fn is_excusable(&self) -> bool {
        let rpc = matches!(self, Self::Rpc { .. } | Self::Timeout { .. });
        let kinds = [ErrorType::NotFound, ErrorType::Timeout, ErrorType::BackendError];
        rpc && kinds.contains(&self.error_type())
    }
}

fn of_code(code: Code) -> ErrorType {
    match code {
        Code::Internal => ErrorType::BackendError,
        Code::InvalidArgument => ErrorType::InvalidArgument,
        Code::NotFound => ErrorType::NotFound,
        Code::OutOfRange => ErrorType::Oversize,
        Code::PermissionDenied | Code::Unauthenticated => ErrorType::Unauthorized,
        Code::ResourceExhausted => ErrorType::Throttled,
        Code::Unimplemented => ErrorType::CapabilityMissing,
        _ => ErrorType::RpcError,
    }
}

fn deepest<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> &'e (dyn std::error::Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// Words of a driver, as they may stand in one line.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect::<String>();
    // Quotes are no danger in a message, and drivers use them.
    shown = shown.replace("\\'", "'").replace("\\\"", "\"");
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// As Go writes durations: `5s`, `100ms`, `1m30s`.
struct GoDuration(Duration);

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds == 0 {
            return write!(f, "{:?}", self.0);
        }
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if seconds >= 60 {
            write!(f, "{minutes}m")?;
        }
        match Duration::new(seconds % 60, nanos) {
            // Which Rust would write as nanoseconds.
            Duration::ZERO => f.write_str("0s"),
            rest if rest < Duration::from_secs(1) => write!(f, "{}s", rest.as_secs_f64()),
            rest => write!(f, "{rest:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use waybill_core::provider::NamespaceDenied;

    use super::*;

    fn rpc(code: Code) -> CsiError {
        CsiError::of_status("d", &Status::new(code, "why"), Duration::from_secs(5))
    }

    /// CSI-36, CSI-37, CSI-38, CSI-39, OP-40
    #[test]
    fn codes_say_whether_to_try_again_and_what_to_count_csi_37_csi_38_csi_39() {
        for (code, word, again, excusable) in [
            (Code::DeadlineExceeded, "timeout", true, true),
            (Code::Unavailable, "driver_unavailable", true, false),
            (Code::Internal, "backend_error", true, true),
            (Code::Unknown, "rpc_error", true, false),
            (Code::Aborted, "rpc_error", true, false),
            (Code::ResourceExhausted, "throttled", true, false),
            (Code::NotFound, "not_found", false, true),
            (Code::InvalidArgument, "invalid_argument", false, false),
            (Code::PermissionDenied, "unauthorized", false, false),
            (Code::Unauthenticated, "unauthorized", false, false),
            (Code::OutOfRange, "oversize", false, false),
            (Code::Unimplemented, "capability_missing", false, false),
            (Code::DataLoss, "rpc_error", false, false),
            (Code::Cancelled, "rpc_error", false, false),
        ] {
            let error = rpc(code);
            assert_eq!(error.error_type().as_str(), word, "{code:?}");
            assert_eq!(error.is_retriable(), again, "{code:?}");
            assert_eq!(error.is_excusable(), excusable, "{code:?}");
        }
    }

    /// CSI-25: a class that is gone, or not granted, excuses nothing.
    #[test]
    fn what_was_refused_before_the_call_is_never_excused() {
        let class = || "c".to_owned();
        for error in [
            CsiError::NoClass { class: class() },
            CsiError::Denied { class: class() },
            CsiError::Class(NamespaceDenied.into()),
            CsiError::NoSocket { path: "/p".into() },
        ] {
            assert!(!error.is_excusable() && !error.is_retriable(), "{error}");
        }
    }

    /// CSI-36
    #[test]
    fn durations_are_written_as_go_writes_them_csi_36() {
        for (millis, text) in [
            (5000, "5s"),
            (100, "100ms"),
            (1500, "1.5s"),
            (60_000, "1m0s"),
            (90_500, "1m30.5s"),
            (60_500, "1m0.5s"),
            (3_600_000, "1h0m0s"),
        ] {
            let limit = Duration::from_millis(millis);
            let told = CsiError::Timeout { limit }.to_string();
            assert_eq!(told, format!("CSI env injection timeout after {text}"));
        }
    }

    /// CSI-63: a driver cannot forge a line of a log.
    #[test]
    fn words_of_a_driver_stay_in_their_line_csi_63() {
        assert_eq!(shown("a\nb\u{1b}[1m 'c' \"d\""), "a\\nb\\u{1b}[1m 'c' \"d\"");
        assert_eq!(shown(&"x".repeat(600)).chars().count(), SHOWN_CHARS + 1);
    }
}
