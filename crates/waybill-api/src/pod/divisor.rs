//! The divisor of a `resourceFieldRef`.
//!
//! It is a Kubernetes quantity, but only units can be divisors, so a quantity is read for the
//! question which unit it is: `1024Ki` is `1Mi` and `0.001` is `1m`, as upstream's canonical form
//! has it.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

use super::json::wrong_kind;

/// A quantity, as far as a divisor is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Divisor {
    /// Absent or zero; the default of the resource applies.
    #[default]
    Unset,
    /// One unit, in canonical form: `1m`, `1`, `1k`, `1Ki` and so on.
    Unit(&'static str),
    /// A quantity that is no unit.
    Other,
}

impl Divisor {
    /// Parses the text of a quantity.
    pub fn parse(raw: &str) -> Result<Self, DivisorError> {
        let (negative, unsigned) = match raw.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, raw.strip_prefix('+').unwrap_or(raw)),
        };
        let number_end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (number, suffix) = unsigned.split_at(number_end.unwrap_or(unsigned.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || digits.contains('.') {
            return Err(DivisorError::Format);
        }
        let scale = Scale::parse(suffix)?;
        if digits.bytes().all(|digit| digit == b'0') {
            return Ok(Self::Unset);
        }
        let unit = if negative { None } else { scale.unit(&digits, fraction.len()) };
        Ok(unit.map_or(Self::Other, Self::Unit))
    }
}

/// Kubernetes takes quantities as text and as numbers.
impl<'de> Deserialize<'de> for Divisor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Self::parse(&text).map_err(D::Error::custom),
            Value::Number(number) => Self::parse(&number.to_string()).map_err(D::Error::custom),
            other => Err(wrong_kind(&other, "a quantity")),
        }
    }
}

/// Why a text is not a quantity; the texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DivisorError {
    /// There is no number.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// What follows the number is no suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// What the number is multiplied by, and in which of the three styles it was written.
#[derive(Clone, Copy)]
enum Scale {
    /// `Ki` and so on: a power of two.
    Binary(u32),
    /// `k` and so on: a power of ten.
    Decimal(i64),
    /// `e3`: a power of ten that upstream keeps as an exponent.
    Exponent(i64),
}

impl Scale {
    fn parse(suffix: &str) -> Result<Self, DivisorError> {
        let scale = match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => {
                let power = suffix.strip_prefix(['e', 'E']).ok_or(DivisorError::Suffix)?;
                Self::Exponent(power.parse().map_err(|_| DivisorError::Suffix)?)
            }
        };
        Ok(scale)
    }

    /// The unit that `digits`, of which the last `places` follow the point, make with this scale.
    fn unit(self, digits: &str, places: usize) -> Option<&'static str> {
        let places = i64::try_from(places).ok()?;
        // Zeros at the end go into the exponent, so that only the numbers that matter must fit.
        let significant = digits.trim_end_matches('0');
        let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
        let number: u128 = significant.parse().ok()?;
        let exponent = zeros - places;
        match self {
            Self::Decimal(power) => decimal_unit(number, exponent.checked_add(power)?),
            Self::Exponent(power) => {
                let one = number == 1 && exponent.checked_add(power)? == 0;
                one.then_some("1")
            }
            Self::Binary(bits) => binary_unit(number.checked_mul(1 << bits)?, exponent),
        }
    }
}

/// The unit equal to `number` times ten to the `exponent`.
fn decimal_unit(mut number: u128, mut exponent: i64) -> Option<&'static str> {
    while number >= 10 && number.is_multiple_of(10) {
        number /= 10;
        exponent += 1;
    }
    if number != 1 {
        return None;
    }
    match exponent {
        -3 => Some("1m"),
        0 => Some("1"),
        3 => Some("1k"),
        6 => Some("1M"),
        9 => Some("1G"),
        12 => Some("1T"),
        15 => Some("1P"),
        18 => Some("1E"),
        _ => None,
    }
}

