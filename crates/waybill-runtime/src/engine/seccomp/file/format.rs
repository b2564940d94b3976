//! The fields of a profile's file, and what single values mean.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::Place;
use crate::{
    capability,
    engine::seccomp::{
        SeccompFault,
        calls::{self, Abi},
        policy::{Action, Condition, Rule, Test},
    },
};

/// A file. Of a field that we did not know nobody would know whether it holds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Profile {
    default_action: String,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<String>>,
    arch_map: Option<Vec<Machine>>,
    pub(super) flags: Option<Vec<String>>,
    pub(super) listener_path: Option<String>,
    pub(super) listener_metadata: Option<String>,
    pub(super) syscalls: Option<Vec<SystemCalls>>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
}

/// A machine and the further ABIs that it has.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Machine {
    architecture: String,
    sub_architectures: Option<Vec<String>>,
}

/// An entry: what becomes of some calls.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SystemCalls {
    /// Of the oldest files.
    name: Option<String>,
    names: Option<Vec<String>>,
    action: String,
    errno_ret: Option<u32>,
    args: Option<Vec<Argument>>,
    #[serde(default)]
    pub(super) includes: Conditions,
    #[serde(default)]
    pub(super) excludes: Conditions,
    #[serde(rename = "comment")]
    _comment: Option<String>,
}

/// A look at an argument.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Argument {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

/// When an entry holds, or does not.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Conditions {
    caps: Option<Vec<String>>,
    pub(super) arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

impl Profile {
    pub(super) fn default_action(&self) -> Result<Action, SeccompFault> {
        action(&self.default_action, self.default_errno_ret, "defaultAction")
    }

    /// The machine's own ABI, and the further ones that the file names. Those of other machines are passed over.
    pub(super) fn abis(&self, place: &Place<'_>) -> Result<Vec<Abi>, SeccompFault> {
        let Some((native, others)) = place.abis.split_first() else { return Ok(Vec::new()) };
        let own = |map: &&Machine| map.architecture == native.profile_name();
        let mapped = self.arch_map.iter().flatten().find(own);
        let mapped = mapped.and_then(|map| map.sub_architectures.as_ref());
        let named: Vec<&String> =
            self.architectures.iter().flatten().chain(mapped.into_iter().flatten()).collect();
        if let Some(wrong) = named.iter().find(|name| !name.starts_with("SCMP_ARCH_")) {
            let reason = format!("{wrong:?} is no architecture, such as \"SCMP_ARCH_X86_64\"");
            return Err(SeccompFault::value("architectures", reason));
        }
        let is_named = |abi: &&Abi| named.iter().any(|name| name.as_str() == abi.profile_name());
        Ok([native].into_iter().chain(others.iter().filter(is_named)).copied().collect())
    }

    /// Names that no ABI of ours has.
    pub(super) fn unknown_names(&self) -> Vec<&str> {
        let known: BTreeSet<&str> = calls::all().map(|call| call.name).collect();
        let names = self.syscalls.iter().flatten().flat_map(SystemCalls::names);
        names.filter(|name| !known.contains(name)).collect()
    }
}

impl SystemCalls {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.name.iter().chain(self.names.iter().flatten()).map(String::as_str)
    }

    /// What the entry says about each of its calls. Conditions hold together, but those on one argument each for itself.
    pub(super) fn rules(&self, profile: &Profile, at: &str) -> Result<Vec<Rule>, SeccompFault> {
        if self.names().next().is_none() {
            return Err(SeccompFault::value(format!("{at}.names"), "no system call is named"));
        }
        let errno = self.errno_ret;
        let action = action(&self.action, errno, &format!("{at}.action"))?;
        // It would say nothing new, and next to others on the same call it would say something else.
        if action == profile.default_action()? {
            return Ok(Vec::new());
        }
        let conditions = self.args.iter().flatten().enumerate();
        let conditions: Vec<Condition> = conditions
            .map(|(number, argument)| argument.condition(&format!("{at}.args[{number}]")))
            .collect::<Result<_, _>>()?;
        let arguments: BTreeSet<u8> = conditions.iter().map(|it| it.argument).collect();
        if arguments.len() < conditions.len() {
            return Ok(conditions
                .into_iter()
                .map(|condition| Rule { conditions: vec![condition], action })
                .collect());
        }
        Ok(vec![Rule { conditions, action }])
    }
}

