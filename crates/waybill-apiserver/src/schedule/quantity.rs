//! Quantities: `100m`, `1.5Gi`, `2e3`.
//!
//! Exact to a billionth, rounded up beyond that, and limited to what 64 bits hold, as upstream.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// Billionths in one.
const NANO: i128 = 1_000_000_000;

/// The largest amount, in billionths.
const LIMIT: i128 = i64::MAX as i128 * NANO;

/// Where a number without its suffix saturates: so large that only an absurd exponent leads back.
const MOST: i128 = 10_i128.pow(36);

/// Digits after the point that are read; more would not fit with an integer part of full length.
const FRACTION: i32 = 18;

/// An amount of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity {
    nanos: i128,
}

impl Quantity {
    /// Parses the text of a quantity.
    pub(crate) fn parse(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', ..] => (true, text.get(1..)),
            [b'+', ..] => (false, text.get(1..)),
            _ => (false, Some(text)),
        };
        let unsigned = unsigned.unwrap_or_default();
        let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let nanos = Decimal::parse(number)?.scale(Suffix::parse(suffix)?).min(LIMIT);
        Ok(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// In whole units, rounded up.
    pub(crate) fn value(self) -> i64 {
        self.in_units_of(NANO)
    }

    /// In thousandths, rounded up.
    pub(crate) fn milli_value(self) -> i64 {
        self.in_units_of(NANO / 1000)
    }

    fn in_units_of(self, unit: i128) -> i64 {
        let rounded_up = self.nanos.div_euclid(unit) + i128::from(self.nanos.rem_euclid(unit) > 0);
        i64::try_from(rounded_up).unwrap_or(if rounded_up > 0 { i64::MAX } else { i64::MIN })
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// The API takes a plain number as well as text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Self::parse(&text).map_err(de::Error::custom),
            Value::Number(number) => Self::parse(&number.to_string()).map_err(de::Error::custom),
            _ => Err(de::Error::custom("a quantity is text or a number")),
        }
    }
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error("a quantity starts with a decimal number")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// `mantissa` shifted by `shift` decimal digits, and a little more if `more`.
struct Decimal {
    mantissa: i128,
    shift: i32,
    more: bool,
}

impl Decimal {
    fn parse(number: &str) -> Result<Self, QuantityError> {
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        if integer.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(QuantityError::Number);
        }
        let mut decimal = Self { mantissa: 0, shift: 0, more: false };
        for digit in integer.bytes() {
            decimal.mantissa = (decimal.mantissa * 10 + i128::from(digit - b'0')).min(MOST);
        }
        // Such a number needs no fraction, and with one it would not fit.
        let precise = decimal.mantissa <= LIMIT / NANO;
        for digit in fraction.bytes() {
            if precise && decimal.shift > -FRACTION {
                decimal.mantissa = decimal.mantissa * 10 + i128::from(digit - b'0');
                decimal.shift -= 1;
            } else {
                decimal.more |= digit != b'0';
            }
        }
        Ok(decimal)
    }

    /// The amount in billionths; too large a result is some number above the limit.
    fn scale(&self, suffix: Suffix) -> i128 {
        let (factor, exponent) = match suffix {
            Suffix::Decimal(exponent) => (1, exponent),
            Suffix::Binary(tens) => (1_i128 << (10 * tens), 0),
        };
        let Some(scaled) = self.mantissa.checked_mul(factor) else {
            return i128::MAX;
        };
        let shift = exponent.saturating_add(self.shift).saturating_add(9);
        let power = 10_i128.checked_pow(shift.unsigned_abs());
        let nanos = match power {
            _ if scaled == 0 => 0,
            Some(power) if shift >= 0 => scaled.saturating_mul(power),
            None if shift >= 0 => i128::MAX,
            Some(power) => scaled / power + i128::from(scaled % power > 0),
            None => 1,
        };
        nanos.saturating_add(i128::from(self.more))
    }
}

/// What the number is multiplied by.
#[derive(Clone, Copy)]
enum Suffix {
    /// A power of ten.
    Decimal(i32),
    /// A power of 1024.
    Binary(u32),
}

