//! Finds where the last lines of a log begin, from its end, so that a large file costs no more than
//! what is shown of it.

use std::{io, os::unix::fs::FileExt};

use memchr::memrchr_iter;

use super::entry::{Head, LONGEST_HEAD, Stream};

/// How much is read at a time.
const BLOCK: usize = 64 << 10;

/// The place in `file`, of `length` bytes, where its last `lines` lines begin.
///
/// A line that was logged in parts counts once, and begins with its first part, if no line of the
/// other stream stands between them. With `stream` only its lines count.
///
/// The file may have become shorter: of an entry for which a disk has no room, the half that was written is taken back.
pub(super) fn start(
    file: &impl FileExt,
    mut length: u64,
    lines: u64,
    stream: Option<Stream>,
) -> io::Result<u64> {
    loop {
        match search(file, length, lines, stream)? {
            Found::Start(place) => return Ok(place),
            Found::Shorter(left) => length = left,
        }
    }
}

enum Found {
    /// Where the lines begin.
    Start(u64),
    /// How long the file is by now.
    Shorter(u64),
}

fn search(
    file: &impl FileExt,
    length: u64,
    lines: u64,
    stream: Option<Stream>,
) -> io::Result<Found> {
    let mut search = Search::new(length, lines, stream);
    // What the block after this one begins with: heads of lines may lie across the border.
    let mut after = Vec::new();
    let mut end = if lines == 0 { 0 } else { length };
    while end > 0 {
        let size = usize::try_from(end).map_or(BLOCK, |end| end.min(BLOCK));
        let at = end - u64::try_from(size).map_err(io::Error::other)?;
        let mut block = vec![0; size];
        let read = read_at(file, &mut block, at)?;
        if read < size {
            return Ok(Found::Shorter(at + u64::try_from(read).map_err(io::Error::other)?));
        }
        block.extend_from_slice(&after);
        let own = block.get(..size).unwrap_or_default();
        for feed in memrchr_iter(b'\n', own) {
            let line = block.get(feed + 1..).unwrap_or_default();
            let place = at + u64::try_from(feed + 1).map_err(io::Error::other)?;
            if search.is_over(line, place) {
                return Ok(Found::Start(search.begin));
            }
        }
        if at == 0 {
            search.is_over(&block, 0);
        }
        block.truncate(LONGEST_HEAD);
        (after, end) = (block, at);
    }
    Ok(Found::Start(search.begin))
}

/// Fills `block`, or as much of it as the file has.
fn read_at(file: &impl FileExt, block: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = block.get_mut(read..).filter(|rest| !rest.is_empty()) {
        let place = at + u64::try_from(read).map_err(io::Error::other)?;
        match file.read_at(rest, place) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Goes from line to line, the last one first.
struct Search {
    /// How many lines are still to be found.
    wanted: u64,
    stream: Option<Stream>,
    /// Where the earliest line that was found begins.
    begin: u64,
    /// Of which streams something was seen.
    seen: Vec<Stream>,
    /// The stream of the earliest line that is wanted; parts of it may stand before.
    last: Option<Stream>,
}

impl Search {
    fn new(length: u64, wanted: u64, stream: Option<Stream>) -> Self {
        Self { wanted, stream, begin: length, seen: Vec::new(), last: None }
    }

    /// Takes the line at `place`; says whether the search is over. Lines that are no entries are
    /// passed over, as they are when the log is shown.
    fn is_over(&mut self, line: &[u8], place: u64) -> bool {
        let head = line.get(..LONGEST_HEAD.min(line.len())).unwrap_or_default();
        let head = head.split(|byte| *byte == b'\n').next().and_then(Head::split);
        let Some((head, _)) = head else { return false };
        if self.stream.is_some_and(|stream| stream != head.stream) {
            return false;
        }
        if self.last.is_some_and(|last| !head.partial || head.stream != last) {
            return true;
        }
        self.begin = place;
        // The last part of a line that is not complete yet ends it for now.
        let ends_line = !head.partial || !self.seen.contains(&head.stream);
        if self.last.is_none() && ends_line {
            self.wanted -= 1;
            self.last = (self.wanted == 0).then_some(head.stream);
        }
        if !self.seen.contains(&head.stream) {
            self.seen.push(head.stream);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use proptest::prelude::*;

    use super::*;

    fn file(text: &[u8]) -> (File, u64) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        (file, u64::try_from(text.len()).unwrap())
    }

    #[track_caller]
    fn check(log: &str, lines: u64, stream: Option<Stream>, expected: &str) {
        let (file, length) = file(log.as_bytes());
        let start = usize::try_from(start(&file, length, lines, stream).unwrap()).unwrap();
        assert_eq!(&log[start..], expected, "{lines}");
    }

    #[test]
    fn the_last_lines_are_found() {
        let log = "t stdout F 1\nt stdout F 2\nt stderr F 3\n";
        check(log, 0, None, "");
        check(log, 1, None, "t stderr F 3\n");
        check(log, 2, None, "t stdout F 2\nt stderr F 3\n");
        check(log, 3, None, log);
        check(log, 4, None, log);
        check(log, u64::MAX, None, log);
        check("", 3, None, "");
    }

    #[test]
    fn a_line_in_parts_counts_once() {
        let log = "t stdout F 1\nt stdout P 2\nt stdout P 3\nt stdout F 4\n";
        check(log, 1, None, "t stdout P 2\nt stdout P 3\nt stdout F 4\n");
        check(log, 2, None, log);
        let open = "t stdout F 1\nt stdout P 2\nt stdout P 3\n";
        check(open, 1, None, "t stdout P 2\nt stdout P 3\n");
    }

    #[test]
    fn lines_of_one_stream_are_counted_alone() {
        let log = "t stdout F 1\nt stderr F 2\nt stdout F 3\nt stderr F 4\n";
        check(log, 2, Some(Stream::Stdout), log);
        check(log, 1, Some(Stream::Stdout), "t stdout F 3\nt stderr F 4\n");
    }

    #[test]
    fn an_end_without_line_feed_is_a_line_and_junk_is_none() {
        check("t stdout F 1\nt stdout F 2", 1, None, "t stdout F 2");
        check("t stdout F 1\njunk\n\n", 1, None, "t stdout F 1\njunk\n\n");
    }

    /// Hole: `kubectl logs --tail` failed now and then while the disk was full.
    #[test]
    fn what_was_taken_back_meanwhile_is_no_error() {
        let log = "t stdout F 1\nt stdout F 2\n";
        let (file, length) = file(log.as_bytes());
        for more in [1, 30, 3 * BLOCK as u64] {
            let start = start(&file, length + more, 1, None).unwrap();
            assert_eq!(&log[usize::try_from(start).unwrap()..], "t stdout F 2\n");
        }
    }

    #[test]
    fn blocks_have_no_influence() {
        for content in [1, 100, BLOCK - 14, BLOCK - 13, BLOCK - 12, BLOCK, 3 * BLOCK] {
            let line = format!("t stdout F {}\n", "x".repeat(content));
            let log = format!("t stdout F first\n{line}{line}");
            check(&log, 2, None, &format!("{line}{line}"));
            check(&log, 3, None, &log);
        }
    }

    proptest! {
        #[test]
        fn no_file_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), lines in 0_u64..5) {
            let (file, length) = file(&bytes);
            prop_assert!(start(&file, length, lines, None).unwrap() <= length);
        }
    }
}
