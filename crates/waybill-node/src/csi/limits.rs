//! What one call may take: the driver's hint, then the class, then the node's own (CSI-34).

use std::{num::NonZeroU32, time::Duration};

use waybill_api::provider_class::hints::{
    BYTES_CEILING, HintError, Hints, IN_FLIGHT_CEILING, MAX_IN_FLIGHT, MAX_PAYLOAD_BYTES,
    MAX_VALUE_BYTES, RPC_TIMEOUT, RPC_TIMEOUT_CEILING,
};
use waybill_proto::csi::EnvVarInjection;

/// Most bytes over all values of one answer, if nobody says (CSI-33).
const PAYLOAD_BYTES: u32 = 64 << 10;
/// Most bytes in one value, if nobody says.
const VALUE_BYTES: u32 = 16 << 10;
/// Most calls to one driver at the same time, if nobody says.
const IN_FLIGHT: u32 = 100;

/// What one call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) rpc_timeout: Duration,
    pub(super) payload_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) in_flight: u32,
    /// Whether that is for the calls of the class alone: it says so itself, and the driver does not.
    pub(super) in_flight_of_class: bool,
}

/// What a driver says about itself, when it connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DriverHints {
    rpc_timeout: Hint<Duration>,
    payload_bytes: Hint<u32>,
    value_bytes: Hint<u32>,
    in_flight: Hint<u32>,
}

/// One thing that a driver may say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hint<T> {
    #[default]
    Absent,
    Invalid,
    Given(T),
}

/// Why a driver's hint was not used: the label `fallback_reason` (OP-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FallbackReason {
    InvalidHint,
    KubeletDefault,
    ProviderClass,
}

impl FallbackReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InvalidHint => "invalid_hint",
            Self::KubeletDefault => "kubelet_default",
            Self::ProviderClass => "provider_class",
        }
    }
}

impl DriverHints {
    /// Zero says nothing and a negative number is invalid; more than the ceiling is the ceiling (OP-30).
    pub(super) fn read(told: &EnvVarInjection) -> Self {
        let timeout = match &told.rpc_timeout {
            None => Hint::Absent,
            Some(told) => match Duration::try_from(*told) {
                Ok(Duration::ZERO) => Hint::Absent,
                Ok(timeout) => Hint::Given(timeout.min(RPC_TIMEOUT_CEILING)),
                Err(_) => Hint::Invalid,
            },
        };
        Self {
            rpc_timeout: timeout,
            payload_bytes: number(told.max_payload_bytes, BYTES_CEILING),
            value_bytes: number(told.max_value_bytes, BYTES_CEILING),
            in_flight: number(told.max_in_flight, IN_FLIGHT_CEILING),
        }
    }
}

fn number(told: i64, ceiling: u32) -> Hint<u32> {
    match told {
        0 => Hint::Absent,
        told if told < 0 => Hint::Invalid,
        told => Hint::Given(u32::try_from(told).unwrap_or(ceiling).min(ceiling)),
    }
}

/// The limits of a call, and a reason for each that is not the driver's own.
pub(super) fn limits(
    driver: &DriverHints,
    class: &Hints,
    class_faults: &[HintError],
    rpc_timeout: Duration,
) -> (Limits, Vec<FallbackReason>) {
    let mut choice = Choice { class_faults, fallbacks: Vec::new() };
    let plain = |number: Option<NonZeroU32>| number.map(NonZeroU32::get);
    let payload = choice.of(
        driver.payload_bytes,
        MAX_PAYLOAD_BYTES,
        plain(class.max_payload_bytes),
        PAYLOAD_BYTES,
    );
    let value =
        choice.of(driver.value_bytes, MAX_VALUE_BYTES, plain(class.max_value_bytes), VALUE_BYTES);
    let limits = Limits {
        rpc_timeout: choice.of(driver.rpc_timeout, RPC_TIMEOUT, class.rpc_timeout, rpc_timeout),
        payload_bytes: usize::try_from(payload).unwrap_or(usize::MAX),
        value_bytes: usize::try_from(value).unwrap_or(usize::MAX),
        in_flight: choice.of(
            driver.in_flight,
            MAX_IN_FLIGHT,
            plain(class.max_in_flight),
            IN_FLIGHT,
        ),
        in_flight_of_class: class.max_in_flight.is_some()
            && !matches!(driver.in_flight, Hint::Given(_)),
    };
    (limits, choice.fallbacks)
}