impl Suffix {
    fn parse(text: &str) -> Result<Self, QuantityError> {
        Ok(match text {
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
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            _ => Self::Decimal(exponent(text)?),
        })
    }
}

fn exponent(text: &str) -> Result<i32, QuantityError> {
    let signed = text.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let digits = signed.strip_prefix(['+', '-']).unwrap_or(signed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Suffix);
    }
    let size = digits.parse().unwrap_or(i32::MAX);
    Ok(if signed.starts_with('-') { -size } else { size })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, milli: i64) {
        let quantity = Quantity::parse(text);
        assert_eq!(quantity.map(Quantity::milli_value), Ok(milli), "{text}");
    }

    #[test]
    fn every_suffix_is_known() {
        check("1", 1000);
        check("100m", 100);
        check("1n", 1);
        check("1000001u", 1001);
        check("2k", 2_000_000);
        check("3M", 3_000_000_000);
        check("1G", 1_000_000_000_000);
        check("1T", 1_000_000_000_000_000);
        check("1P", 1_000_000_000_000_000_000);
        check("1Ki", 1_024_000);
        check("1Mi", 1_048_576_000);
        check("1.5Gi", 1_610_612_736_000);
        check("0.5Ti", 549_755_813_888_000);
        assert_eq!(Quantity::parse("1Pi").unwrap().value(), 1 << 50);
        assert_eq!(Quantity::parse("1Ei").unwrap().value(), 1 << 60);
        assert_eq!(Quantity::parse("1E").unwrap().value(), 1_000_000_000_000_000_000);
    }

    #[test]
    fn exponents_points_and_signs_are_read() {
        check("1e3", 1_000_000);
        check("1E3", 1_000_000);
        check("1e-3", 1);
        check("15e+2", 1_500_000);
        check("+1.25", 1250);
        check(".5", 500);
        check("5.", 5000);
        check("-1", -1000);
        check("-1.5m", -1);
    }

    #[test]
    fn what_is_too_fine_is_rounded_up_and_what_is_too_large_is_cut() {
        check("0.0001", 1);
        check("1e-99999999999", 1);
        check("0e99999999999", 0);
        check("0.0000000000000000000001", 1);
        check("1.00000000000000000000000000001Ki", 1_024_001);
        for large in ["8Ei", "9223372036854775808", "1e99999999999", "99999999999999999999.5Ei"] {
            assert_eq!(Quantity::parse(large).unwrap().value(), i64::MAX, "{large}");
        }
        assert_eq!(Quantity::parse(&"9".repeat(999)).unwrap().value(), i64::MAX);
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for bad in ["", "-", ".", "m", "1.2.3", "é", "--1", "Ki"] {
            assert_eq!(Quantity::parse(bad), Err(QuantityError::Number), "{bad}");
        }
        for bad in ["1 ", "1K", "1e", "1e+", "1ki", "1mm", "1e1.5", "1é", "1i"] {
            assert_eq!(Quantity::parse(bad), Err(QuantityError::Suffix), "{bad}");
        }
    }

    #[test]
    fn json_numbers_are_quantities_too() {
        let parse = |json: &str| serde_json::from_str::<Quantity>(json);
        assert_eq!(parse("2").unwrap().milli_value(), 2000);
        assert_eq!(parse("0.5").unwrap().milli_value(), 500);
        assert_eq!(parse("\"2\"").unwrap(), parse("2").unwrap());
        assert!(parse("true").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "[-+]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,12}") {
            let _outcome = Quantity::parse(&text);
        }

        #[test]
        fn the_same_amount_in_other_words_is_equal(amount in 0..1_000_000_i64) {
            let whole = Quantity::parse(&amount.to_string()).unwrap();
            for text in [
                format!("{amount}000m"),
                format!("{amount}e0"),
                format!("{amount}.000"),
                format!("0.{amount:07}e7"),
            ] {
                prop_assert_eq!(Quantity::parse(&text).unwrap(), whole);
            }
        }
    }
}
