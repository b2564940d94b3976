//! Variables from CSI drivers: what a plan needs of them, and what becomes of the answer.

use std::fmt;

use waybill_api::gates::{FeatureGate, FeatureGates};

use crate::csi::{ClassFailure, Fetched};

/// Refuses `csiSecretRef` while its feature is off: a container that was promised a secret does not
/// start without it (CSI-67).
pub(super) fn check_gate(gates: FeatureGates) -> Result<(), CsiFault> {
    match gates.enabled(FeatureGate::CsiDirectEnvInjection) {
        true => Ok(()),
        false => Err(CsiFault::GateOff),
    }
}

/// The variables of a container that did not come.
pub(super) fn missing(fetched: &Fetched) -> Vec<String> {
    let names = fetched.failures.iter().flat_map(|failure| &failure.names);
    names.cloned().collect()
}

/// Why drivers gave no values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CsiFault {
    GateOff,
    /// One for each class (CSI-28).
    Failed(Vec<ClassFailure>),
}

impl fmt::Display for CsiFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GateOff => {
                f.write_str("csiSecretRef: CSIDirectEnvInjection feature gate is not enabled")
            }
            Self::Failed(failures) => {
                f.write_str("failed to fetch CSI environment variables")?;
                for (at, failure) in failures.iter().enumerate() {
                    write!(f, "{} {failure}", if at == 0 { ":" } else { ";" })?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for CsiFault {}
