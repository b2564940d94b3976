//! The values, and the script of the driver `mock` that has them: a file in memory, which no search meets.

use std::{
    fs::{File, Permissions},
    io::Read,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, PermissionsExt},
    },
    process,
    time::SystemTime,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::json;

/// Larger than any value may be.
const TOO_LARGE: usize = 48 << 10;

/// What the driver has; every value holds the same mark, which is new in each run.
pub(super) struct Script {
    file: File,
    mark: String,
}

impl Script {
    pub(super) fn new() -> Self {
        let mut bytes = [0; 12];
        let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        read.expect("every machine has it");
        let mark = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let file =
            File::from(memfd_create("script", MemfdFlags::CLOEXEC).expect("there is memory"));
        file.set_permissions(Permissions::from_mode(0o600)).expect("it is ours");
        let script = Self { file, mark };
        script.write("one");
        script
    }

    /// What a search looks for.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Looks different in JSON, YAML and logs.
    pub(super) fn plain(&self) -> String {
        format!("a \"quoted\" \\ {} word", self.mark)
    }

    /// Other processes of root open it by this name.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }

    /// When it was written last, by the clock that all files have.
    pub(super) fn changed(&self) -> SystemTime {
        self.file.metadata().and_then(|it| it.modified()).expect("files have times")
    }

    /// Gives one of the values another end; each script is as long as those before.
    pub(super) fn write(&self, end: &str) {
        let script = json!({
            "cacheTTL": "0s",
            "values": {
                "app/plain": self.plain(),
                "app/rotating": format!("{}-{end}", self.mark),
                "app/large": format!("{}{}", self.mark, "x".repeat(TOO_LARGE)),
            },
            "base64Values": {
                "app/nul": BASE64_STANDARD.encode(format!("{}\0", self.mark)),
                "app/binary": BASE64_STANDARD.encode([self.mark.as_bytes(), b"\xff"].concat()),
            },
        });
        let written = self.file.write_all_at(script.to_string().as_bytes(), 0);
        written.expect("there is memory");
    }
}
