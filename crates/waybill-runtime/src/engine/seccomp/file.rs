//! Profiles of the machine: files in JSON of the kind that OCI runtimes and Docker read.
//!
//! What a file says must hold, so what we do not know or cannot do is refused by name. Only names of system calls that we do not
//! know are passed over, as everywhere: profiles name those of other machines and of newer kernels.

mod format;
mod multiplexed;

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path},
};

use self::format::{Conditions, Profile, SystemCalls};
use super::{
    Filter, SPECULATION_ALLOWED, SeccompFault,
    calls::{self, Abi},
    policy::{AbiPolicy, Action, Policy, Rule, Verdict},
    program,
};

/// Profiles have some thousand lines at most.
pub(super) const LONGEST: u64 = 1 << 20;

/// The filter that a file describes, for a container with these capabilities in its bounding set.
pub(super) fn filter(path: &Path, abis: &[Abi], capabilities: u64) -> Result<Filter, SeccompFault> {
    let text = read(path)?;
    let profile: Profile = serde_json::from_slice(&text).map_err(SeccompFault::Json)?;
    let place = Place { abis, capabilities, kernel: this_kernel() };
    let unknown = profile.unknown_names();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        tracing::warn!(profile = ?path, names, "names of no system call that is known here");
    }
    let program = program::compile(&policy(&profile, &place)?);
    if program.len() > program::MOST {
        return Err(SeccompFault::Size(program.len()));
    }
    Ok(Filter { program, flags: flags(&profile)? })
}

fn read(path: &Path) -> Result<Vec<u8>, SeccompFault> {
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        return Err(SeccompFault::Path);
    }
    // A pipe would be waited for.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(SeccompFault::Read)?;
    if !file.metadata().map_err(SeccompFault::Read)?.is_file() {
        return Err(SeccompFault::Kind);
    }
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text).map_err(SeccompFault::Read)?;
    if u64::try_from(text.len()).is_ok_and(|length| length <= LONGEST) {
        Ok(text)
    } else {
        Err(SeccompFault::Long)
    }
}

/// Where a profile shall hold: what its conditions ask.
struct Place<'a> {
    abis: &'a [Abi],
    capabilities: u64,
    kernel: (u32, u32),
}

fn this_kernel() -> (u32, u32) {
    let name = rustix::system::uname();
    format::kernel(&name.release().to_string_lossy()).unwrap_or((0, 0))
}

fn flags(profile: &Profile) -> Result<u32, SeccompFault> {
    // Speculation is let be where a profile says nothing, as by other runtimes.
    let Some(flags) = &profile.flags else { return Ok(SPECULATION_ALLOWED) };
    flags.iter().try_fold(0, |all, flag| match flag.as_str() {
        // We have one thread.
        "SECCOMP_FILTER_FLAG_TSYNC" => Ok(all),
        "SECCOMP_FILTER_FLAG_LOG" => Ok(all | 1 << 1),
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => Ok(all | SPECULATION_ALLOWED),
        other => Err(SeccompFault::value("flags", format!("{other:?} is not supported"))),
    })
}

fn policy(profile: &Profile, place: &Place<'_>) -> Result<Policy, SeccompFault> {
    if profile.listener_path.is_some() || profile.listener_metadata.is_some() {
        return Err(SeccompFault::value("listenerPath", "notifications are not supported"));
    }
    let default = profile.default_action()?;
    let blocks = blocks(profile, place)?;
    let abis = profile.abis(place)?.into_iter().map(|abi| abi_policy(abi, &blocks, default));
    // As by libseccomp, except that it kills the thread and leaves the process without it.
    Ok(Policy { abis: abis.collect(), elsewhere: Action::KILL_PROCESS })
}

/// The entries of a profile that hold here, with their rules: an entry without conditions is one rule without any.
fn blocks<'a>(
    profile: &'a Profile,
    place: &Place<'_>,
) -> Result<Vec<(&'a SystemCalls, Vec<Rule>)>, SeccompFault> {
    let mut blocks = Vec::new();
    for (number, entry) in profile.syscalls.iter().flatten().enumerate() {
        let at = format!("syscalls[{number}]");
        let rules = entry.rules(profile, &at)?;
        if entry.includes.all_hold(place, &at)? && !entry.excludes.one_holds(place, &at)? {
            blocks.push((entry, rules));
        }
    }
    Ok(blocks)
}

/// What of a profile is about one ABI. Where the rest is denied, calls that are newer than all it names are answered as by a kernel
/// that does not have them: C libraries then use the older ones, that the profile knows.
fn abi_policy(abi: Abi, blocks: &[(&SystemCalls, Vec<Rule>)], default: Action) -> AbiPolicy {
    let numbers: BTreeMap<&str, u32> =
        calls::all().filter_map(|call| Some((call.name, call.number(abi)?))).collect();
    let mut rules: BTreeMap<u32, Vec<Rule>> = BTreeMap::new();
    for (entry, of_entry) in blocks {
        for name in entry.names() {
            if let Some(&number) = numbers.get(name) {
                rules.entry(number).or_default().extend_from_slice(of_entry);
            }
            if let Some((call, which)) = multiplexed::call(abi, name)
                && let Some(&number) = numbers.get(call)
            {
                let of_call = of_entry.iter().flat_map(|rule| multiplexed::rule(rule, which));
                rules.entry(number).or_default().extend(of_call);
            }
        }
    }
    let newest = rules.last_key_value().map(|(number, _)| *number);
    let mut verdicts: Vec<_> = rules
        .into_iter()
        .map(|(number, rules)| (number..=number, verdict(rules, default)))
        .collect();
    if let Some(beyond) = newest.and_then(|number| number.checked_add(1))
        && !default.is_permissive()
    {
        verdicts.push((beyond..=u32::MAX, Verdict::plain(Action::UNKNOWN)));
    }
    AbiPolicy::new(abi, verdicts, default)
}

/// As libseccomp has it, a rule without conditions decides alone, wherever it stands. Of those with conditions the first that
/// holds does.
fn verdict(rules: Vec<Rule>, default: Action) -> Verdict {
    match rules.iter().find(|rule| rule.conditions.is_empty()) {
        Some(rule) => Verdict::plain(rule.action),
        None => Verdict { rules, otherwise: default },
    }
}

impl Conditions {
    fn all_hold(&self, place: &Place<'_>, at: &str) -> Result<bool, SeccompFault> {
        let at = format!("{at}.includes");
        let here = self
            .arches
            .as_ref()
            .is_none_or(|arches| arches.is_empty() || arches.iter().any(|arch| is_of(place, arch)));
        let mask = self.capabilities(&at)?;
        let new = self.kernel(&at)?.is_none_or(|least| place.kernel >= least);
        Ok(here && mask & place.capabilities == mask && new)
    }

    fn one_holds(&self, place: &Place<'_>, at: &str) -> Result<bool, SeccompFault> {
        let at = format!("{at}.excludes");
        let here = self.arches.iter().flatten().any(|arch| is_of(place, arch));
        let mask = self.capabilities(&at)?;
        let new = self.kernel(&at)?.is_some_and(|least| place.kernel >= least);
        Ok(here || mask & place.capabilities != 0 || new)
    }
}

/// Conditions name the machine, and not each of its ABIs.
fn is_of(place: &Place<'_>, arch: &str) -> bool {
    place.abis.first().is_some_and(|native| native.machine_name() == arch)
}

#[cfg(test)]
mod tests;