/// As [`decimal_unit`], for a quantity that was written with a binary suffix. Upstream keeps the
/// binary style only for whole numbers from 1024 on.
fn binary_unit(number: u128, exponent: i64) -> Option<&'static str> {
    let power = 10_u128.checked_pow(u32::try_from(exponent.unsigned_abs()).ok()?)?;
    let whole = if exponent >= 0 {
        number.checked_mul(power)?
    } else if number.is_multiple_of(power) {
        number / power
    } else {
        return decimal_unit(number, exponent);
    };
    match whole {
        ..1024 => decimal_unit(whole, 0),
        0x400 => Some("1Ki"),
        0x10_0000 => Some("1Mi"),
        0x4000_0000 => Some("1Gi"),
        0x100_0000_0000 => Some("1Ti"),
        0x4_0000_0000_0000 => Some("1Pi"),
        0x1000_0000_0000_0000 => Some("1Ei"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: Result<Divisor, DivisorError>) {
        assert_eq!(Divisor::parse(raw), expected, "{raw:?}");
    }

    #[test]
    fn units_have_one_canonical_form() {
        for unit in ["1m", "1", "1k", "1M", "1G", "1T", "1P", "1E"] {
            check(unit, Ok(Divisor::Unit(unit)));
        }
        for unit in ["1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"] {
            check(unit, Ok(Divisor::Unit(unit)));
        }
        for (raw, unit) in [
            ("+1", "1"),
            ("01.0", "1"),
            ("1.", "1"),
            ("1000m", "1"),
            ("0.001", "1m"),
            (".001", "1m"),
            ("1000000u", "1"),
            ("1000000n", "1m"),
            ("1000", "1k"),
            ("1000k", "1M"),
            ("1024Ki", "1Mi"),
            ("0.5Ki", ""),
            ("1048576Ki", "1Gi"),
            ("0.0009765625Ki", "1"),
            ("0.9765625Ki", "1k"),
            ("0.0000009765625Ki", "1m"),
            ("1e0", "1"),
            ("10e-1", "1"),
        ] {
            let expected = if unit.is_empty() { Divisor::Other } else { Divisor::Unit(unit) };
            check(raw, Ok(expected));
        }
    }

    #[test]
    fn zero_is_unset() {
        for raw in ["0", "-0", "+0", "0.000", "0Ki", "00e5", "0m"] {
            check(raw, Ok(Divisor::Unset));
        }
    }

    #[test]
    fn other_quantities_are_no_units() {
        // Upstream prints 1024 as 1024, 1000Ki as 1000Ki, and 1e3 as 1e3.
        let long = format!("1{}", "3".repeat(60));
        for raw in ["2", "-1", "10", "1024", "1000Ki", "1e3", "1E3", "1n", "1u", &long] {
            check(raw, Ok(Divisor::Other));
        }
        check(&format!("1{}", "0".repeat(100_000)), Ok(Divisor::Other));
        check(&format!("0.{}1Ei", "0".repeat(100_000)), Ok(Divisor::Other));
        check("1e9223372036854775807", Ok(Divisor::Other));
        check("10e9223372036854775807", Ok(Divisor::Other));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for raw in ["", "-", ".", "x", "Ki", "1.2.3", "é"] {
            check(raw, Err(DivisorError::Format));
        }
        for raw in ["1x", "1K", "1ki", "1 ", "1mm", "1e", "1e1.5", "--1", "1é"] {
            assert!(Divisor::parse(raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn json_numbers_and_texts_are_taken() {
        let read = |value| serde_json::from_value::<Divisor>(value);
        assert_eq!(read(json!("1Mi")).unwrap(), Divisor::Unit("1Mi"));
        assert_eq!(read(json!(1)).unwrap(), Divisor::Unit("1"));
        assert_eq!(read(json!(0.001)).unwrap(), Divisor::Unit("1m"));
        assert_eq!(
            read(json!(true)).unwrap_err().to_string(),
            "found a boolean where a quantity belongs"
        );
        assert!(read(json!("one")).unwrap_err().to_string().starts_with("quantities must match"));
    }
}
