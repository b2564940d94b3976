//! Quantities: amounts of resources such as `100m` or `1Gi`.

use std::cmp::Ordering;

use serde_json::Value;
use waybill_api::pod::{Divisor, DivisorError};

/// An amount, to the thousandth, and the style it was written in.
///
/// What is finer is rounded up, as upstream does with every resource of a pod; what is beyond
/// reason is cut off at the largest amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    thousandths: i128,
    style: Style,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// `Ki`, `Mi` and so on.
    Binary,
    /// `m`, none, `k` and so on.
    Decimal,
    /// `e3` and so on.
    Exponent,
}

impl Quantity {
    /// Reads a quantity, which Kubernetes takes as text and as a number.
    pub(crate) fn read(value: &Value) -> Result<Self, DivisorError> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(DivisorError::Format),
        }
    }

    /// Parses the text of a quantity.
    pub(crate) fn parse(raw: &str) -> Result<Self, DivisorError> {
        // The grammar is the same, and so are the texts of its errors.
        Divisor::parse(raw)?;
        let unsigned = raw.trim_start_matches(['+', '-']);
        let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let (style, factor, power) = scale(suffix);
        let amount = thousandths(number, factor, power);
        let sign = if raw.starts_with('-') { -1 } else { 1 };
        Ok(Self { thousandths: amount * sign, style })
    }

    /// The one text for this amount in its style: no fraction, the largest suffix that fits.
    pub(crate) fn canonical(self) -> String {
        let whole = self.thousandths % 1000 == 0;
        if self.style == Style::Binary && whole && self.thousandths.unsigned_abs() >= 1_024_000 {
            return with_suffix(
                self.thousandths / 1000,
                1024,
                &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"],
            );
        }
        if self.style == Style::Exponent {
            return with_suffix(
                self.thousandths,
                1000,
                &["e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"],
            );
        }
        with_suffix(self.thousandths, 1000, &["m", "", "k", "M", "G", "T", "P", "E"])
    }

    pub(crate) fn is_negative(self) -> bool {
        self.thousandths < 0
    }

    pub(crate) fn is_zero(self) -> bool {
        self.thousandths == 0
    }

    /// Whether it counts things that cannot be cut.
    pub(crate) fn is_whole(self) -> bool {
        self.thousandths % 1000 == 0
    }

    /// Compares amounts, whatever their styles.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.thousandths.cmp(&other.thousandths)
    }

    /// The amount in thousandths, to add up.
    pub(crate) fn thousandths(self) -> i128 {
        self.thousandths
    }
}

/// More than any machine has, and safe to add up.
const LARGEST: i128 = 1 << 100;

/// What `suffix` says: the style, a factor, and a power of ten.
fn scale(suffix: &str) -> (Style, i128, i64) {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [(&str, i64); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    if let Some(at) = BINARY.iter().position(|&binary| binary == suffix) {
        return (Style::Binary, 1024_i128.pow(u32::try_from(at + 1).unwrap_or_default()), 0);
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(decimal, _)| *decimal == suffix) {
        return (Style::Decimal, 1, *power);
    }
    let power = suffix.trim_start_matches(['e', 'E']).parse().unwrap_or_default();
    (Style::Exponent, 1, power)
}

/// `number` times `factor` times ten to the `power`, in thousandths, rounded up.
fn thousandths(number: &str, factor: i128, power: i64) -> i128 {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return 0;
    }
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let exponent = power.saturating_add(3).saturating_sub(places);
    let Some(amount) = significant.parse().ok().and_then(|n: i128| n.checked_mul(factor)) else {
        return LARGEST;
    };
    let step = u32::try_from(exponent.unsigned_abs()).ok().and_then(|n| 10_i128.checked_pow(n));
    let scaled = match (step, exponent >= 0) {
        (Some(step), true) => amount.checked_mul(step).unwrap_or(LARGEST),
        (Some(step), false) => amount / step + i128::from(amount % step != 0),
        (None, true) => LARGEST,
        (None, false) => 1,
    };
    scaled.min(LARGEST)
}

fn with_suffix(mut amount: i128, step: i128, suffixes: &[&str]) -> String {
    let mut suffixes = suffixes.iter();
    let mut suffix = suffixes.next().copied().unwrap_or_default();
    while amount != 0 && amount % step == 0 {
        let Some(next) = suffixes.next() else { break };
        amount /= step;
        suffix = next;
    }
    if amount == 0 { "0".to_owned() } else { format!("{amount}{suffix}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(raw: &str, canonical: &str) {
        assert_eq!(Quantity::parse(raw).unwrap().canonical(), canonical, "{raw}");
    }

    #[test]
    fn every_amount_has_one_text_per_style() {
        for text in ["0", "1", "100m", "1500", "1k", "1Ki", "1000Mi", "1Gi", "1e3", "-5", "10E"] {
            check(text, text);
        }
        for (raw, text) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("1024Mi", "1Gi"),
            ("0.5Gi", "512Mi"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1n", "1m"),
            ("0.0001", "1m"),
            ("+1.", "1"),
            ("0.0", "0"),
            ("0Ki", "0"),
            ("2e3", "2e3"),
            ("1e-3", "1e-3"),
            ("1500k", "1500k"),
        ] {
            check(raw, text);
        }
    }

    #[test]
    fn numbers_are_read_and_other_values_are_not() {
        assert_eq!(Quantity::read(&json!(2)).unwrap().canonical(), "2");
        assert_eq!(Quantity::read(&json!(0.5)).unwrap().canonical(), "500m");
        for bad in [json!(null), json!("x"), json!(""), json!("1x"), json!([]), json!("1.2.3")] {
            assert!(Quantity::read(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn amounts_compare_across_styles() {
        let compare = |a, b| Quantity::parse(a).unwrap().compare(Quantity::parse(b).unwrap());
        assert_eq!(compare("1Ki", "1024"), Ordering::Equal);
        assert_eq!(compare("1G", "1Gi"), Ordering::Less);
        assert_eq!(compare("1e400", "99E"), Ordering::Greater);
        assert_eq!(compare("-1", "1m"), Ordering::Less);
    }

    proptest! {
        #[test]
        fn canonical_texts_stay(raw in "[+-]?[0-9]{1,30}(\\.[0-9]{0,20})?(m|k|Ki|Mi|E|Ei|e-?[0-9]{1,3})?") {
            let once = Quantity::parse(&raw).unwrap().canonical();
            prop_assert_eq!(Quantity::parse(&once).unwrap().canonical(), once);
        }

        #[test]
        fn no_text_panics(raw in ".*") {
            let _ = Quantity::parse(&raw);
        }
    }
}
