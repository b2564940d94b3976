//! From what the kernel tells to what is recorded: whose program it is, below which other one, and how it ended. Pure.
//!
//! A program may begin before the runtime has told which session its cgroup is for. Then it waits, in order with everything that
//! comes after it of the same process, until the runtime was asked again.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{
    clock::BootClock,
    places::{ContainerKind, Place, Places},
};
use crate::{
    hide::hide_secrets,
    journal::{ExitEntry, ProgramEntry},
    kernel::{ExecEvent, ExitEvent, KernelEvent},
    membership::MoveReason,
    record::EventSource,
};

/// So many events wait for the runtime's word, and so many bytes of them; more are lost, and counted.
const MOST_WAITING: usize = 8192;
const MOST_BYTES: usize = 4 << 20;

/// So many of them may be of one cgroup, so that nobody's storm takes the place of others.
const OF_ONE: Held = Held { events: MOST_WAITING / 2, bytes: MOST_BYTES / 4 };

/// And so many of all below one that is directly below the root: who may make cgroups somewhere else on the machine can make any number of
/// them, with any names.
const OF_A_TREE: Held = Held { events: MOST_WAITING * 3 / 4, bytes: MOST_BYTES / 2 };

/// So many cgroups are remembered that are nobody's, such as those of another cluster on this machine.
const MOST_FOREIGN: usize = 4096;

/// A cgroup that the runtime was asked about so often, and so long, and did not know, is nobody's. In nanoseconds.
const ASKED: u32 = 3;
const PATIENCE: u64 = 10_000_000_000;

/// The runtime knows a session soon after its first program begins; what is older is in no hurry. In nanoseconds.
const YOUNG: u64 = 1_000_000_000;

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Program(Box<ProgramEntry>),
    Exit(ExitEntry),
}

/// A program that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningProgram {
    pub(crate) session: String,
    pub(crate) started: jiff::Timestamp,
    /// When its process was made, in nanoseconds after boot.
    pub(crate) began: u64,
    pub(crate) is_moved: bool,
}

/// Everything that is known about processes.
#[derive(Debug)]
pub(crate) struct Attribution {
    pub(crate) places: Places,
    source: EventSource,
    running: HashMap<u32, RunningProgram>,
    waiting: VecDeque<Waiting>,
    waiting_pids: HashSet<u32>,
    waiting_bytes: usize,
    /// How many of each cgroup wait, and of each tree by its root.
    waiting_of: HashMap<u64, Held>,
    /// Those that did not find room because too many of their cgroup wait: whether they are lost depends on whose they are.
    beyond: HashMap<u64, Beyond>,
    /// Cgroups of which the runtime was asked, and that it does not know. Their IDs are never given again.
    foreign: HashSet<u64>,
    lost: u64,
}

/// Events that wait, or may wait.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    events: usize,
    bytes: usize,
}

impl Held {
    fn has_reached(self, most: Self) -> bool {
        self.events >= most.events || self.bytes >= most.bytes
    }
}

#[derive(Debug)]
struct Beyond {
    cgroups: Vec<u64>,
    events: u64,
    /// When the first of them was, in nanoseconds after boot.
    since: u64,
}

#[derive(Debug)]
struct Waiting {
    event: KernelEvent,
    asked: u32,
}

impl Attribution {
    pub(crate) fn new(machine_namespace: u32, source: EventSource) -> Self {
        Self {
            places: Places::new(machine_namespace),
            source,
            running: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_pids: HashSet::new(),
            waiting_bytes: 0,
            waiting_of: HashMap::new(),
            beyond: HashMap::new(),
            foreign: HashSet::new(),
            lost: 0,
        }
    }

    /// What follows from an event now.
    pub(crate) fn hear(&mut self, event: KernelEvent, clock: BootClock) -> Option<Happened> {
        match event {
            // In order with the beginning that waits.
            event if self.waiting_pids.contains(&pid(&event)) => self.wait(event, 0),
            KernelEvent::Exit(event) => self.ended(&event, clock).map(Happened::Exit),
            KernelEvent::Exec(event) => match self.places.of(&event) {
                Some(Place::Container(container)) if container.kind == ContainerKind::Ordinary => {
                    None
                }
                Some(Place::Container(container)) if container.kind == ContainerKind::New => {
                    self.wait(KernelEvent::Exec(event), 0)
                }
                Some(place) => {
                    let place = place.clone();
                    let began = self.began(&event, &place, clock);
                    Some(Happened::Program(Box::new(began)))
                }
                None if self.foreign.contains(&innermost(&event)) => None,
                None => self.wait(KernelEvent::Exec(event), 0),
            },
        }
    }

