//! The command lines of runc and crun, as far as the wrapper must understand them.
//!
//! Callers are containerd's shim and conmon, which write options in full. What is not known here is an
//! error and never a guess: an option taken for a container, or a value for an option, would be a way
//! around everything that follows.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// One call of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// All words after the program's own.
    pub(crate) words: Vec<OsString>,
    /// Where the runtime writes its log, and how.
    pub(crate) log: Log,
    /// Where it keeps its state, if the call says so.
    pub(crate) root: Option<PathBuf>,
    /// What it is to do.
    pub(crate) action: Action,
}

/// Where messages go, besides the standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// The file.
    pub(crate) file: Option<PathBuf>,
    /// Whether its lines are JSON.
    pub(crate) json: bool,
}

/// What the runtime is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `create` or `run`.
    Create {
        /// The container.
        id: String,
        /// Where the container's files are; the working directory when absent.
        bundle: Option<PathBuf>,
    },
    /// `exec`.
    Exec(Exec),
    /// `checkpoint`.
    Checkpoint {
        /// The container.
        id: String,
    },
    /// Anything else.
    Other,
}

/// An `exec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exec {
    /// The container.
    pub(crate) id: String,
    /// The file that describes the process, and the words of the option.
    pub(crate) process: Option<(PathBuf, std::ops::Range<usize>)>,
    /// The place of `exec` itself.
    pub(crate) at: usize,
    /// The command, when no file describes it.
    pub(crate) command: Vec<String>,
    /// Whether the command asks for a terminal.
    pub(crate) tty: bool,
    /// How many more descriptors the process gets.
    pub(crate) preserve: u32,
}

impl CommandLine {
    /// Reads the words after the program's own.
    pub(crate) fn parse(words: Vec<OsString>) -> Result<Self, CommandLineError> {
        let (options, at) = options(&words, 0, GLOBAL)?;
        let mut log = Log::default();
        let mut root = None;
        for option in &options {
            match option.name {
                // crun takes a scheme before the path.
                "log" => log.file = option.path().map(without_scheme),
                "log-format" => log.json = option.value.as_deref() == Some(OsStr::new("json")),
                "root" => root = option.path(),
                "help" | "h" | "version" | "v" | "V" => {
                    return Ok(Self { words, log, root, action: Action::Other });
                }
                _ => {}
            }
        }
        let action = match words.get(at).and_then(|word| word.to_str()) {
            Some("create" | "run") => create(&words, at + 1)?,
            Some("exec") => Action::Exec(exec(&words, at)?),
            Some("checkpoint") => Action::Checkpoint { id: sole_id(&words, at + 1, CHECKPOINT)?.1 },
            _ => Action::Other,
        };
        Ok(Self { words, log, root, action })
    }
}

impl Exec {
    /// The words of the call with another process file, and a cgroup below the container's.
    pub(crate) fn rewritten(
        &self,
        words: &[OsString],
        process: Option<&Path>,
        cgroup: Option<&str>,
    ) -> Vec<OsString> {
        let mut rewritten = Vec::with_capacity(words.len() + 2);
        for (at, word) in words.iter().enumerate() {
            match (&self.process, process) {
                (Some((_, place)), Some(file)) if place.contains(&at) => {
                    if at == place.start {
                        rewritten.extend(["--process".into(), file.as_os_str().to_owned()]);
                    }
                }
                _ => rewritten.push(word.clone()),
            }
            if at == self.at
                && let Some(cgroup) = cgroup
            {
                rewritten.extend(["--cgroup".into(), cgroup.into()]);
            }
        }
        rewritten
    }
}

/// Why a command line is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]

pub(crate) enum CommandLineError {
    /// An option that neither runtime has, or that only crun's own shorthand allows.
    #[error("an option is not known")]
    Option,
    /// An option without its value.
    #[error("an option has no value")]
    Value,
    /// No container, or one with an impossible name.
    #[error("there is no container")]
    Container,
    /// Something that the wrapper itself has to decide.
    #[error("an option is given that is the wrapper's to give")]
    Ours,
}

