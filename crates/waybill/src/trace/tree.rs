//! What ran in a session, as a tree for people.

use std::collections::BTreeMap;

use waybill_trace::{ProcessState, RecordedProcess, RecordedSession};

use super::table::{second, user};
use crate::terminal::plain;

/// So much of a command line is shown.
const COMMAND: usize = 160;

/// The programs of a session below one another, and who else was in its container.
pub(super) fn text(
    session: &RecordedSession,
    processes: &[RecordedProcess],
    others: &[&RecordedSession],
) -> String {
    let mut text = format!("Session {}: {} programs", plain(&session.id), session.programs);
    text += match session.event_source {
        None => ", of which nothing was collected",
        Some(waybill_trace::EventSource::Ebpf) => ", from the kernel (eBPF)",
        Some(waybill_trace::EventSource::Connector) => {
            ", from the proc connector: short ones may be missing"
        }
        Some(waybill_trace::EventSource::Scan) => {
            ", from looks at what ran: short ones are missing"
        }
    };
    if !session.complete {
        text += &format!("; not complete, {} are known to be missing", session.lost);
    }
    text += "\n";
    let mut tree = Tree { children: BTreeMap::new(), processes, text };
    for (at, process) in processes.iter().enumerate() {
        tree.children.entry(parent(processes, at, process)).or_default().push(at);
    }
    tree.write(None, "");
    let mut text = tree.text;
    for other in others {
        let who = other.trace.caller.as_ref().map_or_else(|| "(nobody known)".to_owned(), user);
        let (who, id) = (plain(&who), plain(&other.id));
        text += &format!(
            "  at the same time: {who}, since {}, session {id}\n",
            second(other.trace.started)
        );
    }
    text
}

/// The program above: the last one that its process had begun before.
fn parent(processes: &[RecordedProcess], at: usize, process: &RecordedProcess) -> Option<usize> {
    let before = processes.get(..at)?;
    let same = |pid: u32| before.iter().rposition(|other| other.pid == pid);
    // A process that runs another program goes on as that.
    let replaced = same(process.pid).filter(|it| {
        before.get(*it).is_some_and(|other| {
            other.state == ProcessState::Replaced && other.ended == Some(process.started)
        })
    });
    replaced.or_else(|| process.parent_program.and_then(same))
}

struct Tree<'a> {
    children: BTreeMap<Option<usize>, Vec<usize>>,
    processes: &'a [RecordedProcess],
    text: String,
}

impl Tree<'_> {
    fn write(&mut self, of: Option<usize>, indent: &str) {
        // As deep as a terminal can show; children come after their parents, so there is no circle.
        let Some(children) = self.children.remove(&of) else { return };
        let last = children.len().saturating_sub(1);
        for (position, at) in children.into_iter().enumerate() {
            let Some(process) = self.processes.get(at) else { continue };
            let branch = if position == last { "└─ " } else { "├─ " };
            self.text += &format!("  {indent}{branch}{}\n", line(process));
            let below = if position == last { "   " } else { "│  " };
            let deeper = if indent.chars().count() < 120 {
                format!("{indent}{below}")
            } else {
                indent.to_owned()
            };
            self.write(Some(at), &deeper);
        }
    }
}

fn line(process: &RecordedProcess) -> String {
    let end = match (process.state, process.exit_code, process.signal) {
        (ProcessState::Running, ..) => "runs".to_owned(),
        (ProcessState::Replaced, ..) => "became".to_owned(),
        (ProcessState::Unknown, ..) => "ended, nobody knows how".to_owned(),
        (ProcessState::Ended, Some(code), _) => format!("exit {code}"),
        (ProcessState::Ended, _, Some(signal)) => format!("signal {signal}"),
        (ProcessState::Ended, None, None) => "ended".to_owned(),
    };
    let all = words(process);
    let mut words: String = plain(&all).chars().take(COMMAND).collect();
    if process.cut || all.chars().count() > COMMAND {
        words.push('…');
    }
    let moved = process.moved.map(|_| " (moved: nobody's)").unwrap_or_default();
    let time = process.started.strftime("%H:%M:%S%.3f");
    format!("{time} {} uid {} {words} [{end}]{moved}", process.pid, process.uid)
}

