//! The limits that a class sets for calls to its driver (OP-30).
//!
//! The API server refuses a class with a bad hint. The node agent, which may meet a class that was
//! stored before, uses the good ones and counts the bad (OP-39); so reading yields both.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use waybill_core::duration::parse_duration;

/// Parameter: longest time for one call, as Go writes durations.
pub const RPC_TIMEOUT: &str = "envInjection.rpcTimeout";

/// Parameter: most bytes over all values of one answer.
pub const MAX_PAYLOAD_BYTES: &str = "envInjection.maxPayloadBytes";

/// Parameter: most bytes in one value.
pub const MAX_VALUE_BYTES: &str = "envInjection.maxValueBytes";

/// Parameter: most calls at the same time.
pub const MAX_IN_FLIGHT: &str = "envInjection.maxInFlight";

/// Parameter: how often the class is asked again for containers that run, as Go writes durations.
pub const REFRESH_INTERVAL: &str = "envInjection.refreshInterval";

/// All of them.
pub(super) const HINTS: [&str; 5] =
    [RPC_TIMEOUT, MAX_PAYLOAD_BYTES, MAX_VALUE_BYTES, MAX_IN_FLIGHT, REFRESH_INTERVAL];

/// Shortest [`REFRESH_INTERVAL`].
pub const REFRESH_INTERVAL_FLOOR: Duration = Duration::from_secs(10);

/// Longest [`REFRESH_INTERVAL`].
pub const REFRESH_INTERVAL_CEILING: Duration = Duration::from_secs(24 * 60 * 60);

/// Highest [`RPC_TIMEOUT`].
pub const RPC_TIMEOUT_CEILING: Duration = Duration::from_secs(60);

/// Highest [`MAX_PAYLOAD_BYTES`] and [`MAX_VALUE_BYTES`].
pub const BYTES_CEILING: u32 = 1 << 20;

/// Highest [`MAX_IN_FLIGHT`].
pub const IN_FLIGHT_CEILING: u32 = 1000;

/// The hints of one class; `None` where it gives none, or a bad one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Longest time for one call; never zero.
    pub rpc_timeout: Option<Duration>,
    /// Most bytes over all values of one answer.
    pub max_payload_bytes: Option<NonZeroU32>,
    /// Most bytes in one value.
    pub max_value_bytes: Option<NonZeroU32>,
    /// Most calls at the same time.
    pub max_in_flight: Option<NonZeroU32>,
    /// How often the class is asked again for containers that run.
    pub refresh_interval: Option<Duration>,
}

impl Hints {
    /// Reads the hints among `parameters`, and what is wrong with the others.
    pub fn read(parameters: &BTreeMap<String, String>) -> (Self, Vec<HintError>) {
        let mut errors = Vec::new();
        let mut number = |parameter, ceiling| {
            let text = parameters.get(parameter)?;
            let error = HintError::Number { parameter, ceiling };
            parse_number(text, ceiling).or_else(|| {
                errors.push(error);
                None
            })
        };
        let mut hints = Self {
            rpc_timeout: None,
            refresh_interval: None,
            max_payload_bytes: number(MAX_PAYLOAD_BYTES, BYTES_CEILING),
            max_value_bytes: number(MAX_VALUE_BYTES, BYTES_CEILING),
            max_in_flight: number(MAX_IN_FLIGHT, IN_FLIGHT_CEILING),
        };
        if let Some(text) = parameters.get(RPC_TIMEOUT) {
            hints.rpc_timeout = parse_duration(text)
                .filter(|timeout| !timeout.is_zero() && *timeout <= RPC_TIMEOUT_CEILING);
            if hints.rpc_timeout.is_none() {
                errors.push(HintError::Timeout);
            }
        }
        if let Some(text) = parameters.get(REFRESH_INTERVAL) {
            let allowed = REFRESH_INTERVAL_FLOOR..=REFRESH_INTERVAL_CEILING;
            hints.refresh_interval = parse_duration(text).filter(|it| allowed.contains(it));
            if hints.refresh_interval.is_none() {
                errors.push(HintError::Interval);
            }
        }
        (hints, errors)
    }
}

/// A hint that says nothing usable. The text states the rule and never the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HintError {
    /// Not a number, or not in its range.
    #[error("must be a whole number from 1 to {ceiling}")]
    Number {
        /// The parameter at fault.
        parameter: &'static str,
        /// The highest number allowed.
        ceiling: u32,
    },
    /// Not a time between two refreshes.
    #[error("must be a duration from 10s to 24h, such as 30s, 5m or 1h")]
    Interval,
    /// Not a duration, or not in its range.
    #[error("must be a duration above 0 and up to 60s, such as 500ms, 5s or 1m")]
    Timeout,
}

impl HintError {
    /// The parameter at fault.
    pub fn parameter(&self) -> &'static str {
        match self {
            Self::Number { parameter, .. } => parameter,
            Self::Interval => REFRESH_INTERVAL,
            Self::Timeout => RPC_TIMEOUT,
        }
    }
}

