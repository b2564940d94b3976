//! What ran in a session, as a tree for people.

use std::{collections::HashMap, rc::Rc};

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
    text += &branches(processes);
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

/// So deep a tree is drawn. What is deeper stands no further to the right, and says how deep it is.
const DRAWN: usize = 40;

/// A program that is to be written, below which others may follow.
struct Branch {
    at: usize,
    depth: usize,
    indent: Rc<str>,
    is_last: bool,
}

/// The tree, line by line. Who runs programs decides how deep it is, so nothing here calls itself.
fn branches(processes: &[RecordedProcess]) -> String {
    let (roots, children) = grow(processes);
    let mut text = String::new();
    let mut waiting = Vec::new();
    let below = |of: &[usize], depth: usize, indent: &Rc<str>, waiting: &mut Vec<Branch>| {
        let branch = |(position, at): (usize, &usize)| Branch {
            at: *at,
            depth,
            indent: Rc::clone(indent),
            is_last: position + 1 == of.len(),
        };
        waiting.extend(of.iter().enumerate().map(branch).rev());
    };
    below(&roots, 0, &Rc::from(""), &mut waiting);
    while let Some(Branch { at, depth, indent, is_last }) = waiting.pop() {
        let (Some(process), Some(children)) = (processes.get(at), children.get(at)) else {
            continue;
        };
        let (branch, more) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let level = if depth > DRAWN { format!("(level {depth}) ") } else { String::new() };
        text += &format!("  {indent}{branch}{level}{}\n", line(process));
        let deeper = if depth < DRAWN { format!("{indent}{more}").into() } else { indent };
        below(children, depth + 1, &deeper, &mut waiting);
    }
    text
}

/// Which programs have none above them, and for each of them those below.
fn grow(processes: &[RecordedProcess]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let (mut roots, mut children) = (Vec::new(), vec![Vec::new(); processes.len()]);
    // The last program that each process had begun, as time goes by.
    let mut last: HashMap<u32, usize> = HashMap::new();
    for (at, process) in processes.iter().enumerate() {
        // A process that runs another program goes on as that.
        let replaced = last.get(&process.pid).copied().filter(|before| {
            processes.get(*before).is_some_and(|before| {
                before.state == ProcessState::Replaced && before.ended == Some(process.started)
            })
        });
        let above = || process.parent_program.and_then(|pid| last.get(&pid).copied());
        match replaced.or_else(above).and_then(|above| children.get_mut(above)) {
            Some(of) => of.push(at),
            None => roots.push(at),
        }
        last.insert(process.pid, at);
    }
    (roots, children)
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

    /// Hole: who ran programs one from another, some ten thousand deep, ended the program of whoever looked at it.
    #[test]
    fn a_tree_of_any_depth_is_written_and_says_how_deep_it_is() {
        let depth = 100_000;
        let made = (0..depth).map(|at| process(at + 1, Some(at), 5, "true", "ended"));
        let processes: Vec<_> = made.collect();
        let text = branches(&processes);
        assert_eq!(text.lines().count(), depth as usize);
        let last = text.lines().last().unwrap();
        assert!(last.contains("└─ (level 99999) 03:04:05.000 100000 uid 0 true"), "{last}");
        assert!(text.lines().all(|line| line.chars().count() < 240));
        // One process that becomes another program again and again.
        let became = process(7, None, 5, "true", "replaced");
        let became = RecordedProcess { ended: Some(became.started), ..became };
        assert_eq!(branches(&vec![became; 100_000]).lines().count(), 100_000);
    }

    #[test]
    fn what_is_missing_is_said() {
        let session = RecordedSession { complete: false, lost: 3, ..session() };
        assert!(text(&session, &[], &[]).contains("not complete, 3 are known to be missing"));
    }
}
