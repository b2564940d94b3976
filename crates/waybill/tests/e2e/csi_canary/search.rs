//! One search over everything that a stack writes, keeps or tells.

use std::{
    collections::{BTreeSet, HashSet},
    env, fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use base64::{Engine, prelude::BASE64_STANDARD};

/// Files of other programs that are larger are no concern of ours; etcd's own log has 64 MB from the start.
const LARGEST: u64 = 128 << 20;

/// What is looked for, and where it was found.
pub(super) struct Search {
    forms: Vec<String>,
    since: SystemTime,
    looked_at: usize,
    /// Files, each of which is read once.
    read: HashSet<PathBuf>,
    found: BTreeSet<String>,
}

impl Search {
    /// For a mark of hexadecimal digits: escaping for JSON, YAML, URLs or a log leaves these as they are, and so do both
    /// alphabets of base64.
    pub(super) fn new(mark: &str, since: SystemTime) -> Self {
        let mut forms = vec![mark.to_owned()];
        forms.extend((0..3).map(|before| base64_within(mark, before)));
        let list = |show: fn(u8) -> String, between: &str| {
            mark.bytes().map(show).collect::<Vec<_>>().join(between)
        };
        forms.push(list(|byte| format!("{byte:02x}"), ""));
        forms.push(list(|byte| byte.to_string(), ", "));
        forms.push(list(|byte| byte.to_string(), ","));
        Self { forms, since, looked_at: 0, read: HashSet::new(), found: BTreeSet::new() }
    }

    /// Looks at something that was told.
    pub(super) fn text(&mut self, place: &str, content: &str) {
        assert!(!content.is_empty(), "{place} tells nothing");
        self.bytes(place, content.as_bytes());
    }

    fn bytes(&mut self, place: &str, content: &[u8]) {
        self.looked_at += 1;
        // Bytes of ASCII stay what they are.
        let content = String::from_utf8_lossy(content);
        if self.forms.iter().any(|form| content.contains(form.as_str())) {
            self.found.insert(place.to_owned());
        }
    }

    /// Looks at all files below, without following links, and at their names.
    pub(super) fn directory(&mut self, directory: &Path) {
        for path in files(directory) {
            self.file(&path);
        }
    }

    /// Looks at files elsewhere on the machine that changed since the start, those of other programs among them.
    pub(super) fn machine(mut self) -> Self {
        let places = ["/run", "/dev/shm", "/var/lib", "/var/log", "/var/tmp"].map(PathBuf::from);
        for path in places.into_iter().chain([env::temp_dir()]).flat_map(|place| files(&place)) {
            let is_ours = |metadata: &fs::Metadata| {
                let changed = metadata.modified().is_ok_and(|time| time >= self.since);
                changed && metadata.len() <= LARGEST
            };
            if path.symlink_metadata().as_ref().is_ok_and(is_ours) {
                self.file(&path);
            }
        }
        self
    }

    fn file(&mut self, path: &Path) {
        if !self.read.insert(path.to_owned()) {
            return;
        }
        let place = path.display().to_string();
        self.bytes(&place, place.as_bytes());
        // What goes away meanwhile cannot be read any more.
        self.bytes(&place, &fs::read(path).unwrap_or_default());
    }

    /// Looks at the command lines of all processes, and at the environments of those outside `cgroup`: inside of it
    /// are the containers, which are to have the values.
    pub(super) fn processes(&mut self, cgroup: &str) {
        let mut inside = 0;
        for entry in fs::read_dir("/proc").expect("procfs is mounted").flatten() {
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            if entry.file_name().to_string_lossy().parse::<u32>().is_err() {
                continue;
            }
            self.bytes("/proc/*/cmdline", &read("cmdline"));
            let environment = read("environ");
            if String::from_utf8_lossy(&read("cgroup")).contains(cgroup) {
                inside += usize::from(self.has_mark(&environment));
            } else {
                self.bytes("/proc/*/environ", &environment);
            }
        }
        assert!(inside > 0, "no container has a value, so this proves nothing");
    }

    fn has_mark(&self, content: &[u8]) -> bool {
        self.forms.first().is_some_and(|mark| String::from_utf8_lossy(content).contains(mark))
    }

    /// Where it is.
    pub(super) fn found(self) -> BTreeSet<String> {
        assert!(self.looked_at > 100, "only {} things were searched", self.looked_at);
        self.found
    }
}

/// How `mark` looks in the base64 of something that has so many bytes before it, times any three.
fn base64_within(mark: &str, before: usize) -> String {
    let encoded = BASE64_STANDARD.encode(format!("{}{mark}", "\0".repeat(before)));
    // Digits at the ends hold bits of the neighbours, too.
    let first = (before * 8).div_ceil(6);
    let last = (before + mark.len()) * 8 / 6;
    encoded[first..last].to_owned()
}

/// All files below, without following links.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// Whether the search reports a file that holds `content`.
#[track_caller]
fn check(mark: &str, content: &[u8], expected: bool) {
    let mut search = Search::new(mark, SystemTime::UNIX_EPOCH);
    search.bytes("here", content);
    assert_eq!(search.found.contains("here"), expected, "{:?}", String::from_utf8_lossy(content));
}

#[test]
fn a_value_is_found_in_every_form() {
    let mark = "5e1f77ab90c2d3e4";
    let value = format!("a \"quoted\" \\ {mark} word\n");
    check(mark, value.as_bytes(), true);
    check(mark, serde_json::json!({ "value": value }).to_string().as_bytes(), true);
    check(mark, format!("{:?}", value.as_bytes()).as_bytes(), true);
    for before in ["", "1", "12", "123", "1234"] {
        let encoded = BASE64_STANDARD.encode(format!("{before}{value}"));
        check(mark, format!("\u{fffd}{encoded}").as_bytes(), true);
        check(mark, BASE64_STANDARD.encode(format!("{before}{mark}")).as_bytes(), true);
    }
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    check(mark, hex.as_bytes(), true);
    let in_binary = [b"\xff\xfe\x80".as_slice(), value.as_bytes(), b"\xc3"].concat();
    check(mark, &in_binary, true);
    check(mark, b"5e1f77ab90c2d3e 4", false);
}
