//! Kubernetes feature gates, as a value.
//!
//! A role reads its flag once, and everything below takes [`FeatureGates`] as an argument. The value
//! is small and `Copy`, so each request keeps the gates it began with when they are flipped later
//! (EXEC-26). Nothing here is global.

mod version;

use std::fmt;

pub use version::{KubeVersion, KubeVersionError};

/// Which features are on, at one emulated version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    emulated: KubeVersion,
    /// Bit `gate as u8`.
    enabled: u8,
}

impl FeatureGates {
    /// The defaults of `emulated`.
    pub fn new(emulated: KubeVersion) -> Self {
        let mut gates = Self { emulated, enabled: 0 };
        for gate in FeatureGate::ALL {
            gates.put(gate, gate.spec(emulated).is_some_and(|spec| spec.default));
        }
        gates
    }

    /// Every gate on, at the newest version; what `waybill up` runs with.
    pub fn all_on() -> Self {
        let mut gates = Self::new(KubeVersion::NEWEST);
        for gate in FeatureGate::ALL {
            gates.put(gate, true);
        }
        gates
    }

    /// Parses the flag text `A=true,B=false` over the defaults of `emulated`.
    ///
    /// `AllAlpha` and `AllBeta` set every gate of their stage; a gate that is named wins over them
    /// wherever it stands. A gate named twice has its last value.
    pub fn parse(flag: &str, emulated: KubeVersion) -> Result<Self, FeatureGatesError> {
        let mut errors = Vec::new();
        let mut settings = Vec::new();
        for item in flag.split(',').filter(|item| !item.is_empty()) {
            match parse_setting(item) {
                Ok(setting) => settings.push(setting),
                Err(error) => errors.push(error),
            }
        }
        let mut gates = Self::new(emulated);
        for &(target, on) in &settings {
            if let Target::Every(stage) = target {
                gates.put_stage(stage, on);
            }
        }
        for &(target, on) in &settings {
            if let Target::One(gate) = target {
                match gate.check_settable(on, emulated) {
                    Ok(()) => gates.put(gate, on),
                    Err(error) => errors.push(error),
                }
            }
        }
        // Upstream judges dependencies only once every setting was taken.
        if errors.is_empty() {
            errors.extend(gates.broken_dependencies());
        }
        if errors.is_empty() { Ok(gates) } else { Err(FeatureGatesError(errors)) }
    }

    /// These gates with `gate` set to `on`, under the same rules as [`FeatureGates::parse`].
    pub fn with(mut self, gate: FeatureGate, on: bool) -> Result<Self, FeatureGateError> {
        gate.check_settable(on, self.emulated)?;
        self.put(gate, on);
        match self.broken_dependencies().next() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// Whether `gate` is on.
    pub fn enabled(self, gate: FeatureGate) -> bool {
        self.enabled & gate.bit() != 0
    }

    /// The version whose defaults and rules apply.
    pub fn emulated_version(self) -> KubeVersion {
        self.emulated
    }

    /// Every gate by name, for metrics and help texts.
    pub fn iter(self) -> impl Iterator<Item = GateState> {
        FeatureGate::ALL.into_iter().map(move |gate| GateState {
            gate,
            stage: gate.stage(self.emulated),
            enabled: self.enabled(gate),
        })
    }

    fn put(&mut self, gate: FeatureGate, on: bool) {
        self.enabled = if on { self.enabled | gate.bit() } else { self.enabled & !gate.bit() };
    }

    fn put_stage(&mut self, stage: Stage, on: bool) {
        for gate in FeatureGate::ALL {
            if gate.stage(self.emulated) == stage {
                self.put(gate, on);
            }
        }
    }

    fn broken_dependencies(self) -> impl Iterator<Item = FeatureGateError> {
        DEPENDENCIES
            .iter()
            .filter(move |(gate, needs)| self.enabled(*gate) && !self.enabled(*needs))
            .map(|&(gate, needs)| FeatureGateError::Dependency { gate, needs })
    }
}

/// Names the gates that are on.
impl fmt::Debug for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self.iter().filter(|state| state.enabled).map(|state| state.gate);
        write!(f, "FeatureGates({}, ", self.emulated)?;
        f.debug_list().entries(on).finish()?;
        f.write_str(")")
    }
}

