//! Drivers of environment variables beside the stack, where its node finds them.

use std::{convert::Infallible, ffi::OsString, time::Duration};

use anyhow::{Result, bail};
use clap::ValueEnum;
use futures_util::future::{join_all, select_all, try_join_all};

use super::{
    Progress,
    role::Role,
    stack::{Flags, Plan, begin},
    state::State,
};
use crate::driver::Kind;

/// How long a driver may take to end.
const STOP: Duration = Duration::from_secs(15);

/// A driver to start, with further flags of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverChoice {
    kind: Kind,
    flags: Vec<String>,
}

/// What `--driver` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DriverFlag {
    None,
    Start(DriverChoice),
}

/// The drivers that run.
pub(super) struct Drivers(Vec<Role>);

impl DriverChoice {
    /// The driver that needs nothing and tells nothing secret.
    pub(crate) fn os() -> Self {
        Self::new(Kind::Os, Vec::new())
    }

    pub(crate) fn new(kind: Kind, flags: Vec<String>) -> Self {
        Self { kind, flags }
    }
}

impl DriverFlag {
    /// `none`, or the kind of a driver, and flags of it after `=`, with spaces between them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (kind, flags) = text.split_once('=').unwrap_or((text, ""));
        if text == "none" {
            return Ok(Self::None);
        }
        let kind = Kind::from_str(kind, false).map_err(|_| {
            let kinds = Kind::value_variants().iter().map(|kind| kind.word());
            let kinds: Vec<_> = kinds.chain(["none"]).collect();
            format!("there is no driver {kind:?}; there are {}", kinds.join(", "))
        })?;
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        Ok(Self::Start(DriverChoice { kind, flags }))
    }

    /// What all flags together ask for; without any it is the driver `os`.
    pub(crate) fn choose(flags: Vec<Self>) -> Result<Vec<DriverChoice>> {
        if flags.is_empty() {
            return Ok(vec![DriverChoice::os()]);
        }
        if flags == [Self::None] {
            return Ok(Vec::new());
        }
        let mut chosen: Vec<DriverChoice> = Vec::new();
        for flag in flags {
            let Self::Start(choice) = flag else {
                bail!("--driver none cannot stand beside other drivers");
            };
            if chosen.iter().any(|other| other.kind == choice.kind) {
                bail!("--driver {} is there twice", choice.kind.word());
            }
            chosen.push(choice);
        }
        Ok(chosen)
    }
}

impl Drivers {
    /// None of them runs yet.
    pub(super) fn new(plan: &Plan, state: &State) -> Result<Self> {
        let roles = plan.drivers.iter().map(|choice| role(choice, plan, state));
        Ok(Self(roles.collect::<Result<_>>()?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts all of them; they need nothing of the stack, so that a node finds them at once.
    pub(super) async fn start(&mut self, progress: &Progress) -> Result<()> {
        let started = self.0.iter_mut().map(|role| {
            let name = role.name();
            begin(role, name, progress)
        });
        try_join_all(started).await.map(drop)
    }

    /// Keeps them running. Never returns.
    pub(super) async fn keep(&mut self, progress: &Progress) -> Infallible {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.0.iter_mut().map(|role| Box::pin(role.keep(progress)))).await.0
    }

    /// Stops them, and says what went wrong.
    pub(super) async fn stop(&mut self) -> Vec<Result<()>> {
        join_all(self.0.iter_mut().map(|role| role.stop(STOP))).await
    }
}

fn role(choice: &DriverChoice, plan: &Plan, state: &State) -> Result<Role> {
    let DriverChoice { kind, flags: own } = choice;
    let name = kind.driver_name();
    let socket = state.plugins_dir().join(name).join("csi.sock");
    let mut flags = Flags::new("driver");
    flags.0.push(kind.word().into());
    flags.add("--socket", socket);
    flags.add("--registration-dir", state.registry_dir());
    if let Some(node) = &plan.node_name {
        flags.add("--node-id", node);
    }
    flags.0.extend(own.iter().map(OsString::from));
    flags.verbose(plan.verbose);
    Ok(flags.role(kind.title(), &format!("driver-{}", kind.word()), plan, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(flags: &[&str]) -> Result<Vec<DriverChoice>> {
        DriverFlag::choose(flags.iter().map(|flag| DriverFlag::parse(flag).unwrap()).collect())
    }

    #[test]
    fn the_driver_os_is_started_unless_others_are_asked_for_or_none() {
        assert_eq!(choose(&[]).unwrap(), [DriverChoice::os()]);
        assert_eq!(choose(&["none"]).unwrap(), []);
        let flags = ["--script", "/a", "--rate-limit=0"].map(str::to_owned).to_vec();
        let mock = DriverChoice { kind: Kind::Mock, flags };
        let found = choose(&["mock=--script /a --rate-limit=0", "os"]).unwrap();
        assert_eq!(found, [mock, DriverChoice::os()]);
        assert!(choose(&["os", "os"]).is_err() && choose(&["none", "os"]).is_err());
        let unknown = DriverFlag::parse("vampire").unwrap_err();
        assert!(unknown.starts_with("there is no driver \"vampire\"; there are "), "{unknown}");
    }
}
