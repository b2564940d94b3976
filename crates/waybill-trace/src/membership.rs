//! Which session a process belongs to: pure, because it names people.
//!
//! Only what the runtime itself made counts: a process is of a session if its cgroup, or one above it, has the ID that the
//! runtime recorded for that session. Names of cgroups say nothing. A process that began there and one that was moved
//! there look the same to the kernel, so everything that gives a move away is looked for, and then nobody is named.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::{
    process::{ProcessFacts, TICKS_PER_SECOND},
    runtime::{ContainerCgroups, Session},
};

/// What a process belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// This session began it or what it descends from.
    Session(String),
    /// It is one of this container's own.
    Container(String),
    /// It was moved, or something near it was: where it is says nothing about who is behind it.
    Moved(Moved),
}

/// A process whose place is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The container that it is in, if that is certain.
    pub container: Option<String>,
    /// The session in whose cgroup it is.
    pub session: Option<String>,
    /// What gives it away.
    pub reason: MoveReason,
}

/// What gives a move away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MoveReason {
    /// It is older than the cgroup that it is in.
    OlderThanSession,
    /// It is in another PID namespace than its cgroup's container.
    OtherContainer,
    /// A process is made in the cgroup of its parent, and these two are apart.
    ApartFromParentOrChild,
    /// It is in the container's PID namespace, and in no cgroup that the runtime made for it.
    OutsideItsContainer,
}

impl MoveReason {
    /// For people; completes "process 7 was moved: ".
    pub fn describe(self) -> &'static str {
        match self {
            Self::OlderThanSession => "it began before the session in whose cgroup it is",
            Self::OtherContainer => "it is in a session's cgroup and not in that container",
            Self::ApartFromParentOrChild => {
                "its parent or a child of it is in the cgroup of another session or container"
            }
            Self::OutsideItsContainer => {
                "it is in a container and in none of the cgroups that the runtime made for that"
            }
        }
    }
}

/// Judges all processes at once, because one tells about another. Those that have nothing to do with the runtime are left out.
///
/// `processes` must have been read before the runtime was asked for the rest: then a session that it does not know has ended.
pub fn judge(
    processes: &[ProcessFacts],
    sessions: &[Session],
    containers: &[ContainerCgroups],
) -> BTreeMap<u32, Membership> {
    let judge = Judge::new(processes, sessions, containers);
    let torn = judge.torn();
    processes
        .iter()
        .filter_map(|process| Some((process.pid, judge.membership(process, &torn)?)))
        .collect()
}

/// A cgroup that the runtime made.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Session(&'a Session),
    /// The leaf of a container's own processes.
    Processes(&'a ContainerCgroups),
    /// What is above all of a container.
    Container(&'a ContainerCgroups),
}

struct Judge<'a> {
    processes: HashMap<u32, &'a ProcessFacts>,
    places: HashMap<u64, Place<'a>>,
    /// The PID namespaces of containers that have their own, and whose they are; a pod may share one.
    namespaces: HashMap<u64, Vec<&'a ContainerCgroups>>,
    /// The machine's.
    machine: u64,
    /// Containers with a session that is just being started, whose cgroup is not known yet.
    starting: HashSet<&'a str>,
    /// First processes of sessions.
    leaders: HashSet<u32>,
}

impl<'a> Judge<'a> {
    fn new(
        processes: &'a [ProcessFacts],
        sessions: &'a [Session],
        containers: &'a [ContainerCgroups],
    ) -> Self {
        let processes: HashMap<u32, &ProcessFacts> =
            processes.iter().map(|process| (process.pid, process)).collect();
        let machine = processes.get(&1).map_or(0, |first| first.pid_namespace);
        let mut places = HashMap::new();
        for container in containers {
            places.insert(container.cgroup_id, Place::Container(container));
            places.insert(container.processes_id, Place::Processes(container));
        }
        places.extend(sessions.iter().map(|it| (it.cgroup_id, Place::Session(it))));
        // What is not known has no ID.
        places.remove(&0);
        let mut namespaces: HashMap<u64, Vec<&ContainerCgroups>> = HashMap::new();
        for container in containers {
            let first = u32::try_from(container.pid).ok().and_then(|pid| processes.get(&pid));
            let own =
                first.map(|first| first.pid_namespace).filter(|it| ![0, machine].contains(it));
            namespaces.entry(own.unwrap_or(0)).or_default().push(container);
        }
        namespaces.remove(&0);
        // Who attaches starts nothing.
        let exec = || sessions.iter().filter(|session| session.attached.is_none());
        let running = || exec().filter(|session| session.ended.is_none());
        let unknown = running().filter(|session| session.cgroup_id == 0);
        Self {
            processes,
            places,
            namespaces,
            machine,
            starting: unknown.map(|session| session.container.as_str()).collect(),
            leaders: running().filter_map(|session| u32::try_from(session.pid).ok()).collect(),
        }
    }

