//! What the interfaces of a network namespace counted, as one of its processes shows it.

use std::fs;

/// An interface: bytes, packets, errors and dropped packets, each way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) received: [u64; 4],
    pub(super) sent: [u64; 4],
}

/// Empty, if the process is gone.
pub(super) fn of_process(pid: i32) -> Vec<Interface> {
    parse(&fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default())
}

/// Two lines of headings, then `name: ` and eight numbers each way.
fn parse(text: &str) -> Vec<Interface> {
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> =
            numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let four = |from: usize| numbers.get(from..from.checked_add(4)?)?.try_into().ok();
        Some(Interface { name: name.trim().to_owned(), received: four(0)?, sent: four(8)? })
    };
    text.lines().filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_and_headings_are_not() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n    \
                    lo:    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let expected =
            Interface { name: "lo".into(), received: [1, 2, 3, 4], sent: [9, 10, 11, 12] };
        assert_eq!(parse(text), [expected]);
        assert_eq!(parse("lo: 1 2\n"), []);
    }
}
