//! Processes that live in the cgroups of sessions.

use std::{collections::HashMap, fs, io, path::Path};

use serde::Serialize;

/// How the runtime names the cgroup of a session.
const PREFIX: &str = "exec-";

/// A process of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveProcess {
    /// As the machine counts.
    pub pid: u32,
    /// Its command line as it is now; a process may rewrite it.
    pub command: Vec<String>,
}

/// The processes of all sessions, as they were when the kernel was asked.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    sessions: HashMap<String, Vec<LiveProcess>>,
}

impl Processes {
    /// Asks the kernel. Needs to see `/proc` of the machine.
    pub fn read() -> io::Result<Self> {
        let mut found = Self::default();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process may end while it is looked at.
            let Ok(Some(session)) = session_of(pid) else { continue };
            let process = LiveProcess { pid, command: command(pid) };
            found.sessions.entry(session).or_default().push(process);
        }
        for processes in found.sessions.values_mut() {
            processes.sort_by_key(|process| process.pid);
        }
        Ok(found)
    }

    /// Those of one session.
    pub fn of(&self, session: &str) -> &[LiveProcess] {
        self.sessions.get(session).map_or(&[], Vec::as_slice)
    }
}

/// The session that a process belongs to, if it is in one at all.
pub fn session_of(pid: u32) -> io::Result<Option<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    Ok(session_in(&text))
}

/// The unified hierarchy is the line with number 0. Processes may have made further cgroups below that of
/// their session.
fn session_in(cgroups: &str) -> Option<String> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut parts = Path::new(path).components().filter_map(|part| part.as_os_str().to_str());
    parts.find_map(|part| part.strip_prefix(PREFIX)).map(str::to_owned)
}

/// The command line of a process as it is now; empty if the process is gone or hides it.
pub fn command(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_is_named_by_the_unified_hierarchy() {
        let hybrid = "12:pids:/waybill/x\n1:name=systemd:/\n0::/waybill/pod1/box/exec-7f3a\n";
        assert_eq!(session_in(hybrid).as_deref(), Some("7f3a"));
        assert_eq!(session_in("0::/waybill/pod1/box/exec-7f3a/below\n").as_deref(), Some("7f3a"));
        assert_eq!(session_in("0::/waybill/pod1/box\n"), None);
        assert_eq!(session_in("12:pids:/exec-1\n"), None);
    }

    #[test]
    fn this_process_is_in_no_session() {
        assert_eq!(session_of(std::process::id()).unwrap(), None);
        assert!(Processes::read().unwrap().of("none").is_empty());
    }
}
