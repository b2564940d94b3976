//! Why a pod or one of its containers did not start, in the words that users read.

use tonic::Status;

use crate::status::Waiting;

/// Why a pod as a whole did not start: reason and message of an event.
#[derive(Debug)]
pub(super) struct PodFailure {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// A node before this one asked for the same, and the runtime is still at it.
    pub(super) under_way: bool,
}

impl PodFailure {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), under_way: false }
    }
}

/// Why a container could not start.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not made.
    Other(Waiting),
    /// It is being made: a node before this one asked for it.
    UnderWay(Waiting),
    Pull {
        waiting: Waiting,
        image: String,
    },
    /// It was made and did not start well, which counts as a start.
    Run(Waiting),
}

impl Failure {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Other(Waiting { reason, message: message.into() })
    }

    pub(super) fn waiting(&self) -> &Waiting {
        match self {
            Self::Other(waiting)
            | Self::Pull { waiting, .. }
            | Self::Run(waiting)
            | Self::UnderWay(waiting) => waiting,
        }
    }
}

/// As gRPC errors look in the events of kubelets.
pub(super) fn shown(status: &Status) -> String {
    let told = match status.message() {
        "" => "the runtime does not say why",
        told => told,
    };
    format!("rpc error: code = {:?} desc = {told}", status.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_words_gets_some() {
        assert_eq!(
            shown(&Status::already_exists("taken")),
            "rpc error: code = AlreadyExists desc = taken"
        );
        assert_eq!(
            shown(&Status::already_exists("")),
            "rpc error: code = AlreadyExists desc = the runtime does not say why"
        );
    }
}
