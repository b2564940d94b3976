//! What goes over the wire besides lines of the record.

use serde::{Deserialize, Serialize};

use crate::join::Trace;

/// How lines begin that are not of the record.
pub(super) const MARK: &[u8] = b"{\"wire\":";

/// A line that is not of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wire", rename_all = "camelCase")]
pub(super) enum WireLine {
    /// These of the sessions were in the same containers as those that are wanted, and are not wanted themselves.
    Beside {
        /// Their names in the record.
        sessions: Vec<String>,
    },
    /// What the runtime and the audit log tell now; all of it, each time.
    Live {
        /// Sessions, oldest first.
        traces: Vec<Trace>,
    },
    /// This was everything until now. An answer without it is not whole.
    End,
}

impl WireLine {
    /// With its end.
    pub(super) fn text(&self) -> Vec<u8> {
        // Our own types have only what JSON has.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart_by_how_they_begin() {
        let lines = [
            WireLine::End,
            WireLine::Beside { sessions: vec!["a".to_owned()] },
            WireLine::Live { traces: Vec::new() },
        ];
        for line in lines {
            let text = line.text();
            assert!(text.starts_with(MARK) && text.ends_with(b"\n"), "{text:?}");
            assert_eq!(serde_json::from_slice::<WireLine>(&text).unwrap(), line);
        }
    }
}
