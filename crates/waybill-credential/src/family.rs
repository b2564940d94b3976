//! A plugin and the processes that it started, which are killed together.
//!
//! Where there is a terminal, a plugin stays in our process group, as in client-go: it may ask somebody by `/dev/tty`, wherever
//! its standard input comes from; Ctrl-C and Ctrl-Z reach it; and a terminal stops whoever touches it from another group. Its
//! processes are found by descent then. Without a terminal it leads a group of its own, which cannot be missed.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};
use tokio::process::Child;

use crate::process::{Process, raw, was_asked};

/// All plugins that this process runs, by the numbers of their processes.
static RUNNING: Mutex<BTreeMap<i32, Family>> = Mutex::new(BTreeMap::new());

/// One of them has ended.
static ENDED: Condvar = Condvar::new();

/// Kills every plugin that this process runs, with all that they started. For a program that is about to end by a signal: plugins
/// do not end by themselves, and those that lead a group of their own do not hear Ctrl-C.
///
/// One on our terminal hears it, and may have to set the terminal right: it has `grace` for that.
pub fn end_plugins(grace: Duration) {
    let running = lock();
    running.values().filter(|family| !family.hears_terminal()).for_each(Family::kill);
    let hears = |running: &mut BTreeMap<_, Family>| running.values().any(Family::hears_terminal);
    let waited = ENDED.wait_timeout_while(running, grace, hears);
    let (running, _) = waited.unwrap_or_else(PoisonError::into_inner);
    running.values().for_each(Family::kill);
}

/// A plugin under way, and how its processes are known. They are killed when this is dropped.
pub(crate) struct Running(Option<i32>);

/// How the processes of a plugin are known.
#[derive(Clone)]
pub(crate) enum Family {
    /// They are a group.
    Group(Pid),
    /// They descend from it, or are of our group and have its question. It started at this time.
    Descent { plugin: Pid, start: u64, question: String },
}

impl Running {
    /// Starts a plugin. Whoever ends all plugins meanwhile waits, and ends this one, too.
    pub(crate) fn start(
        start: impl FnOnce() -> io::Result<Child>,
        family_of: impl FnOnce(Pid) -> Family,
    ) -> io::Result<(Self, Child)> {
        let mut running = lock();
        let child = start()?;
        let plugin = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let plugin = plugin.map(|plugin| {
            running.insert(raw(plugin), family_of(plugin));
            raw(plugin)
        });
        Ok((Self(plugin), child))
    }

    pub(crate) fn kill(&self) {
        let family = self.0.and_then(|plugin| lock().get(&plugin).cloned());
        if let Some(family) = family {
            family.kill();
        }
    }

    /// A signal ended the plugin, which has been waited for. If it came from our terminal, shells kept it from their children.
    pub(crate) fn kill_orphans(&self) {
        let family = self.0.and_then(|plugin| lock().get(&plugin).cloned());
        if let Some(Family::Descent { start, question, .. }) = family {
            kill_descent(BTreeSet::new(), start, &question);
        }
    }

    /// The plugin has been waited for: what it left behind it meant to leave, and its number may be another's.
    pub(crate) fn leave_alone(&mut self) {
        if let Some(plugin) = self.0.take() {
            lock().remove(&plugin);
            ENDED.notify_all();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        self.leave_alone();
    }
}

impl Family {
    /// That of a plugin in our process group.
    pub(crate) fn in_our_group(plugin: Pid, question: &str) -> Self {
        let start = Process::read(raw(plugin)).map_or(u64::MAX, |process| process.start);
        Self::Descent { plugin, start, question: question.to_owned() }
    }

    fn hears_terminal(&self) -> bool {
        matches!(self, Self::Descent { .. })
    }

    fn kill(&self) {
        match self {
            Self::Group(leader) => {
                let _ = kill_process_group(*leader, Signal::KILL);
            }
            Self::Descent { plugin, start, question } => {
                kill_descent([raw(*plugin)].into(), *start, question);
            }
        }
    }
}

/// Stops them first: who is stopped starts nobody, and leaves no orphans that would be overlooked.
fn kill_descent(mut members: BTreeSet<i32>, start: u64, question: &str) {
    let own_group = raw(getpgrp());
    let is_orphan = |pid: i32, process: Process| {
        process.group == own_group && process.start >= start && was_asked(pid, question)
    };
    members.iter().for_each(|&member| signal(member, Signal::STOP));
    loop {
        let mut found: BTreeMap<_, _> = Process::all().collect();
        found.retain(|pid, process| {
            !members.contains(pid)
                && (members.contains(&process.parent) || is_orphan(*pid, *process))
        });
        if found.is_empty() {
            break;
        }
        found.keys().for_each(|&member| signal(member, Signal::STOP));
        members.extend(found.into_keys());
    }
    members.into_iter().for_each(|member| signal(member, Signal::KILL));
}

fn signal(pid: i32, signal: Signal) {
    // It may have ended meanwhile.
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

fn lock() -> MutexGuard<'static, BTreeMap<i32, Family>> {
    // Each change is a single operation of the map.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