struct Choice<'a> {
    class_faults: &'a [HintError],
    fallbacks: Vec<FallbackReason>,
}

impl Choice<'_> {
    fn of<T>(&mut self, driver: Hint<T>, parameter: &str, class: Option<T>, default: T) -> T {
        let class_is_invalid = self.class_faults.iter().any(|it| it.parameter() == parameter);
        let reason = match (&driver, &class) {
            (Hint::Given(_), _) => None,
            (Hint::Invalid, _) => Some(FallbackReason::InvalidHint),
            (Hint::Absent, Some(_)) => Some(FallbackReason::ProviderClass),
            (Hint::Absent, None) if class_is_invalid => Some(FallbackReason::InvalidHint),
            (Hint::Absent, None) => Some(FallbackReason::KubeletDefault),
        };
        self.fallbacks.extend(reason);
        match driver {
            Hint::Given(value) => value,
            Hint::Absent | Hint::Invalid => class.unwrap_or(default),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const DEFAULT: Duration = Duration::from_secs(5);

    fn chosen(told: &EnvVarInjection, class: &[(&str, &str)]) -> (Limits, Vec<FallbackReason>) {
        let parameters: BTreeMap<_, _> =
            class.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (hints, faults) = Hints::read(&parameters);
        limits(&DriverHints::read(told), &hints, &faults, DEFAULT)
    }

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    /// CSI-33, CSI-71
    #[test]
    fn without_hints_the_defaults_hold_csi_33_csi_71() {
        let (limits, fallbacks) = chosen(&EnvVarInjection::default(), &[]);
        assert_eq!(
            limits,
            Limits {
                rpc_timeout: DEFAULT,
                payload_bytes: 65536,
                value_bytes: 16384,
                in_flight: 100,
                in_flight_of_class: false,
            }
        );
        assert_eq!(fallbacks, [FallbackReason::KubeletDefault; 4]);
    }

    /// CSI-34, CSI-54, CSI-71
    #[test]
    fn the_driver_goes_before_the_class_and_the_class_before_the_node_csi_34_csi_71() {
        let class = [(RPC_TIMEOUT, "2s"), (MAX_PAYLOAD_BYTES, "2000"), (MAX_VALUE_BYTES, "200")];
        let told = EnvVarInjection {
            rpc_timeout: seconds(3),
            max_value_bytes: 300,
            max_in_flight: 7,
            ..EnvVarInjection::default()
        };
        let (limits, fallbacks) = chosen(&told, &class);
        assert_eq!(limits.rpc_timeout, Duration::from_secs(3));
        assert_eq!((limits.payload_bytes, limits.value_bytes, limits.in_flight), (2000, 300, 7));
        assert_eq!(fallbacks, [FallbackReason::ProviderClass], "for the payload alone");
    }

    /// OP-30, OP-39, CSI-07
    #[test]
    fn invalid_hints_are_ignored_and_counted_and_high_ones_lowered_csi_07() {
        let told = EnvVarInjection {
            max_payload_bytes: -1,
            max_value_bytes: i64::MAX,
            rpc_timeout: seconds(-1),
            max_in_flight: 5000,
        };
        let (limits, fallbacks) = chosen(&told, &[(RPC_TIMEOUT, "1s")]);
        assert_eq!((limits.payload_bytes, limits.value_bytes), (65536, 1 << 20));
        assert_eq!((limits.rpc_timeout, limits.in_flight), (Duration::from_secs(1), 1000));
        assert_eq!(fallbacks, [FallbackReason::InvalidHint; 2]);
        let told = EnvVarInjection { rpc_timeout: seconds(3600), ..EnvVarInjection::default() };
        assert_eq!(chosen(&told, &[]).0.rpc_timeout, Duration::from_secs(60));
        let (limits, fallbacks) = chosen(&EnvVarInjection::default(), &[(MAX_VALUE_BYTES, "no")]);
        assert_eq!(limits.value_bytes, 16384);
        assert!(fallbacks.contains(&FallbackReason::InvalidHint));
    }
}
