//! Variables from CSI drivers.

use waybill_api::{
    gates::{FeatureGate, FeatureGates},
    pod::CsiSecretSelector,
};

/// Refuses `csiSecretRef` while its feature is off: a container that was promised a secret does not
/// start without it.
pub(super) fn check_gate(gates: FeatureGates) -> Result<(), CsiError> {
    match gates.enabled(FeatureGate::CsiDirectEnvInjection) {
        true => Ok(()),
        false => Err(CsiError::GateOff),
    }
}

/// No driver can be registered with this node yet, so there is none to ask.
pub(super) fn look_up(selector: &CsiSecretSelector) -> CsiError {
    CsiError::NoDriver { driver: selector.driver.clone() }
}

/// Why a driver gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CsiError {
    #[error("csiSecretRef: CSIDirectEnvInjection feature gate is not enabled")]
    GateOff,
    #[error(
        "failed to fetch CSI environment variables: CSI driver {driver:?} is not registered on this node"
    )]
    NoDriver { driver: String },
}
