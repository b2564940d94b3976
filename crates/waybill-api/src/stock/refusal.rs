//! Why the wrapper refuses an exec, in the words that its user reads.
//!
//! They stand in the log file of the runtime, which all calls of a container share, and may be shown to
//! another caller: so they are fixed and name nobody.

use std::fmt;

/// Why an exec does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No gate has seen it, and it is neither a probe nor a hook.
    NoSession,
    /// No key of this cluster made the signature.
    NotSigned,
    /// It came too late.
    Expired,
    /// It came a second time.
    Used,
    /// Another container is meant.
    OtherContainer,
    /// The words are not those that were signed.
    Changed,
    /// The sealed variables do not open here.
    Variables,
    /// There is no room for a record, or no place for the session.
    NotRecorded,
}

impl Refusal {
    /// The reason alone.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoSession => "no session",
            Self::NotSigned => "not signed by this cluster",
            Self::Expired => "expired",
            Self::Used => "used before",
            Self::OtherContainer => "for another container",
            Self::Changed => "changed on the way",
            Self::Variables => "variables cannot be opened",
            Self::NotRecorded => "not recorded",
        }
    }
}

/// The whole line.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waybill: exec refused: {}", self.reason())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_with_who_refuses() {
        assert_eq!(Refusal::Used.to_string(), "waybill: exec refused: used before");
    }
}