    fn membership(&self, process: &ProcessFacts, torn: &HashSet<u32>) -> Option<Membership> {
        let moved = |container: Option<&str>, session: Option<&Session>, reason| {
            let session = session.map(|session| session.id.clone());
            Membership::Moved(Moved { container: container.map(str::to_owned), session, reason })
        };
        let apart = || torn.contains(&process.pid).then_some(MoveReason::ApartFromParentOrChild);
        match self.place(process) {
            Some(Place::Session(session)) => {
                let reason = self.stranger_to(process, session).or_else(apart);
                Some(match reason {
                    Some(reason) => moved(Some(&session.container), Some(session), reason),
                    None => Membership::Session(session.id.clone()),
                })
            }
            Some(Place::Processes(container)) => Some(match apart() {
                Some(reason) => moved(Some(&container.container), None, reason),
                None => Membership::Container(container.container.clone()),
            }),
            Some(Place::Container(container)) => {
                let known = !self.starting.contains(container.container.as_str());
                let id = Some(container.container.as_str());
                known.then(|| moved(id, None, MoveReason::OutsideItsContainer))
            }
            None => {
                let containers = self.left(process)?;
                let id = match containers {
                    [one] => Some(one.container.as_str()),
                    _ => None,
                };
                Some(moved(id, None, MoveReason::OutsideItsContainer))
            }
        }
    }

    fn place(&self, process: &ProcessFacts) -> Option<Place<'a>> {
        process.cgroups.iter().find_map(|id| self.places.get(id).copied())
    }

    /// Why a process in a session's cgroup cannot have begun there.
    fn stranger_to(&self, process: &ProcessFacts, session: &Session) -> Option<MoveReason> {
        if process.began < session.made_at / (1_000_000_000 / TICKS_PER_SECOND) {
            return Some(MoveReason::OlderThanSession);
        }
        let own = |containers: &Vec<&ContainerCgroups>| {
            containers.iter().any(|it| it.container == session.container)
        };
        let known = self.namespaces.values().any(own);
        let elsewhere = if process.pid_namespace == self.machine {
            true
        } else {
            self.home(process).is_some_and(|containers| !own(containers))
        };
        (known && elsewhere).then_some(MoveReason::OtherContainer)
    }

    /// The containers whose PID namespace a process is in, or a namespace below that.
    fn home(&self, process: &ProcessFacts) -> Option<&Vec<&'a ContainerCgroups>> {
        let mut at = process;
        // As deep as the kernel lets namespaces be, with room for processes between them.
        for _ in 0..1024 {
            if at.pid_namespace == self.machine {
                return None;
            }
            if let Some(containers) = self.namespaces.get(&at.pid_namespace) {
                return Some(containers);
            }
            at = self.processes.get(&at.parent)?;
        }
        None
    }

    /// The containers that a process is of, if it is in none of their cgroups although it should be.
    fn left(&self, process: &ProcessFacts) -> Option<&[&'a ContainerCgroups]> {
        let containers = self.home(process)?;
        // Older runtimes made no cgroups that could be known.
        let known = containers.iter().all(|it| it.processes_id != 0);
        let is_leader = self.leaders.contains(&process.pid)
            || containers.iter().any(|it| u32::try_from(it.pid) == Ok(process.pid));
        // The holder of a namespace that containers share is in the sandbox's cgroup.
        let holds = process.is_first && self.namespaces.contains_key(&process.pid_namespace);
        // Somebody on the machine entered the namespace, which is nothing that a container did.
        let parent = self.processes.get(&process.parent);
        let entered = parent.is_none_or(|it| it.pid_namespace == self.machine);
        (known && (is_leader || !(holds || entered))).then_some(containers.as_slice())
    }

    /// Processes that are in other cgroups than a parent or child of theirs.
    fn torn(&self) -> HashSet<u32> {
        let mut torn = HashSet::new();
        for child in self.processes.values() {
            let Some(parent) = self.processes.get(&child.parent) else { continue };
            let (Some(one), Some(other)) = (self.place(parent), self.place(child)) else {
                continue;
            };
            // It takes over children of others that are gone.
            let reaps =
                parent.is_first && (parent.pid_namespace == child.pid_namespace || child.is_first);
            if !same(one, other) && !reaps {
                torn.extend([parent.pid, child.pid]);
            }
        }
        torn
    }
}

fn same(one: Place<'_>, other: Place<'_>) -> bool {
    match (one, other) {
        (Place::Session(one), Place::Session(other)) => one.id == other.id,
        (Place::Processes(one), Place::Processes(other)) => one.container == other.container,
        // A session that is just being started.
        (Place::Container(_), _) | (_, Place::Container(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
