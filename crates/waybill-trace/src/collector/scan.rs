//! Looks at all processes now and then: the last resort. Whatever begins and ends between two looks is not seen.

use std::{collections::HashMap, fs, io, time::Duration};

use super::{
    clock::after_boot,
    lookup::{LookedUp, look_up},
};
use crate::{
    kernel::{ExitEvent, KernelEvent},
    process::CgroupIds,
};

/// How often is looked.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// What was seen the last time.
#[derive(Debug)]
pub(crate) struct Scanner {
    cgroups: CgroupIds,
    /// When a process was made, and what it ran.
    seen: HashMap<u32, (u64, Vec<u8>)>,
}

impl Scanner {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { cgroups: CgroupIds::find()?, seen: HashMap::new() })
    }

    /// What began and ended since the last look.
    pub(crate) fn look(&mut self, mut take: impl FnMut(KernelEvent)) {
        let now = after_boot();
        self.cgroups.forget();
        let Ok(entries) = fs::read_dir("/proc") else { return };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut seen = HashMap::new();
        for pid in names.filter_map(|name| name.parse::<u32>().ok()) {
            let LookedUp::Found(event) = look_up(pid, now, &mut self.cgroups) else { continue };
            let program = (event.began, event.arguments.clone());
            let before = self.seen.remove(&pid);
            if before.as_ref() != Some(&program) {
                if let Some((began, _)) = before.filter(|(began, _)| *began != program.0) {
                    take(ended(pid, began, now));
                }
                take(KernelEvent::Exec(event));
            }
            seen.insert(pid, program);
        }
        for (pid, (began, _)) in std::mem::replace(&mut self.seen, seen) {
            take(ended(pid, began, now));
        }
    }
}

/// Nobody can say how.
fn ended(pid: u32, began: u64, time: u64) -> KernelEvent {
    KernelEvent::Exit(ExitEvent { time, pid, began, status: ExitEvent::UNKNOWN })
}