    /// Whether the runtime should be asked.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether something waits that the runtime will know at any moment; it is `now` so many nanoseconds after boot.
    pub(crate) fn has_young(&self, now: u64) -> bool {
        let young = self.waiting.back().map(|last| now.saturating_sub(time(&last.event)) < YOUNG);
        young.unwrap_or(false)
    }

    /// What follows from events that waited, after the runtime was asked again, `now` nanoseconds after boot.
    pub(crate) fn hear_waiting(&mut self, clock: BootClock, now: u64) -> Vec<Happened> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_pids.clear();
        self.waiting_bytes = 0;
        self.waiting_of.clear();
        let mut happened = Vec::new();
        for Waiting { event, asked } in waiting {
            let is_new = match &event {
                KernelEvent::Exec(event) => match self.places.of(event) {
                    Some(Place::Container(place)) => place.kind == ContainerKind::New,
                    Some(Place::Session(_)) => false,
                    None if self.foreign.contains(&innermost(event)) => continue,
                    None if asked >= ASKED && now.saturating_sub(event.time) > PATIENCE => {
                        self.forget_foreign(innermost(event));
                        continue;
                    }
                    None => true,
                },
                KernelEvent::Exit(event) => self.waiting_pids.contains(&event.pid),
            };
            if is_new {
                self.wait(event, asked + 1);
            } else {
                happened.extend(self.hear(event, clock));
            }
        }
        self.settle_beyond(now);
        happened
    }

    fn forget_foreign(&mut self, cgroup: u64) {
        if self.foreign.len() >= MOST_FOREIGN {
            self.foreign.clear();
        }
        self.foreign.insert(cgroup);
    }

    /// What found no room is lost once it is known to be somebody's.
    fn settle_beyond(&mut self, now: u64) {
        let (places, foreign) = (&self.places, &self.foreign);
        let mut lost = 0;
        self.beyond.retain(|cgroup, beyond| match places.of_cgroups(&beyond.cgroups) {
            Some(Place::Container(place)) if place.kind == ContainerKind::New => true,
            Some(Place::Container(place)) if place.kind == ContainerKind::Ordinary => false,
            Some(_) => {
                lost += beyond.events;
                false
            }
            None => !foreign.contains(cgroup) && now.saturating_sub(beyond.since) <= PATIENCE,
        });
        self.lost += lost;
    }

    /// Events that were lost since the last time because too many waited.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Programs that run, by their processes.
    pub(crate) fn running(&self) -> &HashMap<u32, RunningProgram> {
        &self.running
    }

    /// A program that is known from elsewhere.
    pub(crate) fn resume(&mut self, pid: u32, program: RunningProgram) {
        self.running.insert(pid, program);
    }

    /// A program whose process is gone, and nobody knows how.
    pub(crate) fn vanished(&mut self, pid: u32) -> Option<ExitEntry> {
        let RunningProgram { session, started, .. } = self.running.remove(&pid)?;
        Some(ExitEntry { session, pid, started, ended: None, exit_code: None, signal: None })
    }

    fn wait(&mut self, event: KernelEvent, asked: u32) -> Option<Happened> {
        if let KernelEvent::Exec(exec) = &event
            && !self.has_room_for(exec)
        {
            let cgroup = innermost(exec);
            if self.beyond.len() >= MOST_FOREIGN && !self.beyond.contains_key(&cgroup) {
                self.lost += 1;
                return None;
            }
            let none = || Beyond { cgroups: exec.cgroups.clone(), events: 0, since: exec.time };
            self.beyond.entry(cgroup).or_insert_with(none).events += 1;
            return None;
        }
        if self.waiting.len() >= MOST_WAITING || self.waiting_bytes >= MOST_BYTES {
            self.lost += 1;
        } else {
            self.waiting_bytes += size(&event);
            self.waiting_pids.insert(pid(&event));
            self.waiting.push_back(Waiting { event, asked });
        }
        None
    }

    /// Whether its cgroup and the tree that this is in may have another one wait, which counts then.
    fn has_room_for(&mut self, event: &ExecEvent) -> bool {
        let (one, tree) = (innermost(event), event.cgroups.last().copied().unwrap_or(0));
        let held = |cgroup: &u64| self.waiting_of.get(cgroup).copied().unwrap_or_default();
        let is_full =
            held(&one).has_reached(OF_ONE) || (tree != one && held(&tree).has_reached(OF_A_TREE));
        if is_full {
            return false;
        }
        let bytes = event.arguments.len() + event.program.len();
        for cgroup in [one, tree].into_iter().take(if tree == one { 1 } else { 2 }) {
            let held = self.waiting_of.entry(cgroup).or_default();
            held.events += 1;
            held.bytes += bytes;
        }
        true
    }

    fn began(&mut self, event: &ExecEvent, place: &Place, clock: BootClock) -> ProgramEntry {
        let session = match place {
            Place::Session(session) => session.id.clone(),
            Place::Container(container) => container.container.clone(),
        };
        let of_session =
            |pid: &&u32| self.running.get(*pid).is_some_and(|program| program.session == session);
        let above = || std::iter::once(&event.parent.pid).chain(&event.above);
        let parent_program = above().find(of_session).copied();
        // Whoever comes of a process that was moved is nobody's either.
        let by_parent = parent_program.and_then(|pid| self.running.get(&pid));
        let inherited = by_parent.filter(|parent| parent.is_moved);
        let moved = self
            .places
            .moved(event, place)
            .or_else(|| inherited.map(|_| MoveReason::ApartFromParentOrChild));
        let started = clock.time(event.time);
        let running = RunningProgram {
            session: session.clone(),
            started,
            began: event.began,
            is_moved: moved.is_some(),
        };
        self.running.insert(event.pid, running);
        let program = String::from_utf8_lossy(&event.program).into_owned();
        let arguments = words(&event.arguments);
        let (arguments, hidden_at) = hide_secrets(&program, &arguments);
        ProgramEntry {
            session,
            pid: event.pid,
            parent: event.parent.pid,
            parent_program,
            uid: event.uid,
            program,
            arguments,
            cut: event.is_cut,
            hidden_at,
            started,
            moved,
            source: self.source,
        }
    }

    fn ended(&mut self, event: &ExitEvent, clock: BootClock) -> Option<ExitEntry> {
        let running = self.running.get(&event.pid)?;
        // Of an earlier process with that number.
        if event.began != 0 && running.began != 0 && event.began != running.began {
            return None;
        }
        let RunningProgram { session, started, .. } = self.running.remove(&event.pid)?;
        Some(ExitEntry {
            session,
            pid: event.pid,
            started,
            ended: Some(clock.time(event.time).max(started)),
            exit_code: event.code(),
            signal: event.signal(),
        })
    }
}

/// The cgroup that a process is in.
fn innermost(event: &ExecEvent) -> u64 {
    event.cgroups.first().copied().unwrap_or(0)
}

fn pid(event: &KernelEvent) -> u32 {
    match event {
        KernelEvent::Exec(event) => event.pid,
        KernelEvent::Exit(event) => event.pid,
    }
}

fn time(event: &KernelEvent) -> u64 {
    match event {
        KernelEvent::Exec(event) => event.time,
        KernelEvent::Exit(event) => event.time,
    }
}

/// What varies of it.
fn size(event: &KernelEvent) -> usize {
    match event {
        KernelEvent::Exec(event) => event.arguments.len() + event.program.len(),
        KernelEvent::Exit(_) => 0,
    }
}

/// Arguments as the kernel has them: each ends with NUL. One that was cut has no end.
fn words(arguments: &[u8]) -> Vec<String> {
    let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
    if arguments.is_empty() {
        return Vec::new();
    }
    let words = arguments.split(|byte| *byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[cfg(test)]
mod tests;
