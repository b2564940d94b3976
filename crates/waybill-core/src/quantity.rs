//! Quantities: amounts of resources such as `100m`, `1.5Gi` or `2e3`.
//!
//! As in Kubernetes an amount is exact to a billionth, finer ones are rounded away from zero, and
//! none is larger than 64 bits hold; see `k8s.io/apimachinery/pkg/api/resource`.

use core::{cmp::Ordering, fmt};

/// Billionths in one.
const NANO: i128 = 1_000_000_000;

/// The largest amount, in billionths.
const LIMIT: i128 = i64::MAX as i128 * NANO;

/// An amount of a resource, and the style it was written in.
///
/// Two quantities are equal if their amounts are; the style only chooses the text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    style: Style,
}

impl Quantity {
    /// Parses the text of a quantity.
    pub fn parse(raw: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match raw.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, raw.strip_prefix('+').unwrap_or(raw)),
        };
        let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let number = Number::parse(number)?;
        let (style, scale) = parse_suffix(suffix)?;
        let nanos = number.nanos(scale).min(LIMIT);
        Ok(Self { nanos: if negative { -nanos } else { nanos }, style })
    }

    /// The sum, in the style of the first part that is not zero; cut off at the largest amount.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let style = if self.is_zero() { other.style } else { self.style };
        Self { nanos: (self.nanos + other.nanos).clamp(-LIMIT, LIMIT), style }
    }

    /// The difference, in the style of the first part that is not zero; cut off at the largest amount.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        self.saturating_add(Self { nanos: -other.nanos, style: other.style })
    }

    /// A number of whole units.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        let nanos = (i128::from(units) * NANO).clamp(-LIMIT, LIMIT);
        Self { nanos, style: Style::Decimal }
    }

    /// The next amount, away from zero, that is a number of thousandths.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        let milli = NANO / 1000;
        let nanos = (divide_away_from_zero(self.nanos, milli) * milli).clamp(-LIMIT, LIMIT);
        Self { nanos, style: self.style }
    }

    /// In whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANO))
    }

    /// In thousandths, rounded away from zero; cut off at what 64 bits hold.
    pub fn milli_value(self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANO / 1000))
    }

    /// As a floating-point number, which may be off by a rounding.
    #[expect(clippy::cast_precision_loss, reason = "an approximation is asked for")]
    pub fn approximate(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Whether it is less than nothing.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is a number of whole units, as things are that cannot be cut.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }
}

/// The one text for this amount in its style: no fraction, and the largest suffix that fits.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Below 1024 and between whole numbers binary suffixes say nothing.
        let binary = self.is_whole() && self.nanos.unsigned_abs() >= 1024 * NANO.unsigned_abs();
        match self.style {
            Style::Binary if binary => write_scaled(self.nanos / NANO, 1024, &BINARY_SUFFIXES, f),
            Style::Exponent => write_scaled(self.nanos, 1000, &EXPONENTS, f),
            Style::Binary | Style::Decimal => write_scaled(self.nanos, 1000, &DECIMAL_SUFFIXES, f),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// Why a text is not a quantity; the texts are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// There is no number, or something that belongs to no quantity.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// What follows the number is no suffix.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How an amount is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Style {
    /// `Ki`, `Mi` and so on.
    Binary,
    /// `m`, none, `k` and so on.
    #[default]
    Decimal,
    /// `e3` and so on.
    Exponent,
}

/// What a number is multiplied by: `factor` times ten to the `power`.
#[derive(Clone, Copy)]
struct Scale {
    factor: u128,
    power: i64,
}

/// For billionths and every thousandfold of them.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const EXPONENTS: [&str; 10] = ["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"];

/// For one and every 1024-fold of it.
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn parse_suffix(suffix: &str) -> Result<(Style, Scale), QuantityError> {
    let decimal = DECIMAL_SUFFIXES.iter().zip((-9..).step_by(3)).find(|(text, _)| **text == suffix);
    if let Some((_, power)) = decimal {
        return Ok((Style::Decimal, Scale { factor: 1, power }));
    }
    let binary = BINARY_SUFFIXES.iter().zip((0..).step_by(10)).find(|(text, _)| **text == suffix);
    if let Some((_, bits)) = binary {
        return Ok((Style::Binary, Scale { factor: 1 << bits, power: 0 }));
    }
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    let power = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    if digits.is_empty() || power != letters {
        return Err(QuantityError::Suffix);
    }
    // An exponent too long to hold leads far beyond the limits anyway.
    let beyond = if power.starts_with('-') { i64::MIN } else { i64::MAX };
    let power = power.parse().unwrap_or(beyond);
    Ok((Style::Exponent, Scale { factor: 1, power }))
}

/// An unsigned decimal number as it is written.
struct Number<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
}

impl<'a> Number<'a> {
    fn parse(text: &'a str) -> Result<Self, QuantityError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(QuantityError::Format);
        }
        Ok(Self { whole: whole.as_bytes(), fraction: fraction.as_bytes() })
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u128> {
        self.whole.iter().chain(self.fraction).map(|digit| u128::from(digit - b'0'))
    }

    /// The number times `scale` in billionths, rounded up; some number above the limit if it is.
    fn nanos(&self, scale: Scale) -> i128 {
        let count = self.whole.len() + self.fraction.len();
        let places = i64::try_from(self.fraction.len()).unwrap_or(i64::MAX);
        let power = scale.power.saturating_add(9).saturating_sub(places);
        let below = if power < 0 { power.unsigned_abs() } else { 0 };
        let cut = usize::try_from(below).unwrap_or(usize::MAX).min(count);

        // As on paper from the right, as far as the digits are finer than a billionth: what is
        // carried on, and whether anything stays behind.
        let (mut carry, mut remainder) = (0, false);
        for digit in self.digits().rev().take(cut) {
            let product = digit * scale.factor + carry;
            (carry, remainder) = (product / 10, remainder || !product.is_multiple_of(10));
        }
        let mut left = below.saturating_sub(cut as u64);
        while left > 0 && carry > 0 {
            (carry, remainder, left) =
                (carry / 10, remainder || !carry.is_multiple_of(10), left - 1);
        }

        let kept = self.digits().take(count - cut);
        let kept = kept.fold(0_u128, |sum, digit| sum.saturating_mul(10).saturating_add(digit));
        let zeros = u32::try_from(power.max(0)).unwrap_or(u32::MAX);
        let sum = match kept {
            0 => carry,
            _ => kept
                .saturating_mul(scale.factor)
                .saturating_mul(10_u128.saturating_pow(zeros))
                .saturating_add(carry),
        };
        i128::try_from(sum.saturating_add(u128::from(remainder))).unwrap_or(i128::MAX)
    }
}

/// Writes `amount` with the last of `suffixes`, each `step` times the one before, that needs no
/// fraction.
fn write_scaled(
    mut amount: i128,
    step: i128,
    suffixes: &[&str],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if amount == 0 {
        return f.write_str("0");
    }
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next().copied().unwrap_or_default();
    while amount % step == 0 {
        let Some(next) = suffixes.next() else { break };
        (amount, suffix) = (amount / step, next);
    }
    write!(f, "{amount}{suffix}")
}

fn divide_away_from_zero(nanos: i128, unit: i128) -> i128 {
    nanos / unit + if nanos % unit == 0 { 0 } else { nanos.signum() }
}

fn saturate(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount > 0 { i64::MAX } else { i64::MIN })
}

#[cfg(test)]
mod tests;
