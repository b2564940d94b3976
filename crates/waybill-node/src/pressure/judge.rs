//! Whether the machine is under pressure: a pure function of what was measured and of when it was last so.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::threshold::{EvictionThresholds, Signal};

/// What there is of something, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) available: u64,
    pub(crate) capacity: u64,
}

/// What could be measured.
pub(crate) type Readings = BTreeMap<Signal, Reading>;

/// Something of which there is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) signal: Signal,
    /// With less than this the machine is short of it.
    pub(crate) least: u64,
    pub(crate) available: u64,
}

/// What the node tells of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
    pub(crate) processes: bool,
}

impl Conditions {
    /// The names of those that hold.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let all = [
            (self.memory, "MemoryPressure"),
            (self.disk, "DiskPressure"),
            (self.processes, "PIDPressure"),
        ];
        all.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect()
    }
}

/// Remembers when the machine was last short of what.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    short: BTreeSet<Signal>,
    last: BTreeMap<Signal, Instant>,
}

impl Judge {
    /// What is short now, the first to be relieved first.
    pub(super) fn look(
        &mut self,
        thresholds: &EvictionThresholds,
        readings: &Readings,
        now: Instant,
    ) -> Vec<Shortage> {
        let short = readings.iter().filter_map(|(signal, reading)| {
            let least = thresholds.least(*signal, reading.capacity)?;
            let Reading { available, .. } = *reading;
            (available < least).then_some(Shortage { signal: *signal, least, available })
        });
        let short: Vec<_> = short.collect();
        self.short = short.iter().map(|shortage| shortage.signal).collect();
        self.last.extend(self.short.iter().map(|signal| (*signal, now)));
        short
    }

    /// A condition holds until there was enough for the whole `period`, so that it does not come and go with every file.
    pub(super) fn conditions(&self, period: Duration, now: Instant) -> Conditions {
        let recent = self.last.iter().filter(|(signal, last)| {
            self.short.contains(signal) || now.duration_since(**last) < period
        });
        let mut conditions = Conditions::default();
        for (signal, _) in recent {
            match signal {
                Signal::MemoryAvailable => conditions.memory = true,
                Signal::NodefsAvailable
                | Signal::NodefsInodesFree
                | Signal::ImagefsAvailable
                | Signal::ImagefsInodesFree => conditions.disk = true,
                Signal::PidAvailable => conditions.processes = true,
            }
        }
        conditions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(300);

    fn readings(all: &[(Signal, u64)]) -> Readings {
        let reading = |available| Reading { available, capacity: 1000 };
        all.iter().map(|(signal, available)| (*signal, reading(*available))).collect()
    }

    #[track_caller]
    fn check(measured: &[(Signal, u64)], short: &[Signal], expected: &[&str]) {
        let thresholds = EvictionThresholds::parse(
            "memory.available<100,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,\
             pid.available<50",
        );
        let (mut judge, now) = (Judge::default(), Instant::now());
        let found = judge.look(&thresholds.unwrap(), &readings(measured), now);
        let found: Vec<_> = found.into_iter().map(|shortage| shortage.signal).collect();
        assert_eq!(found, short);
        assert_eq!(judge.conditions(PERIOD, now).names(), expected);
    }

    #[test]
    fn each_signal_makes_its_condition_and_memory_comes_first() {
        use Signal::{
            ImagefsAvailable, MemoryAvailable, NodefsAvailable, NodefsInodesFree, PidAvailable,
        };
        check(&[], &[], &[]);
        let enough = [
            (MemoryAvailable, 100),
            (NodefsAvailable, 100),
            (NodefsInodesFree, 50),
            (PidAvailable, 50),
        ];
        check(&enough, &[], &[]);
        check(&[(MemoryAvailable, 99)], &[MemoryAvailable], &["MemoryPressure"]);
        check(&[(NodefsAvailable, 99)], &[NodefsAvailable], &["DiskPressure"]);
        check(&[(NodefsInodesFree, 49)], &[NodefsInodesFree], &["DiskPressure"]);
        check(&[(ImagefsAvailable, 149)], &[ImagefsAvailable], &["DiskPressure"]);
        check(
            &[(PidAvailable, 0), (NodefsAvailable, 0), (MemoryAvailable, 0)],
            &[MemoryAvailable, NodefsAvailable, PidAvailable],
            &["MemoryPressure", "DiskPressure", "PIDPressure"],
        );
        // Nobody asked for it.
        check(&[(Signal::ImagefsInodesFree, 0)], &[], &[]);
    }

    #[test]
    fn a_condition_outlives_its_cause_by_the_transition_period() {
        let thresholds = EvictionThresholds::parse("nodefs.available<100").unwrap();
        let (mut judge, start) = (Judge::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let full = readings(&[(Signal::NodefsAvailable, 99)]);
        let free = readings(&[(Signal::NodefsAvailable, 100)]);
        for (second, readings, expected) in [
            (0, &free, false),
            (10, &full, true),
            (20, &free, true),
            (30, &full, true),
            (329, &free, true),
            (330, &free, false),
            (340, &full, true),
        ] {
            judge.look(&thresholds, readings, at(second));
            assert_eq!(judge.conditions(PERIOD, at(second)).disk, expected, "{second}");
        }
    }

    #[test]
    fn without_a_period_a_condition_ends_with_its_cause() {
        let thresholds = EvictionThresholds::parse("pid.available<100").unwrap();
        let (mut judge, now) = (Judge::default(), Instant::now());
        for (available, expected) in [(99, true), (100, false)] {
            judge.look(&thresholds, &readings(&[(Signal::PidAvailable, available)]), now);
            assert_eq!(judge.conditions(Duration::ZERO, now).processes, expected);
        }
    }
}