/// Where programs of an image lie. What is elsewhere is told with its path.
const USUAL: [&str; 6] =
    ["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// What ran. A program chooses its first argument, so that alone is told only of those that go by their own name from where programs are.
fn words(process: &RecordedProcess) -> String {
    let Some((called, rest)) = process.arguments.split_first() else {
        return process.program.clone();
    };
    let (directory, name) = process.program.rsplit_once('/').unwrap_or(("", &process.program));
    let goes_by = called.strip_prefix('-').unwrap_or(called);
    let goes_by = goes_by.rsplit('/').next().unwrap_or_default();
    if *called == process.program || (goes_by == name && USUAL.contains(&directory)) {
        return process.arguments.join(" ");
    }
    let ran = std::iter::once(&process.program).chain(rest).map(String::as_str);
    let ran = ran.collect::<Vec<_>>().join(" ");
    if goes_by == name { ran } else { format!("{ran} (as {called})") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn process(
        pid: u32,
        parent: Option<u32>,
        second: u32,
        words: &str,
        state: &str,
    ) -> RecordedProcess {
        let words: Vec<_> = words.split(' ').collect();
        let ended = (state != "running").then(|| format!("2026-01-02T03:04:{:02}Z", second + 1));
        serde_json::from_value(json!({
            "session": "s", "pid": pid, "parent": 1, "parentProgram": parent, "uid": 0, "program": format!("/bin/{}", words[0]),
            "arguments": words, "cut": false, "hiddenAt": [], "started": format!("2026-01-02T03:04:{second:02}Z"),
            "ended": ended, "exitCode": (state == "ended").then_some(0), "signal": null, "state": state, "source": "ebpf",
        }))
        .unwrap()
    }

    /// Hole: `execv("/tmp/evil", ["ls", "-la"])` was shown as `ls -la`.
    #[test]
    fn a_program_is_not_told_by_the_name_that_it_chose() {
        for (program, arguments, expected) in [
            ("/bin/ls", &["ls", "-la"][..], "ls -la"),
            ("/usr/bin/bash", &["-bash"], "-bash"),
            ("/app/run", &["/app/run", "x"], "/app/run x"),
            ("/tmp/evil", &["ls", "-la"], "/tmp/evil -la (as ls)"),
            ("/tmp/ls", &["ls", "-la"], "/tmp/ls -la"),
            ("ls", &["ls"], "ls"),
            ("/tmp/evil", &[], "/tmp/evil"),
            ("/tmp/evil", &[""], "/tmp/evil (as )"),
        ] {
            let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
            let shown = RecordedProcess {
                program: program.to_owned(),
                arguments,
                ..process(7, None, 5, "x", "ended")
            };
            assert_eq!(words(&shown), expected);
        }
    }

    fn session() -> RecordedSession {
        serde_json::from_value(json!({
            "id": "s", "kind": "exec", "auditID": "a", "session": "s", "namespace": "shop", "pod": "web",
            "container": "app", "containerID": "c1", "command": ["sh"], "variables": [],
            "started": "2026-01-02T03:04:05Z", "end": {"state": "running"},
            "eventSource": "ebpf", "programs": 4, "lost": 0, "complete": true,
        }))
        .unwrap()
    }

    #[test]
    fn programs_stand_below_the_one_that_started_them() {
        let processes = [
            process(7, None, 5, "sh -c x", "replaced"),
            process(8, Some(7), 5, "ls\u{1b}[2J", "ended"),
            process(7, None, 6, "sleep 9", "running"),
            process(9, Some(7), 7, "true", "ended"),
        ];
        let text = text(&session(), &processes, &[]);
        let expected = "\
Session s: 4 programs, from the kernel (eBPF)
  └─ 03:04:05.000 7 uid 0 sh -c x [became]
     ├─ 03:04:05.000 8 uid 0 ls\u{fffd}[2J [exit 0]
     └─ 03:04:06.000 7 uid 0 sleep 9 [runs]
        └─ 03:04:07.000 9 uid 0 true [exit 0]
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_missing_is_said() {
        let session = RecordedSession { complete: false, lost: 3, ..session() };
        assert!(text(&session, &[], &[]).contains("not complete, 3 are known to be missing"));
    }
}
