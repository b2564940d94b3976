//! What two askers must have in common to share a credential.
//!
//! Everything that could make a difference to the plugin is in a key, so a difference too many costs a run of the plugin, and a
//! difference too few would give somebody the wrong identity. A key is a hash, because environments hold secrets.

use std::{
    ffi::{OsStr, OsString},
    fmt, fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::relative::{is_relative, may_hold_paths};
use crate::EXEC_INFO;

/// Variables that say where a program was started, and not who started it. A star stands for any end.
const WITHOUT_MEANING: &[&str] = &[
    "COLORTERM",
    "COLUMNS",
    "DISPLAY",
    "GPG_TTY",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LINES",
    "LS_COLORS",
    "OLDPWD",
    "PS1",
    "PWD",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STY",
    "TERM",
    "TERM_*",
    "TMUX",
    "TMUX_*",
    "VTE_VERSION",
    "WAYLAND_DISPLAY",
    "WINDOW",
    "WINDOWID",
    "XDG_SESSION_ID",
    "_",
];

/// What a credential is kept under.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 32]);

/// What goes into a key.
pub(crate) struct KeyParts<'a> {
    /// The plugin as it will be run.
    pub(crate) program: &'a Path,
    /// As the kubeconfig has it, which the plugin sees.
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) environment: &'a [(OsString, OsString)],
    /// Further variables without meaning, in the user's opinion.
    pub(crate) ignored: &'a [String],
    /// `KUBERNETES_EXEC_INFO`.
    pub(crate) question: &'a str,
    /// The working directory, if it is known.
    pub(crate) directory: Option<&'a Path>,
    /// Whether it matters in any case, and not only where a relative path leads to something in it.
    pub(crate) per_directory: bool,
}

impl KeyParts<'_> {
    /// The variables that could make a difference.
    fn variables(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        self.environment.iter().filter(|(name, _)| has_meaning(name, self.ignored))
    }

    /// The working directory, if it could make a difference.
    fn directory_that_matters(&self) -> Option<&Path> {
        let directory = self.directory?;
        let exists = |name: &Path| directory.join(name).symlink_metadata().is_ok();
        let matters = || {
            let paths = self.variables().filter(|(name, _)| may_hold_paths(name));
            let values = paths.map(|(_, value)| value.as_os_str());
            self.args.iter().map(OsStr::new).chain(values).any(|text| is_relative(text, &exists))
        };
        (self.per_directory || matters()).then_some(directory)
    }
}

impl Key {
    /// Looks at the file of the plugin: one that was replaced may answer otherwise.
    pub(crate) fn of(parts: &KeyParts<'_>) -> io::Result<Self> {
        let file = fs::metadata(parts.program)?;
        let mut hash = Parts(Sha256::new());
        hash.add(parts.program.as_os_str().as_bytes());
        for number in [file.dev(), file.ino(), file.size()] {
            hash.add(&number.to_be_bytes());
        }
        for number in [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()] {
            hash.add(&number.to_be_bytes());
        }
        hash.add(parts.command.as_bytes());
        hash.add_all(parts.args.iter().map(String::as_bytes));
        hash.add(whatever_the_terminal(parts.question).as_bytes());
        let directory = parts.directory_that_matters().map_or(OsStr::new(""), Path::as_os_str);
        hash.add(directory.as_bytes());
        let mut variables: Vec<_> = parts.variables().collect();
        variables.sort();
        hash.add_all(
            variables.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]),
        );
        Ok(Self(hash.0.finalize().into()))
    }

    #[cfg(test)]
    pub(crate) fn test(number: u8) -> Self {
        Self([number; 32])
    }
}

/// Parts with their lengths, so that no two lists of parts look alike.
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: &[u8]) {
        self.0.update(part.len().to_be_bytes());
        self.0.update(part);
    }

    fn add_all<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        let mut count: u64 = 0;
        for part in parts {
            self.add(part);
            count += 1;
        }
        self.0.update(count.to_be_bytes());
    }
}

/// The question without `spec.interactive`: somebody who typed a password has a credential that serves scripts as well.
fn whatever_the_terminal(question: &str) -> String {
    let Ok(mut question) = serde_json::from_str::<Value>(question) else {
        return question.to_owned();
    };
    if let Some(spec) = question.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("interactive");
    }
    question.to_string()
}

fn has_meaning(name: &OsStr, ignored: &[String]) -> bool {
    let ignored = ignored.iter().map(String::as_str);
    name != EXEC_INFO
        && !WITHOUT_MEANING.iter().copied().chain(ignored).any(|pattern| matches(name, pattern))
}

fn matches(name: &OsStr, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.as_bytes().starts_with(begin.as_bytes()),
        None => name == pattern,
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| de::Error::custom("no key"))
    }
}

#[cfg(test)]
mod tests;