/// An option's name, and whether a value follows.
type Known = (&'static str, bool);

/// Of runc 1.1 to 1.5 and crun 1.3 to 1.28, before the subcommand.
const GLOBAL: &[Known] = &[
    ("debug", false),
    ("log", true),
    ("log-format", true),
    ("log-level", true),
    ("root", true),
    ("criu", true),
    ("systemd-cgroup", false),
    ("cgroup-manager", true),
    ("rootless", true),
    ("help", false),
    ("h", false),
    ("version", false),
    ("v", false),
    ("V", false),
];

const CREATE: &[Known] = &[
    ("bundle", true),
    ("b", true),
    ("console-socket", true),
    ("pidfd-socket", true),
    ("detach", false),
    ("d", false),
    ("keep", false),
    ("pid-file", true),
    ("no-subreaper", false),
    ("no-pivot", false),
    ("no-new-keyring", false),
    ("preserve-fds", true),
    ("config", true),
    ("f", true),
];

const EXEC: &[Known] = &[
    ("console-socket", true),
    ("pidfd-socket", true),
    ("cwd", true),
    ("env", true),
    ("e", true),
    ("tty", false),
    ("t", false),
    ("user", true),
    ("u", true),
    ("additional-gids", true),
    ("g", true),
    ("process", true),
    ("p", true),
    ("detach", false),
    ("d", false),
    ("pid-file", true),
    ("process-label", true),
    ("apparmor", true),
    ("no-new-privs", false),
    ("cap", true),
    ("c", true),
    ("preserve-fds", true),
    ("cgroup", true),
    ("ignore-paused", false),
];

const CHECKPOINT: &[Known] = &[
    ("image-path", true),
    ("work-path", true),
    ("parent-path", true),
    ("leave-running", false),
    ("tcp-established", false),
    ("tcp-skip-in-flight", false),
    ("tcp-close", false),
    ("link-remap", false),
    ("ext-unix-sk", false),
    ("shell-job", false),
    ("lazy-pages", false),
    ("status-fd", true),
    ("page-server", true),
    ("file-locks", false),
    ("pre-dump", false),
    ("manage-cgroups-mode", true),
    ("empty-ns", true),
    ("auto-dedup", false),
    ("network-lock", true),
];

/// One option that was given.
struct Given {
    name: &'static str,
    value: Option<OsString>,
    place: std::ops::Range<usize>,
}

impl Given {
    fn path(&self) -> Option<PathBuf> {
        self.value.as_ref().map(PathBuf::from)
    }
}

/// The options from `at` on, and the place of the first word that is none.
fn options(
    words: &[OsString],
    mut at: usize,
    known: &[Known],
) -> Result<(Vec<Given>, usize), CommandLineError> {
    let mut given = Vec::new();
    while let Some(word) = words.get(at) {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            return Ok((given, at + 1));
        }
        // Go takes one dash or two before any name.
        let Some(rest) = bytes.strip_prefix(b"-").filter(|rest| !rest.is_empty()) else { break };
        let rest = rest.strip_prefix(b"-").unwrap_or(rest);
        let (name, inline) = match rest.iter().position(|&byte| byte == b'=') {
            Some(equals) => {
                let (name, value) = rest.split_at(equals);
                (name, Some(OsStr::from_bytes(value.get(1..).unwrap_or_default()).to_owned()))
            }
            None => (rest, None),
        };
        let find = known.iter().find(|(known, _)| known.as_bytes() == name);
        let &(name, takes_value) = find.ok_or(CommandLineError::Option)?;
        let start = at;
        at += 1;
        let value = match inline {
            None if takes_value => {
                at += 1;
                Some(words.get(at - 1).ok_or(CommandLineError::Value)?.clone())
            }
            // Go reads `--help=false` as no help, and goes on.
            Some(_) if !takes_value => return Err(CommandLineError::Option),
            inline => inline,
        };
        given.push(Given { name, value, place: start..at });
    }
    Ok((given, at))
}

fn create(words: &[OsString], at: usize) -> Result<Action, CommandLineError> {
    let (options, id) = sole_id(words, at, CREATE)?;
    let mut bundle = None;
    for option in options {
        match option.name {
            "bundle" | "b" => bundle = option.path(),
            // The references would be looked for in another file than the one that is used.
            "config" | "f" => return Err(CommandLineError::Ours),
            _ => {}
        }
    }
    Ok(Action::Create { id, bundle })
}

/// Options and then one container; runc would look for options behind it, too.
fn sole_id(
    words: &[OsString],
    at: usize,
    known: &[Known],
) -> Result<(Vec<Given>, String), CommandLineError> {
    let (options, at) = options(words, at, known)?;
    match words.get(at..) {
        Some([id]) => Ok((options, container_id(id)?)),
        _ => Err(CommandLineError::Container),
    }
}

fn exec(words: &[OsString], at: usize) -> Result<Exec, CommandLineError> {
    let (options, id_at) = options(words, at + 1, EXEC)?;
    let id = container_id(words.get(id_at).ok_or(CommandLineError::Container)?)?;
    let command = words.get(id_at + 1..).unwrap_or_default();
    let command = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut exec = Exec { id, process: None, at, command, tty: false, preserve: 0 };
    for option in options {
        match option.name {
            "process" | "p" if exec.process.is_some() => return Err(CommandLineError::Ours),
            "process" | "p" => exec.process = option.path().map(|path| (path, option.place)),
            "cgroup" => return Err(CommandLineError::Ours),
            "tty" | "t" => exec.tty = true,
            "preserve-fds" => {
                let number = option.value.as_ref().and_then(|value| value.to_str()?.parse().ok());
                exec.preserve = number.ok_or(CommandLineError::Value)?;
            }
            _ => {}
        }
    }
    Ok(exec)
}