impl Argument {
    fn condition(&self, at: &str) -> Result<Condition, SeccompFault> {
        if self.index > 5 {
            let reason = "system calls have six arguments, 0 to 5";
            return Err(SeccompFault::value(format!("{at}.index"), reason));
        }
        let value = self.value;
        let test = match self.op.as_str() {
            "SCMP_CMP_EQ" => Test::Equal(value),
            "SCMP_CMP_NE" => Test::NotEqual(value),
            "SCMP_CMP_LT" => Test::Less(value),
            "SCMP_CMP_LE" => Test::LessOrEqual(value),
            "SCMP_CMP_GT" => Test::Greater(value),
            "SCMP_CMP_GE" => Test::GreaterOrEqual(value),
            "SCMP_CMP_MASKED_EQ" => Test::Masked { mask: value, value: self.value_two },
            other => {
                let reason = format!("{other:?} is no comparison, such as \"SCMP_CMP_EQ\"");
                return Err(SeccompFault::value(format!("{at}.op"), reason));
            }
        };
        Ok(Condition { argument: self.index, test })
    }
}

impl Conditions {
    /// As a set.
    pub(super) fn capabilities(&self, at: &str) -> Result<u64, SeccompFault> {
        self.caps.iter().flatten().try_fold(0, |all, name| match capability::bit_of(name) {
            Some(bit) => Ok(all | bit),
            None => {
                let reason = format!("{name:?} is no capability, such as \"CAP_SYS_ADMIN\"");
                Err(SeccompFault::value(format!("{at}.caps"), reason))
            }
        })
    }

    /// The least version.
    pub(super) fn kernel(&self, at: &str) -> Result<Option<(u32, u32)>, SeccompFault> {
        let Some(text) = &self.min_kernel else { return Ok(None) };
        kernel(text).map(Some).ok_or_else(|| {
            let reason = format!("{text:?} is no version of a kernel, such as \"4.8\"");
            SeccompFault::value(format!("{at}.minKernel"), reason)
        })
    }
}

/// The first two numbers of a version.
pub(super) fn kernel(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn action(name: &str, errno: Option<u32>, at: &str) -> Result<Action, SeccompFault> {
    let action = match name {
        "SCMP_ACT_ALLOW" => Action::ALLOW,
        "SCMP_ACT_LOG" => Action::LOG,
        "SCMP_ACT_TRAP" => Action::TRAP,
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Action::KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => Action::KILL_PROCESS,
        "SCMP_ACT_ERRNO" => return errno_action(errno, at),
        "SCMP_ACT_TRACE" | "SCMP_ACT_NOTIFY" => {
            let reason = format!("{name} is not supported: no process is there to be asked");
            return Err(SeccompFault::value(at, reason));
        }
        other => {
            let reason = format!("{other:?} is no action, such as \"SCMP_ACT_ERRNO\"");
            return Err(SeccompFault::value(at, reason));
        }
    };
    match errno {
        None => Ok(action),
        Some(_) => {
            Err(SeccompFault::value(at, format!("{name} has no errno; only SCMP_ACT_ERRNO does")))
        }
    }
}

fn errno_action(errno: Option<u32>, at: &str) -> Result<Action, SeccompFault> {
    /// `MAX_ERRNO` of the kernel, which takes greater ones for this.
    const LARGEST: u32 = 4095;
    match errno {
        None => Ok(Action::FORBIDDEN),
        Some(errno) if errno <= LARGEST => Ok(Action::errno(errno)),
        Some(errno) => {
            Err(SeccompFault::value(at, format!("errno {errno} is above {LARGEST}, the largest")))
        }
    }
}