fn parse_number(text: &str, ceiling: u32) -> Option<NonZeroU32> {
    // `parse` would take a plus sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number: &NonZeroU32| number.get() <= ceiling)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_timeout(text: &str, expected: Option<Duration>) {
        let (hints, errors) = Hints::read(&[(RPC_TIMEOUT.into(), text.into())].into());
        assert_eq!(hints.rpc_timeout, expected, "{text:?}");
        assert_eq!(errors.is_empty(), expected.is_some(), "{text:?}");
    }

    #[track_caller]
    fn check_number(parameter: &'static str, text: &str, expected: Option<u32>) {
        let (hints, errors) = Hints::read(&[(parameter.into(), text.into())].into());
        let found = match parameter {
            MAX_PAYLOAD_BYTES => hints.max_payload_bytes,
            MAX_VALUE_BYTES => hints.max_value_bytes,
            _ => hints.max_in_flight,
        };
        assert_eq!(found.map(NonZeroU32::get), expected, "{parameter} {text:?}");
        let at_fault: Vec<_> = errors.iter().map(HintError::parameter).collect();
        let expected_faults = if expected.is_some() { vec![] } else { vec![parameter] };
        assert_eq!(at_fault, expected_faults, "{parameter} {text:?}");
    }

    #[test]
    fn timeouts_are_go_durations_op_30() {
        let millis = |number| Some(Duration::from_millis(number));
        check_timeout("500ms", millis(500));
        check_timeout("5s", millis(5_000));
        check_timeout("0m30s", millis(30_000));
        check_timeout("1m", millis(60_000));
        check_timeout("1.5s", millis(1_500));
        check_timeout(".5s", millis(500));
        check_timeout("1.s", millis(1_000));
        check_timeout("1s500ms", millis(1_500));
        check_timeout("1ns", Some(Duration::from_nanos(1)));
        check_timeout("2us3\u{b5}s4\u{3bc}s", Some(Duration::from_micros(9)));
        for bad in ["", "5", "s", ".s", "5 s", " 5s", "-5s", "+5s", "5sec", "5S", "1m30", "1..5s"] {
            check_timeout(bad, None);
        }
    }

    #[test]
    fn timeouts_have_a_ceiling_and_are_never_zero_op_30() {
        check_timeout("60s", Some(Duration::from_secs(60)));
        check_timeout("60.000000001s", None);
        check_timeout("1m30s", None);
        check_timeout("0", None);
        check_timeout("0s", None);
        check_timeout("0.1ns", None);
        check_timeout("99999999999999999999h", None);
        check_timeout("9999999999999h", None);
    }

    #[test]
    fn a_refresh_takes_ten_seconds_to_a_day() {
        let read = |text: &str| Hints::read(&[(REFRESH_INTERVAL.into(), text.into())].into());
        for good in ["10s", "5m", "24h"] {
            let (hints, errors) = read(good);
            assert!(hints.refresh_interval.is_some() && errors.is_empty(), "{good}");
        }
        for bad in ["", "0", "9.9s", "24h1s", "-10s", "often"] {
            let (hints, errors) = read(bad);
            assert_eq!(
                (hints.refresh_interval, errors),
                (None, vec![HintError::Interval]),
                "{bad}"
            );
        }
    }

    #[test]
    fn numbers_have_a_ceiling_and_are_never_zero_op_30() {
        for bytes in [MAX_PAYLOAD_BYTES, MAX_VALUE_BYTES] {
            check_number(bytes, "1", Some(1));
            check_number(bytes, "1048576", Some(1_048_576));
            check_number(bytes, "1048577", None);
        }
        check_number(MAX_IN_FLIGHT, "1000", Some(1000));
        check_number(MAX_IN_FLIGHT, "1001", None);
        for bad in ["", "0", "-1", "+1", "1.0", "1e3", " 1", "1Mi", "99999999999999999999"] {
            check_number(MAX_IN_FLIGHT, bad, None);
        }
    }

    #[test]
    fn good_hints_are_kept_beside_bad_ones_op_39() {
        let parameters = [
            (RPC_TIMEOUT.to_owned(), "never".to_owned()),
            (MAX_PAYLOAD_BYTES.to_owned(), "0".to_owned()),
            (MAX_IN_FLIGHT.to_owned(), "7".to_owned()),
        ];
        let (hints, errors) = Hints::read(&parameters.into());
        assert_eq!(hints, Hints { max_in_flight: NonZeroU32::new(7), ..Hints::default() });
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "must be a whole number from 1 to 1048576",
                "must be a duration above 0 and up to 60s, such as 500ms, 5s or 1m",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9.a-zµ]{0,40}|\\PC*") {
            for parameter in [RPC_TIMEOUT, MAX_VALUE_BYTES] {
                Hints::read(&[(parameter.to_owned(), text.clone())].into());
            }
        }
    }
}
