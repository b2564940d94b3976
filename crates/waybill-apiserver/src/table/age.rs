//! Spans of time as `kubectl` prints them: two units at most, and coarser the longer it was.

use jiff::Timestamp;

/// How long ago `then` was.
pub(crate) fn since(then: Option<Timestamp>, now: Timestamp) -> String {
    match then {
        Some(then) => human(now.duration_since(then).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / MINUTE, seconds / HOUR, seconds / DAY);
    match seconds {
        // Clocks differ; a second into the future is now.
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % MINUTE, 's'),
        _ if minutes < 3 * 60 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, 'd', hours % 24, 'h'),
        _ if days < 2 * YEAR_DAYS => format!("{days}d"),
        _ if days < 8 * YEAR_DAYS => two(days / YEAR_DAYS, 'y', days % YEAR_DAYS, 'd'),
        _ => format!("{}y", days / YEAR_DAYS),
    }
}

fn two(large: i64, large_unit: char, small: i64, small_unit: char) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR_DAYS: i64 = 365;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: i64, expected: &str) {
        assert_eq!(human(seconds), expected, "{seconds}");
    }

    #[test]
    fn spans_read_as_in_kubectl() {
        check(-2, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(123, "2m3s");
        check(10 * MINUTE - 1, "9m59s");
        check(10 * MINUTE, "10m");
        check(3 * HOUR - 1, "179m");
        check(3 * HOUR, "3h");
        check(3 * HOUR + 4 * MINUTE, "3h4m");
        check(8 * HOUR, "8h");
        check(2 * DAY - 1, "47h");
        check(2 * DAY, "2d");
        check(2 * DAY + 5 * HOUR, "2d5h");
        check(8 * DAY - 1, "7d23h");
        check(8 * DAY, "8d");
        check(400 * DAY, "400d");
        check(2 * YEAR_DAYS * DAY, "2y");
        check((2 * YEAR_DAYS + 3) * DAY, "2y3d");
        check(9 * YEAR_DAYS * DAY, "9y");
        check(i64::MAX, "292471208677y");
        check(i64::MIN, "<invalid>");
    }

    #[test]
    fn an_absent_time_is_unknown() {
        assert_eq!(since(None, Timestamp::UNIX_EPOCH), "<unknown>");
        assert_eq!(since(Some(Timestamp::MIN), Timestamp::MAX), "20012y");
    }
}
