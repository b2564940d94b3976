//! Why a call does not reach the runtime, in fixed words.
//!
//! The line lands in a file that all calls of a container share, so it holds nothing of the call itself.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, Write},
    time::{Duration, SystemTime},
};

use waybill_api::stock::Refusal;

use crate::command_line::Log;

/// Why nothing happens.
#[derive(Clone, Debug, PartialEq, Eq)]

pub(crate) enum Fault {
    /// An exec that may not happen.
    Exec(Refusal),
    /// A container that may not be made.
    Create(CreateFault),
    /// A container whose memory must not reach a disk.
    Checkpoint,
    /// What was asked for is not understood, so nothing is done.
    CommandLine,
    /// The wrapper has no configuration that it knows.
    Configuration,
    /// The real runtime cannot be started.
    Runtime(io::ErrorKind),
}

/// Why a container is not made.
#[derive(Clone, Debug, PartialEq, Eq)]

pub(crate) enum CreateFault {
    /// A variable refers to something that the pod's own text does not ask for.
    UnknownReference,
    /// A variable begins as a reference and is none.
    BrokenReference,
    /// The agent has not told about the pod yet.
    UnknownPod,
    /// Values would reach a disk.
    OnDisk,
    /// The agent does not answer as it should.
    Agent,
    /// The agent says no; its text is fixed, too.
    Refused(String),
    /// A value that the kernel, or the runtime's format, does not take.
    Value,
    /// The container's description cannot be read or replaced.
    Bundle,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(refusal) => write!(f, "{refusal}"),
            Self::Create(fault) => write!(f, "waybill: create refused: {fault}"),
            Self::Checkpoint => f.write_str(
                "waybill: checkpoint refused: the container has variables that must not reach a disk",
            ),
            Self::CommandLine => f.write_str("waybill: refused: the command line is not understood"),
            Self::Configuration => f.write_str("waybill: refused: there is no configuration"),
            Self::Runtime(kind) => write!(f, "waybill: the real runtime cannot be started: {kind}"),
        }
    }
}

impl fmt::Display for CreateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownReference => "a variable refers to a value that the pod does not ask for",
            Self::BrokenReference => "a variable begins as a reference and is none",
            Self::UnknownPod => "the agent knows nothing of the pod yet",
            Self::OnDisk => "the runtime keeps its state on a disk",
            Self::Agent => "the agent does not answer",
            Self::Refused(text) => text,
            Self::Value => "a value cannot be a variable",
            Self::Bundle => "the bundle cannot be read or written",
        })
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Exec(refusal)
    }
}

impl From<CreateFault> for Fault {
    fn from(fault: CreateFault) -> Self {
        Self::Create(fault)
    }
}

/// Writes the line where the caller of the runtime looks for it. What cannot be written is not: the exit
/// code tells, too.
pub(crate) fn report(fault: &Fault, log: &Log, now: SystemTime) {
    let text = fault.to_string();
    if let Some(file) = &log.file
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file)
    {
        // One write, so that lines of several calls do not mix.
        let _ = file.write_all(line(&text, log.json, now).as_bytes());
    }
    let _ = writeln!(io::stderr(), "{text}");
}

/// As runc writes it, and crun.
fn line(text: &str, json: bool, now: SystemTime) -> String {
    let time = timestamp(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    if json {
        let line = serde_json::json!({"level": "error", "msg": text, "time": time});
        format!("{line}\n")
    } else {
        format!("time=\"{time}\" level=error msg={text:?}\n")
    }
}

/// RFC 3339, to the second, in UTC.
fn timestamp(since: Duration) -> String {
    let seconds = since.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one; 400 of them have 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_runtime_does() {
        let at = |seconds| timestamp(Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(at(1_794_955_445), "2026-11-17T22:44:05Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn a_refusal_is_one_line_of_the_runtimes_log() {
        let now = SystemTime::UNIX_EPOCH;
        let text = Fault::from(Refusal::NoSession).to_string();
        let json = "{\"level\":\"error\",\"msg\":\"waybill: exec refused: no session\",\"time\":\"1970-01-01T00:00:00Z\"}\n";
        assert_eq!(line(&text, true, now), json);
        let plain =
            "time=\"1970-01-01T00:00:00Z\" level=error msg=\"waybill: exec refused: no session\"\n";
        assert_eq!(line(&text, false, now), plain);
    }
}
