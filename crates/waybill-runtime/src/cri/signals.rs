//! Signals by name and by CRI's own numbers.

use waybill_proto::cri::Signal;

/// What ends a container that does not say otherwise.
pub(crate) const TERM: i32 = 15;

/// The first and the last real-time signal that programs may use, as glibc has it.
const REAL_TIME: (i32, i32) = (34, 64);

/// Names without `SIG`, as the kernel numbers them on all machines that we run on.
const NAMES: &[(&str, i32)] = &[
    ("ABRT", 6),
    ("ALRM", 14),
    ("BUS", 7),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("FPE", 8),
    ("HUP", 1),
    ("ILL", 4),
    ("INT", 2),
    ("IO", 29),
    ("IOT", 6),
    ("KILL", 9),
    ("PIPE", 13),
    ("POLL", 29),
    ("PROF", 27),
    ("PWR", 30),
    ("QUIT", 3),
    ("SEGV", 11),
    ("STKFLT", 16),
    ("STOP", 19),
    ("SYS", 31),
    ("TERM", 15),
    ("TRAP", 5),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("USR1", 10),
    ("USR2", 12),
    ("VTALRM", 26),
    ("WINCH", 28),
    ("XCPU", 24),
    ("XFSZ", 25),
];

/// The number of a name such as `SIGTERM`, `term`, `SIGRTMIN+3` or `15`.
pub(crate) fn parse(text: &str) -> Option<i32> {
    let upper = text.trim().to_ascii_uppercase();
    if let Ok(number) = upper.parse() {
        return (1..=REAL_TIME.1).contains(&number).then_some(number);
    }
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(other, _)| *other == name).map(|(_, number)| *number);
    named.or_else(|| real_time(name))
}

/// The number of CRI's enumeration; `None` for the default.
pub(crate) fn from_cri(signal: Signal) -> Option<i32> {
    // `SIGRTMINPLUS3` is how an enumeration writes `SIGRTMIN+3`.
    parse(&signal.as_str_name().replace("MINPLUS", "MIN+").replace("MAXMINUS", "MAX-"))
}

/// CRI's enumeration of a number, as status shows it.
pub(crate) fn to_cri(number: i32) -> Signal {
    let all = 1..=i32::from(Signal::Sigrtmax);
    let mut signals = all.filter_map(|value| Signal::try_from(value).ok());
    signals.find(|signal| from_cri(*signal) == Some(number)).unwrap_or(Signal::RuntimeDefault)
}

fn real_time(name: &str) -> Option<i32> {
    let offset = |rest: &str, sign: char| match rest {
        "" => Some(0),
        rest => rest.strip_prefix(sign)?.parse::<i32>().ok(),
    };
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => REAL_TIME.0.checked_add(offset(rest, '+')?)?,
        (None, Some(rest)) => REAL_TIME.1.checked_sub(offset(rest, '-')?)?,
        (None, None) => return None,
    };
    (REAL_TIME.0..=REAL_TIME.1).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_of_images_are_understood() {
        for (text, number) in [
            ("SIGTERM", Some(15)),
            ("quit", Some(3)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("SIGRTMIN", Some(34)),
            ("SIGRTMIN+99", None),
            ("SIGFLY", None),
            ("0", None),
            ("65", None),
            ("", None),
        ] {
            assert_eq!(parse(text), number, "{text:?}");
        }
    }

    #[test]
    fn every_signal_of_cri_has_a_number() {
        for value in 1..=i32::from(Signal::Sigrtmax) {
            let signal = Signal::try_from(value).unwrap();
            let number = from_cri(signal).unwrap_or_else(|| panic!("{signal:?}"));
            assert_eq!(from_cri(to_cri(number)), Some(number));
        }
        assert_eq!(from_cri(Signal::RuntimeDefault), None);
        assert_eq!(from_cri(Signal::Sigrtminplus3), Some(37));
    }
}
