//! How a command ended, as the error channel tells it.

use waybill_api::status::Status;

use crate::{channel::ProtocolError, protocol::Protocol};

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With the exit code 0.
    Success,
    /// With another.
    Exit(i32),
    /// It was not started, or its end is not known.
    Failure(String),
}

impl Outcome {
    /// From an exit code.
    pub fn exited(code: i32) -> Self {
        if code == 0 { Self::Success } else { Self::Exit(code) }
    }

    /// The message on the error channel; `None` where silence means success.
    pub fn to_message(&self, protocol: Protocol) -> Option<Vec<u8>> {
        let status = match self {
            Self::Success => Status::command_succeeded(),
            Self::Exit(code) => Status::command_exited(*code),
            Self::Failure(message) => Status::internal(message.as_str()),
        };
        if protocol.has_status() {
            // A struct of texts and numbers has no way to fail.
            return Some(serde_json::to_vec(&status).unwrap_or_default());
        }
        (!status.is_success()).then(|| status.message().as_bytes().to_vec())
    }

    /// Reads such a message.
    pub fn from_message(message: &[u8], protocol: Protocol) -> Result<Self, ProtocolError> {
        if !protocol.has_status() {
            return Ok(match message {
                [] => Self::Success,
                text => Self::Failure(String::from_utf8_lossy(text).into_owned()),
            });
        }
        let status: Status = serde_json::from_slice(message).map_err(|_| ProtocolError::Status)?;
        Ok(match (status.is_success(), status.exit_code()) {
            (true, _) => Self::Success,
            (false, Some(code)) => Self::Exit(code),
            (false, None) => Self::Failure(status.message().to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_the_code() {
        for outcome in [Outcome::Success, Outcome::Exit(137)] {
            for protocol in [Protocol::V4, Protocol::V4Base64, Protocol::V5] {
                let message = outcome.to_message(protocol).unwrap();
                assert_eq!(Outcome::from_message(&message, protocol), Ok(outcome.clone()));
            }
        }
    }

    #[test]
    fn a_failure_keeps_its_words() {
        let message = Outcome::Failure("no such file".to_owned()).to_message(Protocol::V5).unwrap();
        let Ok(Outcome::Failure(found)) = Outcome::from_message(&message, Protocol::V5) else {
            panic!("it is a failure");
        };
        assert!(found.ends_with("no such file"), "{found}");
    }

    #[test]
    fn before_v4_success_is_silent_and_failure_a_text() {
        assert_eq!(Outcome::Success.to_message(Protocol::Channel), None);
        let message = Outcome::Exit(3).to_message(Protocol::Channel).unwrap();
        assert_eq!(message, b"command terminated with non-zero exit code: 3");
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for message in [&b""[..], b"{}", b"\"Success\"", b"{\"status\":1}"] {
            let found = Outcome::from_message(message, Protocol::V4);
            assert_eq!(found, Err(ProtocolError::Status));
        }
    }
}
