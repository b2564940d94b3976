//! What the wrapper knows about its node: its configuration, the clock, and the agent's directory.

use std::{
    fs,
    fs::OpenOptions,
    io,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::de::DeserializeOwned;
use waybill_api::stock::{
    CONFIG_FILE, Engine, KeySet, Layout, Mode, PodFacts, SessionId, WrapperConfig,
};
use waybill_core::id::PodUid;

/// The node, as one call sees it.
#[derive(Debug)]
pub(crate) struct Node {
    config: WrapperConfig,
    layout: Layout,
    since_1970: Duration,
}

impl Node {
    /// Reads the configuration that lies one directory above `program`.
    pub(crate) fn beside(program: &Path, now: SystemTime) -> Option<Self> {
        let file = program.parent()?.parent()?.join(CONFIG_FILE);
        let config: WrapperConfig = read_json(&file).ok()?;
        if config.version != WrapperConfig::VERSION
            || !config.runtime.is_absolute()
            || is_same(program, &config.runtime)
        {
            return None;
        }
        let layout = Layout::new(&config.run);
        let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(Self { config, layout, since_1970 })
    }

    /// The real runtime.
    pub(crate) fn runtime(&self) -> &Path {
        &self.config.runtime
    }

    /// Where the runtime keeps its state when a call does not say so.
    pub(crate) fn default_root(&self) -> PathBuf {
        let crun = self.config.runtime.file_name().is_some_and(|name| name == "crun");
        Path::new(if crun { "/run/crun" } else { "/run/runc" }).to_owned()
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn default_mode(&self) -> Mode {
        self.config.mode
    }

    /// Who calls us.
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.config.engine
    }

    /// The time of the call, in seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        i64::try_from(self.since_1970.as_secs()).unwrap_or(i64::MAX)
    }

    /// The time of the call, in nanoseconds since 1970.
    pub(crate) fn nanoseconds(&self) -> u64 {
        u64::try_from(self.since_1970.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Gate's keys; none if the agent has not brought them.
    pub(crate) fn keys(&self) -> KeySet {
        read_json(&self.layout.keys()).unwrap_or_default()
    }

    /// What the agent knows of a pod.
    pub(crate) fn facts(&self, uid: &str) -> Option<PodFacts> {
        let uid = PodUid::parse(uid).ok()?;
        let facts: PodFacts = read_json(&self.layout.pod(&uid)).ok()?;
        (facts.version == PodFacts::VERSION).then_some(facts)
    }

    /// Leaves a marker that nobody else can leave again.
    pub(crate) fn mark(&self, marker: &Path) -> io::Result<()> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(marker).map(drop)
    }

    /// Whether a session with this ID may be about to begin: its marker is young.
    pub(crate) fn is_beginning(&self, session: &SessionId) -> bool {
        let modified =
            fs::metadata(self.layout.used_session(session)).and_then(|found| found.modified());
        let Ok(modified) = modified else { return false };
        let marked = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.since_1970.saturating_sub(marked) < BEGINNING
    }
}

/// Longer than a runtime needs to enter a cgroup that was made for it, on any machine.
const BEGINNING: Duration = Duration::from_secs(120);

/// An ID that nobody knows before.
pub(crate) fn random_id() -> io::Result<SessionId> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(SessionId::from_random(bytes))
}

/// A wrapper that calls itself would do so for ever.
fn is_same(program: &Path, runtime: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let program = identity(program);
    program.is_some() && program == identity(runtime)
}

/// Reads a file of JSON.
pub(crate) fn read_json<T: DeserializeOwned>(file: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}