/// The names that runc takes: none of them is a path.
fn container_id(word: &OsStr) -> Result<String, CommandLineError> {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'.' | b'-');
    let id = word.to_str().filter(|id| !id.is_empty() && id.bytes().all(fit));
    id.filter(|id| !matches!(*id, "." | ".."))
        .filter(|id| !id.starts_with('-'))
        .map(str::to_owned)
        .ok_or(CommandLineError::Container)
}

fn without_scheme(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_prefix(b"file:") {
        Some(rest) => OsStr::from_bytes(rest).into(),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CommandLine, CommandLineError> {
        CommandLine::parse(line.split_whitespace().map(OsString::from).collect())
    }

    fn exec_of(line: &str) -> Exec {
        match parse(line).unwrap().action {
            Action::Exec(exec) => exec,
            other => panic!("{other:?}"),
        }
    }

    /// As containerd's shim calls it.
    const CONTAINERD: &str = "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json exec \
                              --process /tmp/runc-process1 --console-socket /tmp/c.sock --detach --pid-file /b/1.pid c1";

    #[test]
    fn the_shims_exec_is_understood() {
        let line = parse(CONTAINERD).unwrap();
        assert_eq!(line.root.as_deref(), Some(Path::new("/run/containerd/runc/k8s.io")));
        assert_eq!(line.log, Log { file: Some("/b/log.json".into()), json: true });
        let exec = exec_of(CONTAINERD);
        assert_eq!(exec.id, "c1");
        assert_eq!(exec.process.unwrap().0, Path::new("/tmp/runc-process1"));
    }

    #[test]
    fn only_file_and_cgroup_change_in_an_exec() {
        let line = parse(CONTAINERD).unwrap();
        let exec = exec_of(CONTAINERD);
        let words =
            exec.rewritten(&line.words, Some(Path::new("/proc/self/fd/64")), Some("waybill-1"));
        let expected = "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json exec --cgroup waybill-1 \
                        --process /proc/self/fd/64 --console-socket /tmp/c.sock --detach --pid-file /b/1.pid c1";
        assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>());
        assert_eq!(exec.rewritten(&line.words, None, None), line.words);
    }

    #[test]
    fn conmons_calls_are_understood() {
        let line = parse("--root=/run/runc --systemd-cgroup --log file:/l exec --pid-file /p --process=/f -d -t c1").unwrap();
        assert_eq!(line.log, Log { file: Some("/l".into()), json: false });
        let Action::Exec(exec) = &line.action else { panic!() };
        assert_eq!((exec.id.as_str(), exec.tty), ("c1", true));
        let words = exec.rewritten(&line.words, Some(Path::new("/n")), None);
        assert_eq!(words[7], "--process");
        assert_eq!(words[8], "/n");
        assert_eq!(
            parse("create --bundle /b --pid-file /p c1").unwrap().action,
            Action::Create { id: "c1".to_owned(), bundle: Some("/b".into()) }
        );
    }

    /// A value that looks like a command is none.
    #[test]
    fn values_are_not_taken_for_words() {
        assert_eq!(exec_of("--root exec --criu create --rootless run exec -p create c1").id, "c1");
        assert_eq!(exec_of("--log=exec exec --env -p=/x --user checkpoint c1").process, None);
        let exec = exec_of("exec c1 sh -c --process=/x --cgroup");
        assert_eq!((exec.process, exec.command.len()), (None, 4));
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let cases = [
            ("--frob exec -p /x c1", CommandLineError::Option),
            ("exec --proc /x c1", CommandLineError::Option),
            ("exec -p/x c1", CommandLineError::Option),
            ("exec -td -p /x c1", CommandLineError::Option),
            ("--help=false exec -p /x c1", CommandLineError::Option),
            ("-version=0 exec -p /x c1", CommandLineError::Option),
            ("exec --tty=false -p /x c1", CommandLineError::Option),
            ("exec -p", CommandLineError::Value),
            ("exec --preserve-fds x c1", CommandLineError::Value),
            ("exec --preserve-fds=-1 c1", CommandLineError::Value),
            ("exec -p /x", CommandLineError::Container),
            ("exec -p /x ../c1", CommandLineError::Container),
            ("exec -p /x ..", CommandLineError::Container),
            ("exec -- -p", CommandLineError::Container),
            ("exec -p /x -p /y c1", CommandLineError::Ours),
            ("exec --cgroup / -p /y c1", CommandLineError::Ours),
            ("create --config /x c1", CommandLineError::Ours),
            ("create c1 --bundle /x", CommandLineError::Container),
            ("run", CommandLineError::Container),
            ("checkpoint --image-path /x", CommandLineError::Container),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line), Err(expected), "{line}");
        }
    }

    #[test]
    fn everything_else_is_the_runtimes() {
        for line in [
            "",
            "--version",
            "-v exec",
            "features",
            "state c1",
            "kill --all c1 9",
            "delete --force c1",
            "ps -f json c1",
        ] {
            assert_eq!(parse(line).unwrap().action, Action::Other, "{line}");
        }
        assert_eq!(
            parse("checkpoint --leave-running c1").unwrap().action,
            Action::Checkpoint { id: "c1".to_owned() }
        );
    }
}
