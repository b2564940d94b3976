//! Which cgroup belongs to which session or container, as the runtime made them, and whether a process began where it is. Pure.
//!
//! The same rule as [`judge`](crate::judge) has for processes that are looked at, for what the kernel tells of each as it starts.

use std::collections::HashMap;

use crate::{kernel::ExecEvent, membership::MoveReason};

/// Something that the runtime made a cgroup for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An exec session.
    Session(SessionPlace),
    /// The container's own processes.
    Container(ContainerPlace),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionPlace {
    pub(crate) id: String,
    pub(crate) container: String,
    /// When its cgroup was made, in nanoseconds after boot.
    pub(crate) made_at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerPlace {
    pub(crate) container: String,
    /// What is to be done with its processes.
    pub(crate) kind: ContainerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    /// Somebody added it to a pod: it is a session of its own.
    Debug,
    /// A container of a pod; nobody in particular is behind what it runs.
    Ordinary,
    /// It is new, and whether somebody added it is not known yet.
    New,
}

/// All of them, by the kernel's IDs.
#[derive(Debug, Default)]
pub(crate) struct Places {
    cgroups: HashMap<u64, Place>,
    /// PID namespaces of containers that have their own, and whose they are.
    namespaces: HashMap<u32, Vec<String>>,
    /// The machine's.
    machine: u32,
}

impl Places {
    pub(crate) fn new(machine_namespace: u32) -> Self {
        Self { machine: machine_namespace, ..Self::default() }
    }

    pub(crate) fn insert(&mut self, cgroup: u64, place: Place) {
        // What is not known has no ID.
        if cgroup != 0 {
            self.cgroups.insert(cgroup, place);
        }
    }

    pub(crate) fn get(&self, cgroup: u64) -> Option<&Place> {
        self.cgroups.get(&cgroup)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(u64, &Place) -> bool) {
        self.cgroups.retain(|id, place| keep(*id, place));
    }

    /// Which containers have which namespaces now.
    pub(crate) fn set_namespaces(&mut self, namespaces: impl Iterator<Item = (u32, String)>) {
        self.namespaces.clear();
        for (namespace, container) in namespaces {
            if namespace != 0 && namespace != self.machine {
                self.namespaces.entry(namespace).or_default().push(container);
            }
        }
    }

    /// The innermost cgroup that the runtime made.
    pub(crate) fn of(&self, event: &ExecEvent) -> Option<&Place> {
        self.of_cgroups(&event.cgroups)
    }

    /// The same for cgroups, innermost first.
    pub(crate) fn of_cgroups(&self, cgroups: &[u64]) -> Option<&Place> {
        cgroups.iter().find_map(|id| self.cgroups.get(id))
    }

    /// What gives away that a process did not begin where it is.
    pub(crate) fn moved(&self, event: &ExecEvent, place: &Place) -> Option<MoveReason> {
        let stranger = match place {
            Place::Session(session) => self.stranger_to(event, session),
            Place::Container(_) => None,
        };
        stranger
            .or_else(|| self.is_apart(event, place).then_some(MoveReason::ApartFromParentOrChild))
    }

    fn stranger_to(&self, event: &ExecEvent, session: &SessionPlace) -> Option<MoveReason> {
        if event.began < session.made_at {
            return Some(MoveReason::OlderThanSession);
        }
        let is_own = |containers: &Vec<String>| containers.contains(&session.container);
        let has_own = self.namespaces.values().any(is_own);
        let elsewhere = event.pid_namespace == self.machine
            || self.namespaces.get(&event.pid_namespace).is_some_and(|it| !is_own(it));
        (has_own && elsewhere).then_some(MoveReason::OtherContainer)
    }

    /// A process is made in the cgroup of its parent.
    fn is_apart(&self, event: &ExecEvent, place: &Place) -> bool {
        let parent = &event.parent;
        // It takes over children of others that are gone.
        let reaps = parent.inner_pid == 1
            && (parent.pid_namespace == event.pid_namespace || event.inner_pid == 1);
        let Some(other) = self.cgroups.get(&parent.cgroup).filter(|_| !reaps) else { return false };
        match (place, other) {
            (Place::Session(one), Place::Session(other)) => {
                // A parent that was moved here has children that look as if they began here.
                one.id != other.id || parent.began < one.made_at
            }
            (Place::Container(one), Place::Container(other)) => one.container != other.container,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ParentProcess;

    const MACHINE: u32 = 1;
    const OWN: u32 = 2;
    const OTHER: u32 = 3;

    fn session(id: &str, container: &str) -> Place {
        Place::Session(SessionPlace {
            id: id.to_owned(),
            container: container.to_owned(),
            made_at: 100,
        })
    }

    fn places() -> Places {
        let mut places = Places::new(MACHINE);
        places.insert(10, session("anna", "c1"));
        places.insert(11, session("ben", "c1"));
        let kind = ContainerKind::Ordinary;
        places.insert(20, Place::Container(ContainerPlace { container: "c1".to_owned(), kind }));
        let namespaces = [(OWN, "c1"), (OTHER, "c2"), (MACHINE, "c3")];
        places.set_namespaces(namespaces.into_iter().map(|(id, name)| (id, name.to_owned())));
        places
    }

    fn event() -> ExecEvent {
        ExecEvent {
            cgroups: vec![10],
            began: 150,
            pid_namespace: OWN,
            inner_pid: 7,
            parent: ParentProcess {
                pid: 5,
                began: 120,
                cgroup: 10,
                pid_namespace: OWN,
                inner_pid: 6,
            },
            ..ExecEvent::default()
        }
    }

    #[track_caller]
    fn check(event: &ExecEvent, expected: Option<MoveReason>) {
        let places = places();
        let place = places.of(event).unwrap();
        assert_eq!(places.moved(event, place), expected);
    }

    #[test]
    fn what_began_in_the_session_is_of_it_also_below_its_cgroup() {
        check(&event(), None);
        check(&ExecEvent { cgroups: vec![99, 10], ..event() }, None);
    }

    /// The runtime starts it from outside.
    #[test]
    fn the_first_process_is_of_its_session_though_its_parent_is_elsewhere() {
        let parent =
            ParentProcess { pid: 3, began: 1, cgroup: 77, pid_namespace: MACHINE, inner_pid: 3 };
        check(&ExecEvent { parent, ..event() }, None);
    }

    #[test]
    fn an_orphan_is_of_its_session_when_the_first_process_took_it_over() {
        let parent =
            ParentProcess { pid: 4, began: 1, cgroup: 20, pid_namespace: OWN, inner_pid: 1 };
        check(&ExecEvent { parent, ..event() }, None);
    }

    #[test]
    fn what_is_older_than_the_session_was_moved_there() {
        check(&ExecEvent { began: 99, ..event() }, Some(MoveReason::OlderThanSession));
    }

    #[test]
    fn what_is_of_another_container_or_of_the_machine_was_moved_there() {
        for pid_namespace in [OTHER, MACHINE] {
            check(&ExecEvent { pid_namespace, ..event() }, Some(MoveReason::OtherContainer));
        }
        check(&ExecEvent { pid_namespace: 99, ..event() }, None);
    }

    #[test]
    fn what_is_apart_from_its_parent_was_moved() {
        for cgroup in [11, 20] {
            let parent = ParentProcess { cgroup, ..event().parent };
            check(&ExecEvent { parent, ..event() }, Some(MoveReason::ApartFromParentOrChild));
        }
    }

    #[test]
    fn a_child_of_what_was_moved_is_moved() {
        let parent = ParentProcess { began: 50, ..event().parent };
        check(&ExecEvent { parent, ..event() }, Some(MoveReason::ApartFromParentOrChild));
    }
}
