//! Which plugins may run: a kubeconfig from somebody else names programs of their choice.

use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

use crate::lookup;

/// As `credentialPluginPolicy` of kubectl's preferences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Every plugin.
    #[default]
    AllowAll,
    /// None.
    DenyAll,
    /// Those on the list, by name or by path; an empty list allows none.
    Allowlist(Vec<String>),
}

impl Policy {
    /// Reads it as kubectl's preferences have it. What nobody knows is an error, so that a misspelt policy lets
    /// nothing run.
    pub fn parse(policy: &str, allowlist: Vec<String>) -> Result<Self, PolicyError> {
        match policy {
            "" | "AllowAll" | "DenyAll" if !allowlist.is_empty() => Err(PolicyError::UnusedList),
            "" | "AllowAll" => Ok(Self::AllowAll),
            "DenyAll" => Ok(Self::DenyAll),
            "Allowlist" if allowlist.is_empty() => Err(PolicyError::EmptyList),
            "Allowlist" => Ok(Self::Allowlist(allowlist)),
            unknown => Err(PolicyError::Unknown { found: unknown.to_owned() }),
        }
    }

    /// What runs in the name of `program`, which [`lookup::find`] has found, if it may run. Behind a link `..` leads elsewhere
    /// than it reads, so what was compared with a list is what runs.
    pub(crate) fn allowed(&self, program: PathBuf, path: &OsStr) -> Option<PathBuf> {
        match self {
            Self::AllowAll => Some(program),
            Self::DenyAll => None,
            Self::Allowlist(entries) => {
                let program = clean(&program);
                entries
                    .iter()
                    .filter(|entry| !entry.is_empty())
                    .filter_map(|entry| lookup::find(entry, path))
                    .any(|allowed| clean(&allowed) == program)
                    .then_some(program)
            }
        }
    }
}

/// Why a policy cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// No such policy.
    #[error("unknown credential plugin policy {found:?}; use AllowAll, DenyAll or Allowlist")]
    Unknown {
        /// What was found.
        found: String,
    },
    /// A list that allows nothing is DenyAll.
    #[error("the credential plugin policy Allowlist needs a list; use DenyAll to allow no plugin")]
    EmptyList,
    /// A list that would not be used.
    #[error("a list of credential plugins is used by the policy Allowlist only")]
    UnusedList,
}

/// Without `.` and `..`, so that two ways to write a path are one. Links are not followed: whoever allows
/// `/usr/bin/aws` allows what it leads to.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                cleaned.pop();
            }
            part => cleaned.push(part),
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRED-05
    #[test]
    fn only_what_is_on_the_list_may_run_cred_05() {
        let path = OsStr::new("/usr/bin:/bin");
        let list = |entries: &[&str]| {
            Policy::Allowlist(entries.iter().map(|&entry| entry.to_owned()).collect())
        };
        let allows = |policy: &Policy, command: &str| {
            policy.allowed(lookup::find(command, path).unwrap(), path).is_some()
        };
        assert!(allows(&Policy::AllowAll, "/any/thing") && !allows(&Policy::DenyAll, "sh"));
        assert!(allows(&list(&["sh"]), "sh") && allows(&list(&["/opt/x"]), "/opt/./y/../x"));
        let sh = lookup::find("sh", path).unwrap();
        assert!(allows(&list(&[sh.to_str().unwrap()]), "sh"), "a path allows the name");
        assert!(!allows(&list(&["sh"]), "/tmp/sh"), "another program of the same name");
        assert!(!allows(&list(&["", "cat"]), "sh"));
    }

    /// CRED-05. Hole: `/tmp/link/../../usr/bin/sh` reads as `/usr/bin/sh`, and is another file.
    #[test]
    fn what_was_compared_with_the_list_is_what_runs_cred_05() {
        let (path, list) = (OsStr::new(""), Policy::Allowlist(vec!["/usr/bin/aws".to_owned()]));
        let run = list.allowed("/tmp/link/../../usr/bin/aws".into(), path);
        assert_eq!(run.as_deref(), Some(Path::new("/usr/bin/aws")));
    }

    /// CRED-05
    #[test]
    fn a_policy_that_nobody_understands_lets_nothing_run_cred_05() {
        let parse = |policy, list: &[&str]| {
            Policy::parse(policy, list.iter().map(|&entry| entry.to_owned()).collect())
        };
        assert_eq!(parse("", &[]), Ok(Policy::AllowAll));
        assert_eq!(parse("DenyAll", &[]), Ok(Policy::DenyAll));
        assert_eq!(parse("Allowlist", &["a"]), Ok(Policy::Allowlist(vec!["a".to_owned()])));
        assert_eq!(parse("Allowlist", &[]), Err(PolicyError::EmptyList));
        assert_eq!(parse("AllowAll", &["a"]), Err(PolicyError::UnusedList));
        let found = "allowlist".to_owned();
        assert_eq!(parse("allowlist", &["a"]), Err(PolicyError::Unknown { found }));
    }
}
