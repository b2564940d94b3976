//! What the wrapper leaves behind about an exec, before it happens. No value is in it.

use serde::{Deserialize, Serialize};

use super::{SessionId, StockKind};

/// Most bytes of a command that a record keeps.
pub const RECORD_ARGV_BYTES: usize = 4096;

/// One exec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    /// 1.
    pub version: u32,
    /// Whose it is; none unless it is attributed.
    pub session: Option<SessionId>,
    /// What it is.
    pub kind: StockKind,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The life of the pod.
    pub uid: String,
    /// The container.
    pub container: String,
    /// The container as the runtime calls it.
    pub container_id: String,
    /// What was run, cut as [`cut_argv`] does.
    pub argv: Vec<String>,
    /// The directory of its cgroup; empty when it has none of its own.
    pub cgroup: String,
    /// The ID that the kernel gave the cgroup, which is what counts; 0 when it has none.
    pub cgroup_id: u64,
    /// When it was about to start, in nanoseconds since 1970.
    pub started_ns: u64,
    /// The process that became the runtime, in the machine's own numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// What was decided.
    pub verdict: Verdict,
    /// Whether the container could move processes between cgroups, so that the cgroup proves nothing.
    pub privileged: bool,
    /// When the agent saw that it had ended, in nanoseconds since 1970: about a second late, or when the agent was back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// How it ended, where that is known: of debug containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

impl SessionRecord {
    /// The version that is written here.
    pub const VERSION: u32 = 1;
}

/// What the wrapper decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A session that gate signed.
    Attributed,
    /// A declared probe.
    Probe,
    /// A declared hook.
    Hook,
    /// Nobody's, and let through.
    Unattributed,
    /// Not let through.
    Refused,
}

/// The first [`RECORD_ARGV_BYTES`] of a command, as JSON writes them: whole words, then one that is cut at a character and ends
/// with `…`, which is not counted.
pub fn cut_argv(argv: &[String]) -> Vec<String> {
    let mut room = RECORD_ARGV_BYTES;
    let mut kept = Vec::new();
    for word in argv {
        // A word without bytes has to count, too.
        let needed = word.chars().map(escaped).sum::<usize>().max(1);
        if needed <= room {
            kept.push(word.clone());
            room -= needed;
            continue;
        }
        let fits = |character: &char| {
            let left = room.checked_sub(escaped(*character));
            room = left.unwrap_or_default();
            left.is_some()
        };
        kept.push(word.chars().take_while(fits).chain(['…']).collect());
        break;
    }
    kept
}

/// How many bytes JSON needs for a character: what would be a control sequence becomes six.
fn escaped(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn a_record_has_these_names() {
        let record = SessionRecord {
            version: SessionRecord::VERSION,
            session: Some(SessionId::from_random([0; 16])),
            kind: StockKind::Exec,
            namespace: "ns".to_owned(),
            pod: "web".to_owned(),
            uid: "u".to_owned(),
            container: "main".to_owned(),
            container_id: "c".to_owned(),
            argv: vec!["sh".to_owned()],
            cgroup: "/sys/fs/cgroup/x".to_owned(),
            cgroup_id: 7,
            started_ns: 1,
            pid: Some(3),
            tty: false,
            verdict: Verdict::Attributed,
            privileged: false,
            ended_ns: None,
            exit_code: None,
        };
        let json = json!({
            "version": 1, "session": "0".repeat(32), "kind": "exec", "namespace": "ns", "pod": "web", "uid": "u",
            "container": "main", "containerId": "c", "argv": ["sh"], "cgroup": "/sys/fs/cgroup/x", "cgroupId": 7,
            "startedNs": 1, "pid": 3, "tty": false, "verdict": "attributed", "privileged": false,
        });
        assert_eq!(to_value(&record).unwrap(), json);
        assert_eq!(from_value::<SessionRecord>(json).unwrap(), record);
    }

    #[test]
    fn a_long_command_is_cut_at_a_character() {
        let argv = ["sh".to_owned(), "é".repeat(3000), "last".to_owned()];
        let kept = cut_argv(&argv);
        assert_eq!(kept, ["sh".to_owned(), format!("{}…", "é".repeat(2047))]);
        assert_eq!(cut_argv(&argv[..1]), argv[..1]);
    }

    proptest! {
        #[test]
        fn a_record_stays_small(argv in proptest::collection::vec("[aé]{0,900}", 0..20)) {
            let kept = cut_argv(&argv);
            let bytes: usize = kept.iter().map(String::len).sum();
            prop_assert!(bytes <= RECORD_ARGV_BYTES + '…'.len_utf8());
            prop_assert!(kept.len() <= argv.len());
        }
    }

    /// A record is a page of the node's memory, or two.
    #[test]
    fn control_characters_count_as_json_writes_them() {
        let kept = cut_argv(&["\u{1}".repeat(4000), "x".to_owned()]);
        assert_eq!(kept.len(), 1);
        assert!(serde_json::to_string(&kept).unwrap().len() <= RECORD_ARGV_BYTES + 8);
        let quotes = ["\"".repeat(2048)];
        assert_eq!(cut_argv(&quotes), quotes);
    }

    #[test]
    fn many_empty_words_are_cut_too() {
        assert_eq!(cut_argv(&vec![String::new(); 10_000]).len(), RECORD_ARGV_BYTES + 1);
    }
}
