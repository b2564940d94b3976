//! From entries to what a user reads: the lines that the process printed, whole again, and only those
//! that were asked for. No IO.

use jiff::{SignedDuration, Timestamp};

use super::{
    entry::{Entry, Stream},
    options::{LogOptions, Since},
};

/// How much of a line that is not complete is kept back so that lines of the other stream do not
/// fall into it.
const LONGEST: usize = 1 << 20;

/// Renders entries, one after the other.
#[derive(Debug)]
pub(super) struct Renderer {
    since: Option<Timestamp>,
    stream: Option<Stream>,
    timestamps: bool,
    /// How many bytes may still be written.
    room: Option<u64>,
    stdout: Line,
    stderr: Line,
}

/// A line that has begun.
#[derive(Debug, Default)]
struct Line {
    /// With the time, if that is shown.
    begun: Vec<u8>,
    /// Its first part was written already, because it was too long to be kept.
    written: bool,
}

impl Renderer {
    pub(super) fn new(options: &LogOptions, now: Timestamp) -> Self {
        let since = options.since.map(|since| match since {
            Since::Time(time) => time,
            Since::Seconds(seconds) => {
                let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
                now.checked_sub(seconds).unwrap_or(Timestamp::MIN)
            }
        });
        Self {
            since,
            stream: options.stream,
            timestamps: options.timestamps,
            room: options.limit_bytes,
            stdout: Line::default(),
            stderr: Line::default(),
        }
    }

    /// Whether as much was written as was asked for.
    pub(super) fn is_full(&self) -> bool {
        self.room == Some(0)
    }

    /// Writes the entry to `out`, or keeps it until its line is complete.
    pub(super) fn render(&mut self, entry: Entry<'_>, out: &mut Vec<u8>) {
        if !self.wants(entry) {
            return;
        }
        let timestamps = self.timestamps;
        let line = self.line(entry.stream);
        if timestamps && line.begun.is_empty() && !line.written {
            line.begun.extend_from_slice(entry.time.as_bytes());
            line.begun.push(b' ');
        }
        line.begun.extend_from_slice(entry.content);
        if !entry.partial {
            line.begun.push(b'\n');
        } else if line.begun.len() < LONGEST {
            return;
        }
        line.written = entry.partial;
        let mut begun = std::mem::take(&mut line.begun);
        self.write(&begun, out);
        // The memory is used again.
        begun.clear();
        self.line(entry.stream).begun = begun;
    }

    /// Writes what is left of lines that were not completed.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let line = std::mem::take(self.line(stream));
            self.write(&line.begun, out);
        }
    }

    /// An entry whose time cannot be read is shown rather than lost.
    fn wants(&self, entry: Entry<'_>) -> bool {
        let late = self
            .since
            .is_none_or(|since| entry.time.parse::<Timestamp>().map_or(true, |time| time >= since));
        late && self.stream.is_none_or(|stream| stream == entry.stream)
    }

    fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(room) = &mut self.room else {
            out.extend_from_slice(bytes);
            return;
        };
        let fitting = usize::try_from(*room).map_or(bytes.len(), |room| room.min(bytes.len()));
        out.extend(bytes.iter().take(fitting));
        *room -= u64::try_from(fitting).unwrap_or(*room);
    }

    fn line(&mut self, stream: Stream) -> &mut Line {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-08-01T10:00:00.000000000Z stdout F one
2026-08-01T10:00:01.000000000Z stderr P tw
2026-08-01T10:00:01.500000000Z stdout F three
2026-08-01T10:00:02.000000000Z stderr F o
2026-08-01T10:00:03.000000000Z stdout P end";

    #[track_caller]
    fn check(query: &str, expected: &str) {
        let options = LogOptions::from_query(query).unwrap();
        let now = "2026-08-01T10:00:04Z".parse().unwrap();
        let mut renderer = Renderer::new(&options, now);
        let mut out = Vec::new();
        for line in LOG.lines() {
            renderer.render(Entry::parse(line.as_bytes()).unwrap(), &mut out);
        }
        renderer.finish(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{query}");
    }

    #[test]
    fn parts_of_a_line_are_joined_even_if_another_line_comes_between() {
        check("", "one\nthree\ntwo\nend");
    }

    #[test]
    fn times_stand_before_lines_and_not_before_parts() {
        check("timestamps=true&stream=Stderr", "2026-08-01T10:00:01.000000000Z two\n");
    }

    #[test]
    fn one_stream_alone_can_be_read() {
        check("stream=Stdout", "one\nthree\nend");
        check("stream=All", "one\nthree\ntwo\nend");
    }

    #[test]
    fn lines_before_a_time_are_left_out() {
        check("sinceTime=2026-08-01T10:00:01.5Z", "three\no\nend");
        check("sinceSeconds=2", "o\nend");
        check("sinceSeconds=9999999999999999", "one\nthree\ntwo\nend");
    }

    #[test]
    fn bytes_are_counted_as_they_are_written() {
        check("limitBytes=6", "one\nth");
        check("limitBytes=4&timestamps=true", "2026");
        check("limitBytes=1000", "one\nthree\ntwo\nend");
    }

    #[test]
    fn a_line_that_is_too_long_to_be_kept_is_written_in_parts() {
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        let mut renderer = Renderer::new(&options, Timestamp::UNIX_EPOCH);
        let mut out = Vec::new();
        let part = vec![b'x'; 400 << 10];
        let entry = |partial| Entry { time: "t", stream: Stream::Stdout, partial, content: &part };
        for _ in 0..8 {
            renderer.render(entry(true), &mut out);
            assert!(renderer.stdout.begun.len() < LONGEST);
        }
        renderer.render(entry(false), &mut out);
        assert_eq!(out.len(), "t ".len() + 9 * part.len() + 1);
        assert!(out.starts_with(b"t xxx") && out.ends_with(b"xxx\n"));
    }
}