/// The gates of the five proposals, by upstream name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeatureGate {
    /// `valueFrom.csiSecretRef` and the RPC behind it.
    CsiDirectEnvInjection,
    /// `valueFrom.fileKeyRef` (KEP-3721).
    EnvFiles,
    /// `PodExecOptions.env` (KEP-6035).
    ExecEnvVar,
    /// The audit ID in the environment of an exec session (KEP-6035).
    ExecRequestId,
    /// Names of printable ASCII (KEP-4369).
    RelaxedEnvironmentVariableValidation,
}

impl FeatureGate {
    /// Every gate, ordered by name.
    pub const ALL: [Self; 5] = [
        Self::CsiDirectEnvInjection,
        Self::EnvFiles,
        Self::ExecEnvVar,
        Self::ExecRequestId,
        Self::RelaxedEnvironmentVariableValidation,
    ];

    /// The name as it stands in flags and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CsiDirectEnvInjection => "CSIDirectEnvInjection",
            Self::EnvFiles => "EnvFiles",
            Self::ExecEnvVar => "ExecEnvVar",
            Self::ExecRequestId => "ExecRequestID",
            Self::RelaxedEnvironmentVariableValidation => "RelaxedEnvironmentVariableValidation",
        }
    }

    /// How mature the feature is at `emulated`.
    pub fn stage(self, emulated: KubeVersion) -> Stage {
        self.spec(emulated).map_or(Stage::PreAlpha, |spec| spec.stage)
    }

    fn spec(self, emulated: KubeVersion) -> Option<&'static Spec> {
        SPECS.iter().rev().find(|spec| spec.gate == self && spec.since <= emulated)
    }

    fn check_settable(self, on: bool, emulated: KubeVersion) -> Result<(), FeatureGateError> {
        match self.spec(emulated) {
            None => Err(FeatureGateError::PreAlpha { gate: self, on, emulated }),
            // All our gates that reached GA are locked to their default.
            Some(spec) if spec.stage == Stage::Ga && spec.default != on => {
                Err(FeatureGateError::Locked { gate: self, on })
            }
            Some(_) => Ok(()),
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for FeatureGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One gate as [`FeatureGates::iter`] reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateState {
    /// The gate.
    pub gate: FeatureGate,
    /// How mature it is at the emulated version.
    pub stage: Stage,
    /// Whether it is on.
    pub enabled: bool,
}

/// How mature a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not there yet; the gate cannot be set.
    PreAlpha,
    /// Off by default, may change.
    Alpha,
    /// Settled.
    Beta,
    /// Always on.
    Ga,
}

impl Stage {
    /// The text of the `stage` label in `kubernetes_feature_enabled`; GA is the empty text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreAlpha => "PRE-ALPHA",
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "",
        }
    }
}

/// Everything that is wrong with a feature gate flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGatesError(Vec<FeatureGateError>);

impl FeatureGatesError {
    /// The single faults, in the order of the flag.
    pub fn errors(&self) -> &[FeatureGateError] {
        &self.0
    }
}

impl std::error::Error for FeatureGatesError {}

/// One fault stands alone, several stand in brackets, as upstream prints them.
impl fmt::Display for FeatureGatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        match texts.as_slice() {
            [text] => f.write_str(text),
            _ => write!(f, "[{}]", texts.join(", ")),
        }
    }
}

