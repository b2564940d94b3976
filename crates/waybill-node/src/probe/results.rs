//! What probes have found out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

/// Which question a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Liveness,
    Readiness,
    Startup,
}

impl Purpose {
    pub(super) const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// As events begin.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
            Self::Startup => "Startup",
        }
    }
}

/// What is known of the containers of a pod at one moment, by the runtime's ids. A container that
/// starts again has a new id and begins without results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    pub(super) containers: BTreeMap<String, ContainerResults>,
}

/// What is known of one container; `None` as long as a probe has not decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerResults {
    pub(crate) started: Option<bool>,
    pub(crate) ready: Option<bool>,
    pub(crate) failed: Option<ProbeFailure>,
}

/// A container has to be killed because of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeFailure {
    /// Liveness or startup.
    pub(crate) purpose: Purpose,
    pub(crate) message: String,
    /// How long it may take to stop, if the probe says so.
    pub(crate) grace: Option<i64>,
}

impl Results {
    /// Whether a running container has started as far as its startup probe goes.
    pub(crate) fn is_started(&self, spec: &Container, id: &str) -> bool {
        spec.startup_probe.is_none() || self.of(id).is_some_and(|found| found.started == Some(true))
    }

    /// Whether a container that has started is ready.
    pub(crate) fn is_ready(&self, spec: &Container, id: &str) -> bool {
        spec.readiness_probe.is_none() || self.of(id).is_some_and(|found| found.ready == Some(true))
    }

    /// Why a container has to be killed, if it has to be.
    pub(crate) fn failure(&self, id: &str) -> Option<&ProbeFailure> {
        self.of(id)?.failed.as_ref()
    }

    fn of(&self, id: &str) -> Option<&ContainerResults> {
        self.containers.get(id)
    }
}

#[cfg(test)]
impl Results {
    /// What is known of one container.
    pub(crate) fn for_test(id: &str, started: Option<bool>, ready: Option<bool>) -> Self {
        let results = ContainerResults { started, ready, failed: None };
        Self { containers: BTreeMap::from([(id.to_owned(), results)]) }
    }
}
