//! The texts that must have a form: times and base64.

use jiff::civil::Date;

/// Whether `text` is base64 with padding, as Go's decoder takes it.
pub(super) fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let in_alphabet = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.len().is_multiple_of(4) && text.len() - body.len() <= 2 && body.bytes().all(in_alphabet)
}

/// Whether `text` is a time of RFC 3339, as Go's `time.Parse` takes it.
pub(super) fn is_time(text: &str) -> bool {
    decimals(text).is_some()
}

/// Whether `text` is a time with six decimals. Clients in Go refuse to read a `MicroTime` with any
/// other number of them, so one bad lease would break every reader of leases.
pub(super) fn is_micro_time(text: &str) -> bool {
    decimals(text) == Some(6)
}

/// The number of decimals of the seconds, if `text` is a time of RFC 3339.
fn decimals(text: &str) -> Option<usize> {
    let (date, rest) = text.split_at_checked(10)?;
    let (clock, rest) = rest.strip_prefix('T')?.split_at_checked(8)?;
    is_date(date)?;
    let (hour, minute) = hour_and_minute(clock.get(..5)?)?;
    let second = two_digits(clock.get(5..)?.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (decimals, zone) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let count = fraction.bytes().take_while(u8::is_ascii_digit).count();
            (Some(count).filter(|count| *count > 0)?, fraction.get(count..)?)
        }
        None => (0, rest),
    };
    is_zone(zone).then_some(decimals)
}

fn is_date(text: &str) -> Option<Date> {
    let (year, rest) = text.split_at_checked(4)?;
    let (month, day) = rest.strip_prefix('-')?.split_once('-')?;
    Date::new(number(year)?, two_digits(month)?, two_digits(day)?).ok()
}

fn is_zone(text: &str) -> bool {
    if text == "Z" {
        return true;
    }
    let offset = text.strip_prefix(['+', '-']).and_then(hour_and_minute);
    offset.is_some_and(|(hours, minutes)| hours <= 24 && minutes < 60)
}

fn hour_and_minute(text: &str) -> Option<(i8, i8)> {
    let (hour, minute) = text.split_once(':')?;
    Some((two_digits(hour)?, two_digits(minute)?))
}

fn two_digits(text: &str) -> Option<i8> {
    if text.len() == 2 { number(text) } else { None }
}

/// Digits only: `parse` alone would take a sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_time(text: &str, expected: Option<usize>) {
        assert_eq!(decimals(text), expected, "{text:?}");
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        check_time("2024-02-29T23:59:59Z", Some(0));
        check_time("2024-02-29T23:59:59.123456Z", Some(6));
        check_time("2024-02-29T23:59:59.1+02:00", Some(1));
        check_time("2024-02-29T23:59:59-11:30", Some(0));
    }

    #[test]
    fn other_texts_are_no_times() {
        let others = [
            "",
            "2024",
            "2024-02-29",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-02-29 23:59:59Z",
            "2024-02-29t23:59:59z",
            "2024-02-29T24:00:00Z",
            "2024-02-29T23:60:00Z",
            "2024-02-29T23:59:60Z",
            "2024-02-29T23:59:59",
            "2024-02-29T23:59:59.Z",
            "2024-02-29T23:59:59.1",
            "2024-02-29T23:59:59+0200",
            "2024-02-29T23:59:59+02:00x",
            "+024-02-29T23:59:59Z",
            "2024-2-029T23:59:59Z",
            "2024-02-29T+3:59:59Z",
            "2024-02-29T23:59:5éZ",
            "é024-02-29T23:59:59Z",
        ];
        for text in others {
            check_time(text, None);
        }
    }

    #[test]
    fn base64_is_padded() {
        for text in ["", "YQ==", "YWI=", "YWJj", "+/+/"] {
            assert!(is_base64(text), "{text:?}");
        }
        for text in ["YQ", "YQ=", "Y===", "====", "YW=j", "YW-_", "YWJ ", "YWJjé"] {
            assert!(!is_base64(text), "{text:?}");
        }
    }
}