/// One fault of a setting; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureGateError {
    /// The gate is on, but one that it needs is off.
    #[error("{gate} is enabled, but depends on features that are disabled: [{needs}]")]
    Dependency {
        /// The gate that is on.
        gate: FeatureGate,
        /// The gate that it needs.
        needs: FeatureGate,
    },
    /// The value is not a bool.
    #[error(
        "invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax"
    )]
    InvalidValue {
        /// The gate as written.
        name: String,
        /// The value as written.
        value: String,
    },
    /// The feature can no longer be turned off.
    #[error("cannot set feature gate {gate} to {on}, feature is locked to {}", !on)]
    Locked {
        /// The gate.
        gate: FeatureGate,
        /// The value asked for.
        on: bool,
    },
    /// There is no `=`.
    #[error("missing bool value for {name}")]
    MissingValue {
        /// The gate as written.
        name: String,
    },
    /// The feature does not exist yet at this version.
    #[error(
        "cannot set feature gate {gate} to {on}, feature is PreAlpha at emulated version {emulated}"
    )]
    PreAlpha {
        /// The gate.
        gate: FeatureGate,
        /// The value asked for.
        on: bool,
        /// The version.
        emulated: KubeVersion,
    },
    /// No gate has this name.
    #[error("unrecognized feature gate: {name}")]
    Unrecognized {
        /// The gate as written.
        name: String,
    },
}

/// The life of a gate, from `since` on.
struct Spec {
    gate: FeatureGate,
    since: KubeVersion,
    stage: Stage,
    default: bool,
}

const fn spec(gate: FeatureGate, minor: u8, stage: Stage, default: bool) -> Spec {
    Spec { gate, since: KubeVersion::minor(minor), stage, default }
}

/// Ordered by version within each gate.
const SPECS: &[Spec] = &[
    spec(FeatureGate::CsiDirectEnvInjection, 36, Stage::Alpha, false),
    // The document names 1.37 as beta and no default. A beta gate that adds API surface starts off
    // in Kubernetes, and this one lets pods reach external systems, so it stays a choice.
    spec(FeatureGate::CsiDirectEnvInjection, 37, Stage::Beta, false),
    spec(FeatureGate::EnvFiles, 34, Stage::Alpha, false),
    spec(FeatureGate::EnvFiles, 35, Stage::Beta, true),
    // KEP-6035 names no milestone, so its gates are alpha wherever we are.
    spec(FeatureGate::ExecEnvVar, 30, Stage::Alpha, false),
    spec(FeatureGate::ExecRequestId, 30, Stage::Alpha, false),
    spec(FeatureGate::RelaxedEnvironmentVariableValidation, 30, Stage::Alpha, false),
    spec(FeatureGate::RelaxedEnvironmentVariableValidation, 32, Stage::Beta, true),
    spec(FeatureGate::RelaxedEnvironmentVariableValidation, 34, Stage::Ga, true),
];

/// A gate, and the gate that it needs (OP-4).
const DEPENDENCIES: &[(FeatureGate, FeatureGate)] =
    &[(FeatureGate::ExecRequestId, FeatureGate::ExecEnvVar)];

/// What one item of the flag sets.
#[derive(Clone, Copy)]
enum Target {
    Every(Stage),
    One(FeatureGate),
}

fn parse_setting(item: &str) -> Result<(Target, bool), FeatureGateError> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name.trim(), value.trim()),
        None => return Err(FeatureGateError::MissingValue { name: item.trim().to_owned() }),
    };
    let on = parse_bool(value).ok_or_else(|| FeatureGateError::InvalidValue {
        name: name.to_owned(),
        value: value.to_owned(),
    })?;
    let target = match name {
        "AllAlpha" => Target::Every(Stage::Alpha),
        "AllBeta" => Target::Every(Stage::Beta),
        _ => {
            let gate = FeatureGate::ALL.into_iter().find(|gate| gate.name() == name);
            let unrecognized = || FeatureGateError::Unrecognized { name: name.to_owned() };
            Target::One(gate.ok_or_else(unrecognized)?)
        }
    };
    Ok((target, on))
}

/// Go's `strconv.ParseBool`.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
/// EXEC-23, EXEC-26
mod tests;
