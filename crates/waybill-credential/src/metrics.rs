//! What is counted about plugins, and who is told (CRED-44 to CRED-47).

mod prometheus;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

pub use self::prometheus::PrometheusSink;
use crate::PluginError;

/// Hears of events. Everything that a sink leaves out does nothing.
pub trait MetricSink: Send + Sync {
    /// The earliest end of all certificates that plugins gave, if there are any.
    fn set_expiry(&self, _earliest: Option<Timestamp>) {}
    /// A certificate of this age was replaced.
    fn observe_rotation_age(&self, _age: Duration) {}
    /// A plugin was run. The code is 0 if and only if that went well.
    fn count_call(&self, _code: i32, _status: CallStatus) {}
    /// A plugin was compared with the policy of the client.
    fn count_policy_check(&self, _allowed: bool) {}
}

/// How a call of a plugin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallStatus {
    /// It exited with 0.
    NoError,
    /// It exited with something else.
    PluginExecutionError,
    /// There is no such program.
    PluginNotFoundError,
    /// It could not be run, or not to its end.
    ClientInternalError,
}

impl CallStatus {
    /// Upstream's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoError => "no_error",
            Self::PluginExecutionError => "plugin_execution_error",
            Self::PluginNotFoundError => "plugin_not_found_error",
            Self::ClientInternalError => "client_internal_error",
        }
    }

    /// The exit code and the status of a run; `None` if none was tried.
    pub(crate) fn of(run: Result<(), &PluginError>) -> Option<(i32, Self)> {
        match run {
            Ok(()) => Some((0, Self::NoError)),
            Err(PluginError::Exit { code, .. }) => Some((*code, Self::PluginExecutionError)),
            Err(PluginError::NotFound { .. }) => Some((1, Self::PluginNotFoundError)),
            Err(PluginError::Interactive(_) | PluginError::Denied { .. }) => None,
            Err(_) => Some((1, Self::ClientInternalError)),
        }
    }
}

/// Whether the policy let a plugin run; `None` if it was not compared with it.
pub(crate) fn policy_verdict(run: Result<(), &PluginError>) -> Option<bool> {
    match run {
        Err(PluginError::Interactive(_) | PluginError::NotFound { .. }) => None,
        Err(PluginError::Denied { .. }) => Some(false),
        Ok(()) | Err(_) => Some(true),
    }
}

/// What all plugins of a process have in common: who listens, and when certificates end.
#[derive(Default)]
pub(crate) struct Events(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    sinks: Vec<Arc<dyn MetricSink>>,
    /// By the number of an authenticator.
    expiries: HashMap<u64, Timestamp>,
}

impl Events {
    /// From now on `sink` hears of everything, and of the certificates that there are.
    pub(crate) fn add_sink(&self, sink: Arc<dyn MetricSink>) {
        let mut inner = self.lock();
        sink.set_expiry(inner.earliest());
        inner.sinks.push(sink);
    }

    pub(crate) fn set_expiry(&self, authenticator: u64, expiry: Option<Timestamp>) {
        let mut inner = self.lock();
        match expiry {
            Some(expiry) => inner.expiries.insert(authenticator, expiry),
            None => inner.expiries.remove(&authenticator),
        };
        let earliest = inner.earliest();
        inner.sinks.iter().for_each(|sink| sink.set_expiry(earliest));
    }

    pub(crate) fn observe_rotation_age(&self, age: Duration) {
        self.lock().sinks.iter().for_each(|sink| sink.observe_rotation_age(age));
    }

    pub(crate) fn count_call(&self, code: i32, status: CallStatus) {
        self.lock().sinks.iter().for_each(|sink| sink.count_call(code, status));
    }

    pub(crate) fn count_policy_check(&self, allowed: bool) {
        self.lock().sinks.iter().for_each(|sink| sink.count_policy_check(allowed));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change is a single operation, so a panic of a sink leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn earliest(&self) -> Option<Timestamp> {
        self.expiries.values().min().copied()
    }
}

#[cfg(test)]
/// CRED-44..47.
mod tests;
