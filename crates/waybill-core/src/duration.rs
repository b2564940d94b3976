//! Durations as Go writes them, which is how parameters of a ProviderClass have them.

use core::time::Duration;

/// Parses what Go's `time.ParseDuration` takes, without a sign: `1m30s`, `1.5s`, `500ms`.
///
/// Digits beyond the nanosecond are dropped.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_ends = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(unit_ends.unwrap_or(after.len()));
        let nanos = scale(whole, fraction, nanos_per(unit)?)?;
        total = total.checked_add(Duration::from_nanos(nanos))?;
        rest = after;
    }
    Some(total)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn nanos_per(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(1),
        // The micro sign and the Greek letter, as in Go.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60 * 1_000_000_000),
        "h" => Some(3_600 * 1_000_000_000),
        _ => None,
    }
}

/// `whole.fraction` times `unit`; `None` if it is too large.
fn scale(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Each digit divides the unit by ten; when nothing is left the others cannot count.
    let mut place = unit;
    let mut nanos = whole.checked_mul(unit)?;
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(place * u64::from(digit - b'0'))?;
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, millis) in
            [("0", 0), ("0s", 0), ("90s", 90_000), ("1m30s", 90_000), (".5s", 500)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text:?}");
        }
        for wrong in ["", "5", "5 s", "-5s", "s", "1d", "1s,", "99999999999h"] {
            assert_eq!(parse_duration(wrong), None, "{wrong:?}");
        }
    }
}
